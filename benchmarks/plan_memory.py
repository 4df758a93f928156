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
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import column_to_strings

GOAL = 100_000_000, 10_000_000
"""The objects and queries that the measured growth is carried on to."""
GOAL_BYTES = 4 << 30
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


def run_plan_memory(
    sizes: Sequence[SampleSize],
    workers: int = 8,
    group: str = "q1",
    seed: int = 1,
    max_units: int = MAX_UNITS,
) -> dict[str, Any]:
    """Returns the measured peaks, JSON-able: bytes of the driver's Python process and JVM after
    counting and after planning by hybrid, and with two sizes what they would be at GOAL. max_units:
    units that the driver holds one by one."""
    context = multiprocessing.get_context("spawn")
    found: list[dict[str, Any]] = []
    for size in sizes:
        with PrivateFolder() as folder, context.Pool(1, maxtasksperchild=1) as pool:
            pool.apply(write_sample, (folder.path, size, group, seed))
            found.append(pool.apply(_plan_sample, (folder.path, size, workers, max_units)))
    return {"sizes": found, "goal": extrapolate(found, max_units) if len(found) > 1 else {}}


def extrapolate(found: Sequence[dict[str, Any]], max_units: int = MAX_UNITS) -> dict[str, Any]:
    """Carries the growth of the last two sizes on to GOAL: the units and the peak of Python along a
    straight line in the queries, which overstates what flattens; the JVM as its largest peak so
    far, for its heap has a limit (spark.driver.memory). fits: whether the sum is within 4 GiB.

    Above max_units, where light units are summed by cell, the line is only what still grows. The
    units that may then be held in addition, up to max_units and a quarter more for the sums, are
    added to the peak of Python by the bytes per unit that the first two sizes grew by, if these
    are below max_units, else by all that the last size holds."""
    before, last = found[-2:]
    ahead = (GOAL[1] - last["queries"]) / (last["queries"] - before["queries"])
    carried = {
        name: int(last[name] + max(last[name] - before[name], 0) * ahead)
        for name in ("units", "python_counted", "python_planned")
    }
    if before["rest"] and last["rest"]:
        most = max_units + max_units // 4
        more = max(most - last["units"], 0)
        for name in ("python_counted", "python_planned"):
            carried[name] += int(more * _measure_unit(found, name))
        carried["units"] = most
    jvm = max(row["jvm"] for row in found)
    # Where one peak hides the growth of the other, the larger of the two lines counts.
    total = max(carried["python_counted"], carried["python_planned"]) + jvm
    named = {"objects": GOAL[0], "queries": GOAL[1]}
    return named | carried | {"jvm": jvm, "total": total, "fits": total <= GOAL_BYTES}


def _measure_unit(found: Sequence[dict[str, Any]], name: str) -> float:
    """Returns the bytes of a peak per unit, see `extrapolate`."""
    first, second = found[:2]
    if first["rest"] or second["rest"] or second["units"] <= first["units"]:
        return float(found[-1][name] / found[-1]["units"])
    return max(float((second[name] - first[name]) / (second["units"] - first["units"])), 0.0)


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


def _plan_sample(folder: Path, size: SampleSize, workers: int, max_units: int) -> dict[str, Any]:
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master {_MASTER} --conf spark.executor.memory=2g pyspark-shell"
    )
    from ps2stream.planner import job
    from ps2stream.planner.spark_session import find_jvm

    objects, queries = (
        [str(path) for path in sorted((folder / kind).iterdir())] for kind in ("objects", "queries")
    )
    work = job.PlanJob(objects, queries, workers=workers, max_units=max_units)
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
        "arrays": measure_arrays(sample.stats),
        "collected": dict(sample.collected),
        "python_idle": idle,
        "python_counted": counted,
        "python_planned": read_peak(os.getpid()),
        "jvm": read_peak(find_jvm()),
    }
