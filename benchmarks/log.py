"""The rate at which a log makes records durable: on a disk, in a database, or in Kafka."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from typing import Any

from ps2stream.benchmarks.kept import open_fresh_place
from ps2stream.store.places import StoragePlace

SHAPES = ((100, 1), (100, 4096), (256 << 10, 16))
"""Bytes per record, records per sync."""
_KEPT = 256 << 20  # bytes; older segments are trimmed


def run_log(
    directory: str | None = None,
    seconds: float = 3.0,
    database_url: str | None = None,
    log_url: str | None = None,
    log_config: str | None = None,
) -> dict[str, Any]:
    """Appends and syncs for `seconds` in each shape, then reads back what is kept.

    JSON-able: a list of rates, and how many of the records read back were wrong.
    """
    shapes, wrong = [], 0
    for size, group in SHAPES:
        with open_fresh_place(directory, database_url, log_url, log_config) as place:
            found = _measure_shape(place, size, group, seconds)
        wrong += found.pop("wrong")
        shapes.append(found)
    return {"shapes": shapes, "verified": {"wrong": wrong}}


def _measure_shape(place: StoragePlace, size: int, group: int, seconds: float) -> dict[str, Any]:
    """Measures one shape; returns its rates."""
    record = random.Random(1).randbytes(size)
    took: list[float] = []
    with contextlib.closing(place.open_log("bench-0")) as log:
        began, began_cpu = time.perf_counter(), time.process_time()
        while (now := time.perf_counter()) < began + seconds or not took:
            for _ in range(group):
                log.append(record)
            log.trim(log.sync() - _KEPT)
            took.append(time.perf_counter() - now)
        cpu_s, written = time.process_time() - began_cpu, len(took) * group * size
        rate = len(took) * group / sum(took)
        before = time.perf_counter()
        read = [found == record for _, found in log.scan()]
        return {
            "record_bytes": size,
            "records_a_sync": group,
            "records_per_second": rate,
            "megabytes_per_second": rate * size / 1e6,
            "cpu_seconds_per_gigabyte": cpu_s / (written / 1e9),
            "sync_milliseconds_median": statistics.median(took) * 1e3,
            "read_records_per_second": len(read) / (time.perf_counter() - before),
            "wrong": read.count(False),
        }
