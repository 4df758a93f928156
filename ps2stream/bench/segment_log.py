"""How fast a segment log takes records and makes them durable, on the disk of a directory."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ps2stream.store.segments import SegmentLog

SHAPES = ((100, 1), (100, 4096), (256 << 10, 16))
"""Bytes of a record, records of a sync."""
_KEPT = 256 << 20  # bytes; older segments are trimmed


def run_log(directory: str | None = None, seconds: float = 3.0) -> dict[str, Any]:
    """Append and sync for so long in each shape, in a new directory below `directory` (that
    of the system for temporary files if None), then read back what is kept.

    JSON-able: a list of rates, and how many of the records read back were wrong.
    """
    shapes, wrong = [], 0
    for size, group in SHAPES:
        with tempfile.TemporaryDirectory(dir=directory, prefix="ps2stream-log-") as path:
            found = _measured(Path(path), size, group, seconds)
        wrong += found.pop("wrong")
        shapes.append(found)
    return {"shapes": shapes, "verified": {"wrong": wrong}}


def _measured(path: Path, size: int, group: int, seconds: float) -> dict[str, Any]:
    record = random.Random(1).randbytes(size)
    took: list[float] = []
    with SegmentLog.open(path) as log:
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds or not took:
            for _ in range(group):
                log.append(record)
            log.trim(log.sync() - _KEPT)
            took.append(time.perf_counter() - now)
        rate = len(took) * group / sum(took)
        before = time.perf_counter()
        read = [found == record for _, found in log.scan()]
        return {
            "record_bytes": size,
            "records_a_sync": group,
            "records_per_second": rate,
            "megabytes_per_second": rate * size / 1e6,
            "sync_milliseconds_median": statistics.median(took) * 1e3,
            "read_records_per_second": len(read) / (time.perf_counter() - before),
            "wrong": read.count(False),
        }
