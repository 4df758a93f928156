"""What an actor's process and disk have of a machine, its clock, and a machine's counters."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from pathlib import Path
from typing import Any

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


def is_running(pid: int) -> bool:
    """Returns whether the process is there and has not ended."""
    return read_state(pid) not in ("", "Z", "X")


def read_state(pid: int) -> str:
    """Returns its state as a letter, as ps shows it; an empty string if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def read_name(pid: int) -> str:
    """Returns its program's name, of at most 15 characters; an empty string if there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def read_cpu_delays_s(pid: int) -> dict[int, float]:
    """Returns for each thread how long it has been runnable without a processor since it began;
    nothing where the process is gone, or the system does not count it."""
    found: dict[int, float] = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has ended
                found[int(task.name)] = int((task / "schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return {}
    return found


def counters_of(machine: object) -> dict[str, Any]:
    """A machine's `counters`, as a plain dict."""
    counters = getattr(machine, "counters", None)
    if counters is None:
        return {}
    if dataclasses.is_dataclass(counters) and not isinstance(counters, type):
        return dataclasses.asdict(counters)
    return dict(counters)


def wall_clock_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
