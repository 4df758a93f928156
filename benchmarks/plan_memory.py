"""`ps2stream bench plan-memory`: the memory of the planner's driver by the size of the sample.

Files of posts and queries (workload.py) are planned for by a process of its own for each size. Its
executors are processes of their own too (Spark's local-cluster), so that the peak resident memory
of the driver's Python process and of its JVM is theirs alone, as on a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.benchmarks import workload
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.rest import MAX_UNITS
from ps2stream.planner.statistics import MAX_SIGNATURES, Statistics
from ps2stream.protocol.frame import column_to_strings

GOAL = 100_000_000, 10_000_000
"""The objects and queries that the measured growth is carried on to."""
GOAL_BYTES = 4 << 30
HEAP_BYTES = 2 << 30
"""spark.driver.memory of a session of our own."""
_MASTER = "local-cluster[1,2,3072]"
_PART = 250_000


class SampleSize(NamedTuple):
    """A number of objects and one of queries."""

    objects: int
    queries: int

    @classmethod
    def parse(cls, text: str) -> SampleSize:
        """Reads OBJECTS:QUERIES. Raises ValueError."""
        objects, queries = (int(part) for part in text.split(":"))
        if min(objects, queries) < 1:
            raise ValueError("expected positive numbers")
        return cls(objects, queries)


class SampleBounds(NamedTuple):
    """The units that the driver holds one by one, and the signatures."""

    units: int = MAX_UNITS
    signatures: int = MAX_SIGNATURES

    @property
    def units_held(self) -> int:
        """The units in all: a quarter more, as sums by cell."""
        return self.units + self.units // 4


def run_plan_memory(
    small: SampleSize,
    large: SampleSize,
    workers: int = 8,
    group: str = "q1",
    seed: int = 1,
    bounds: SampleBounds = SampleBounds(),  # noqa: B008
) -> dict[str, Any]:
    """Returns the measured peaks, JSON-able: bytes of the driver's Python process and JVM after
    counting and after planning by hybrid, and what they would be at GOAL within `bounds`.

    The large sample is planned for three times: within the bounds, with an eighth of the units that
    it has, and with an eighth of its signatures too; the small one once, with the last bounds."""
    context = multiprocessing.get_context("spawn")
    found: list[dict[str, Any]] = []

    def measure(folder: Path, size: SampleSize, limits: SampleBounds) -> None:
        with context.Pool(1, maxtasksperchild=1) as pool:
            row = pool.apply(_plan_sample, (folder, size, workers, limits))
        found.append(row)

    for size in (large, small):
        with PrivateFolder() as folder, context.Pool(1, maxtasksperchild=1) as pool:
            pool.apply(write_sample, (folder.path, size, group, seed))
            if size is large:
                measure(folder.path, size, bounds)
                units, signatures = (max(found[0][n] // 8, 1) for n in ("units", "signatures"))
                measure(folder.path, size, bounds._replace(units=units))
            measure(folder.path, size, SampleBounds(units, signatures))
    return {"samples": found, "goal": extrapolate(found, bounds)}


def extrapolate(found: Sequence[dict[str, Any]], bounds: SampleBounds) -> dict[str, Any]:
    """Carries the peaks on to GOAL. found: the rows of run_plan_memory, in its order.

    Two rows that differ in one of units and signatures tell the bytes of one; those that differ in
    the size of the sample alone, the bytes per query that neither bound limits (words, for
    example), along a straight line, which overstates what flattens. The JVM as its largest peak so
    far, and as `jvm_most` with its heap full. fits: whether Python and the latter are within 4
    GiB."""
    first, fewer_units, least, small = found
    goal: dict[str, Any] = {"objects": GOAL[0], "queries": GOAL[1]}
    python = 0
    for name in ("python_counted", "python_planned"):
        unit = _measure_slope(name, "units", fewer_units, first)
        signature = _measure_slope(name, "signatures", least, fewer_units)
        query = _measure_slope(name, "queries", small, least)
        goal[name] = int(
            first[name]
            + unit * max(bounds.units_held - first["units"], 0)
            + signature * max(bounds.signatures - first["signatures"], 0)
            + query * (GOAL[1] - first["queries"])
        )
        goal[f"{name}_bytes"] = {"unit": unit, "signature": signature, "query": query}
        python = max(python, goal[name])
    jvm = max(row["jvm"] for row in found)
    # The heap's growth is what the peaks leave of it; all else of the JVM is there already.
    most = max(row["jvm"] + HEAP_BYTES - row["heap"] for row in found)
    total = {"jvm": jvm, "total": python + jvm, "jvm_most": most, "total_most": python + most}
    return goal | total | {"fits": python + most <= GOAL_BYTES}


def _measure_slope(name: str, by: str, low: dict[str, Any], high: dict[str, Any]) -> float:
    """Returns the bytes of a peak for one more of something, 0 if there is no growth."""
    return float(max((high[name] - low[name]) / max(high[by] - low[by], 1), 0.0))


def measure_arrays(stats: Statistics) -> dict[str, int]:
    """Returns the bytes of each array that plans are made of, and of the strings of the terms."""
    arrays = {name: value.nbytes for name, value in vars(stats).items() if hasattr(value, "nbytes")}
    return arrays | {"terms": sum(map(sys.getsizeof, (stats.terms, *stats.terms)))}


def read_peak(pid: int) -> int:
    """Returns the most resident memory of a process so far, bytes."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    kib = next(line for line in lines if line.startswith("VmHWM:")).split()[1]
    return int(kib) << 10


