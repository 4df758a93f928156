"""Measurements of processes and disks, the wall clock, and the counters of an actor's machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from pathlib import Path
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")


def count_us() -> int:
    """Returns microseconds since whenever."""
    return time.perf_counter_ns() // 1000


def count_cpu_us() -> int:
    """Returns the microseconds for which this thread has been on a processor."""
    return time.thread_time_ns() // 1000


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def disk(folder: Path | None) -> dict[str, int]:
    """Returns the total and free bytes of the file system of `folder`; empty where they are
    unknown."""
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
    """Returns the state of the process as a letter, as ps shows it; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def read_name(pid: int) -> str:
    """Returns the name of its program, at most 15 characters; empty if there is no process."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def read_cpu_delays_s(pid: int) -> dict[int, float]:
    """Returns for each thread how long it has been runnable without a processor since it began;
    empty where the process is gone or the system does not count that."""
    found: dict[int, float] = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has ended
                found[int(task.name)] = int((task / "schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return {}
    return found


def counters_of(machine: object) -> dict[str, Any]:
    """Returns a machine's `counters` as a plain dict."""
    counters = getattr(machine, "counters", None)
    if counters is None:
        return {}
    if dataclasses.is_dataclass(counters) and not isinstance(counters, type):
        return dataclasses.asdict(counters)
    return dict(counters)


def log_figures(problem: str, size_bytes: int | None = None) -> dict[str, Any]:
    """Returns what a status says of the log of an actor, or of its ledger: why it takes nothing at
    present (ports.Log.problem), and its size."""
    sizes = {} if size_bytes is None else {"log_bytes": size_bytes}
    return {"log_problem": problem, "log_failing": int(bool(problem)), **sizes}


def wall_clock_ms() -> int:
    """Returns the Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
