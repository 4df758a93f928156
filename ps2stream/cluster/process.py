"""What an actor's process and disk have of a machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def disk(folder: Path | None) -> dict[str, int]:
    """Bytes of the file system of `folder`; nothing where there is none, or it cannot tell."""
    if folder is None:
        return {}
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return {}
    return {"disk": found.total, "disk_free": found.free}
