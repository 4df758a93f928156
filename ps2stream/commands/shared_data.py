"""The directory of real data beside a checkout."""

from __future__ import annotations

import os
from pathlib import Path


def shared_file(name: str) -> Path | None:
    """Returns a file of PS2STREAM_DATA, by default ../shared/data; None where it does not exist."""
    path = Path(os.environ.get("PS2STREAM_DATA") or "../shared/data") / name
    return path if path.is_file() else None
