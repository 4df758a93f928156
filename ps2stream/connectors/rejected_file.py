"""A file for what was refused for good: JSON lines, each on disk before anything follows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Appends the records and syncs the file. Raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