def write_sample(folder: Path, size: SampleSize, group: str, seed: int) -> None:
    """Writes files of posts and of queries below `folder`/objects and `folder`/queries."""
    analyzer = Analyzer(Analysis(salt=seed))
    load = workload.make("synthetic", group, size.queries, 0, size.objects, seed, analyzer)
    for kind in ("objects", "queries"):
        (folder / kind).mkdir()
    for first in range(0, size.objects, _PART):
        rows = np.arange(first, min(first + _PART, size.objects))
        posts = load.posts.take(rows)
        table = pa.table(
            {
                "lon": posts.lon,
                "lat": posts.lat,
                "text": column_to_strings(posts.text_off, posts.text),
                "time": rows,
            }
        )
        pq.write_table(table, folder / "objects" / f"{first:09}.parquet")
    expressions = load.expressions()[: size.queries]
    for first in range(0, size.queries, _PART):
        some = slice(first, min(first + _PART, size.queries))
        sides = dict(
            zip(
                ("lon_min", "lat_min", "lon_max", "lat_max"),
                load.interests.rect[some].T,
                strict=True,
            )
        )
        ids = [f"q{i}" for i in range(some.start, some.stop)]
        table = pa.table({"id": ids, "expression": expressions[some], **sides})
        pq.write_table(table, folder / "queries" / f"{first:09}.parquet")


def _plan_sample(
    folder: Path, size: SampleSize, workers: int, bounds: SampleBounds
) -> dict[str, Any]:
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master {_MASTER} --conf spark.executor.memory=2g pyspark-shell"
    )
    from ps2stream.planner import job
    from ps2stream.planner.spark_session import find_jvm, read_heap

    objects, queries = (
        [str(path) for path in sorted((folder / kind).iterdir())] for kind in ("objects", "queries")
    )
    work = job.PlanJob(
        objects,
        queries,
        workers=workers,
        max_units=bounds.units,
        max_signatures=bounds.signatures,
    )
    idle = read_peak(os.getpid())
    sample = job.sample_of(work)
    counted = read_peak(os.getpid())
    job.plan_of(sample, work)
    return {
        "objects": sample.objects,
        "queries": sample.live,
        "units": sample.stats.units,
        "rest": sample.rest,
        "terms": len(sample.stats.terms),
        "signatures": len(sample.stats.row_start) - 1,
        "arrays": measure_arrays(sample.stats),
        "collected": dict(sample.collected),
        "python_idle": idle,
        "python_counted": counted,
        "python_planned": read_peak(os.getpid()),
        "jvm": read_peak(find_jvm()),
        "heap": read_heap(),
    }
