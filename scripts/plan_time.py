"""Wall time, CPU time and peak memory of `ps2stream plan` on a synthetic sample:

python scripts/plan_time.py [--objects N] [--queries N] [OPTION OF ps2stream plan ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.benchmarks.workload import make
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import column_to_strings


def write_sample(objects: int, queries: int, directory: Path) -> list[str]:
    """Writes the synthetic posts and Q1 queries of `bench`, seed 1; returns options that name the
    files."""
    load = make("synthetic", "q1", queries, 0, objects, 1, Analyzer(Analysis(salt=1)))
    lon, lat, off, text = load.posts
    posts = pa.table({"lon": lon, "lat": lat, "text": column_to_strings(off, text)})
    sides = zip(("lon_min", "lat_min", "lon_max", "lat_max"), load.interests.rect.T, strict=True)
    ids = [f"q{i}" for i in range(queries)]
    query_table = pa.table({"id": ids, "expression": load.expressions(), **dict(sides)})
    options = []
    for name, table in (("objects", posts), ("queries", query_table)):
        path = str(directory / f"{name}.parquet")
        pq.write_table(table, path)
        options += [f"--{name}", path]
    return options


def used(root: int) -> tuple[float, list[int]]:
    """Returns (seconds of CPU, bytes in memory of each) of this process and all below it, with
    the CPU of those that ended; pages that several share count for each."""
    fields = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process ended meanwhile
            fields[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
    tree: set[int] = set()
    below = {root} & fields.keys()
    while below:
        tree |= below
        below = {pid for pid, of in fields.items() if int(of[1]) in tree} - tree
    ticks = sum(int(ticks) for pid in tree for ticks in fields[pid][11:15])
    pages = sorted((int(fields[pid][21]) for pid in tree), reverse=True)
    return ticks / os.sysconf("SC_CLK_TCK"), [n * os.sysconf("SC_PAGE_SIZE") for n in pages]


def main() -> int:
    """Runs the plan; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200_000)
    arguments, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="ps2stream-plan-") as path:
        sample = write_sample(arguments.objects, arguments.queries, Path(path))
        command = [sys.executable, "-m", "ps2stream", "plan", *sample]
        command += ["-o", f"{path}/plan.json", *more]
        began = time.perf_counter()
        seconds, most = 0.0, [0]
        with subprocess.Popen(command) as running:
            while running.poll() is None:
                cpu, held = used(running.pid)
                seconds, most = max(seconds, cpu), max(most, held, key=sum)
                time.sleep(0.1)
            took = time.perf_counter() - began
    each = ", ".join(f"{size / 1e9:.2f}" for size in most)
    sys.stdout.write(f"{took:.1f} s, {seconds:.1f} s of CPU; at most {sum(most) / 1e9:.2f} GB ")
    sys.stdout.write(f"in memory: {each}\n")
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
