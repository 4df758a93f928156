"""`ps2stream bench ingest`: a pipeline of Spark's beside a direct publisher, on the same cores.

Both read the same Parquet files, whose columns have other names than those of posts, and publish
durably to one service. The direct publisher is the fastest way of the client: one stream with eight
Arrow batches in flight. Service, publisher and Spark's driver are a process each, and publish in
turns. Spark's start, and the first round, are not measured. Beside the speeds, which depend on what
else runs, stands the processor time that service and clients take for an object.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.benchmarks import workload
from ps2stream.client.client import Client
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.pipeline_config import build_job, merge_declarations
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.limits import BATCH_ROWS
from ps2stream.protocol.frame import column_to_strings
from ps2stream.space.regions import Rect

COLUMNS = {"event": "id", "at": "time", "x": "lon", "y": "lat", "words": "text"}
"""The files' columns, and what they are of a post."""
BASE_MS = 1_767_225_600_000
VARIANTS = ("direct", "pipeline", "jvm", "dedupe")
"""pipeline: whose files Arrow reads; jvm: whose rows Spark reads; dedupe: the same, and it
deduplicates."""


def run_ingest(
    rows: int = 200_000,
    files: int = 4,
    queries: int = 10_000,
    rounds: int = 3,
    seed: int = 1,
    variants: Sequence[str] = VARIANTS,
) -> dict[str, Any]:
    """Returns the measured figures, JSON-able: objects per second of each variant and microseconds
    of processor time an object, and the ratios to those of the direct publisher. rows: of each
    file, and so of each micro-batch. variants: of VARIANTS, from `direct` on."""
    options = dict(locals())
    load = workload.make("synthetic", "q1", queries, 0, rows, seed, Analyzer(Analysis(salt=seed)))
    context = multiprocessing.get_context("spawn")
    with PrivateFolder() as folder:
        posts = folder.path / "posts"
        posts.mkdir()
        _write_files(posts, load.posts, files)
        settings = Settings(port=0, data_dir=folder.path / "data", workers=1, runtime="local")
        with start(settings) as service:
            target = service.targets[0]
            _insert_queries(target, load)
            speeds: dict[str, list[float]] = {name: [] for name in variants}
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
            pipes: dict[str, Connection] = {}
            processes: dict[str, Any] = {}
            works = {
                "direct": publish_directly,
                "pipeline": publish_by_spark,
                "jvm": publish_by_spark,
            }
            ways = {name: "jvm" if name == "dedupe" else name for name in variants}
            for name in dict.fromkeys(ways.values()):
                work = works[name]
                pipes[name], end = context.Pipe()
                process = context.Process(target=work, args=(target, str(posts), end))
                process.start()
                end.close()  # so that the end of the process is the end of the pipe
                processes[name] = process
            try:
                for turn in range(rounds + 1):
                    for name in variants:
                        pipe, client = pipes[ways[name]], processes[ways[name]].pid
                        before = time.process_time(), read_tree_cpu(client)
                        pipe.send(name)
                        published, seconds = pipe.recv()
                        after = time.process_time(), read_tree_cpu(client)
                        if published != rows * files:
                            problem = f"{name} published {published} objects of {rows * files}"
                            raise RuntimeError(problem)
                        if turn:  # the first warms
                            speeds[name].append(published / seconds)
                            took = [(b - a) / published for a, b in zip(before, after, strict=True)]
                            spent[name].append((took[0], took[1]))
                for pipe in pipes.values():
                    pipe.send("")
            finally:
                for process in processes.values():
                    process.join(20)
                    process.terminate()
    return {
        "benchmark": "ingest",
        "settings": options | {"cores": os.cpu_count()},
        "objects_per_s": {name: _summarise_speeds(found) for name, found in speeds.items()},
        "cpu_us_per_object": {name: _summarise_cpu(found) for name, found in spent.items()},
        **{
            f"{name}_over_direct": round(median(speeds[name]) / median(speeds["direct"]), 3)
            for name in variants[1:]
        },
        **{
            f"{name}_over_direct_cpu": round(_compute_cpu(spent["direct"]) / _compute_cpu(found), 3)
            for name, found in spent.items()
            if name != "direct"
        },
    }


def read_tree_cpu(root: int) -> float:
    """Returns the processor seconds so far of a process, of all below it, and of those of their
    children that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    spent: dict[int, float] = {}
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        spent[number] = sum(map(int, fields[11:15])) / tick
        below.setdefault(int(fields[1]), []).append(number)
    found, left = 0.0, [root]
    while left:
        number = left.pop()
        found += spent.get(number, 0.0)
        left += below.get(number, ())
    return found


def _compute_cpu(found: list[tuple[float, float]]) -> float:
    return median(service + client for service, client in found)


def _summarise_cpu(found: list[tuple[float, float]]) -> dict[str, float]:
    names = ("service", "client")
    return {n: round(1e6 * median(f[i] for f in found), 2) for i, n in enumerate(names)}


def _summarise_speeds(found: list[float]) -> dict[str, float]:
    return {name: round(f(found)) for name, f in (("median", median), ("min", min), ("max", max))}


def _write_files(folder: Path, posts: workload.PostColumns, files: int) -> None:
    """Writes the posts again and again, each time with other ids, later times and in one file."""
    rows = len(posts.lon)
    words = pa.array(column_to_strings(posts.text_off, posts.text))
    for number in range(files):
        ids = np.arange(rows) + number * rows
        columns = {
            "event": pa.array(ids).cast(pa.string()),
            "at": pa.array(BASE_MS + ids).cast(pa.timestamp("ms", "UTC")),
            "x": pa.array(posts.lon),
            "y": pa.array(posts.lat),
            "words": words,
        }
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=max(rows // 8, 1))


def _insert_queries(target: str, load: workload.Workload) -> None:
    expressions, rects = load.expressions(), load.interests.rect.tolist()
    with Client(target, timeout=120) as client:
        client.insert_many(
            (f"q{i}", expression, Rect(*rect))
            for i, (expression, rect) in enumerate(zip(expressions, rects, strict=True))
        )


def _read_files(folder: str) -> Iterator[pa.RecordBatch]:
    for path in sorted(Path(folder).glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for part in file.iter_batches(BATCH_ROWS, columns=list(COLUMNS)):
                yield part.rename_columns(list(COLUMNS.values()))


def publish_directly(target: str, folder: str, pipe: Connection) -> None:
    """Publishes all files as often as the pipe wants it; sends the objects and seconds."""
    with Client(target, timeout=120) as client:
        while pipe.recv():
            began = time.monotonic()
            done = sum(r.accepted for r in client.publish_stream(_read_files(folder)))
            pipe.send((done, time.monotonic() - began))


def publish_by_spark(target: str, folder: str, pipe: Connection) -> None:
    """Publishes all files, a micro-batch each, as often as the pipe wants it, by the variant that
    it names; sends the objects and seconds."""
    from ps2stream.connectors.spark_pipeline import COUNTS, choose_settings, run_pipeline
    from ps2stream.planner.spark_session import session

    declared: dict[str, Any] = {
        "source": {"format": "parquet", "path": folder, "options": {"maxFilesPerTrigger": 1}},
        "posts": {name: column for column, name in COLUMNS.items()},
        "attributes": "none",
        "trigger": "once",
    }
    turn = 0
    variant = pipe.recv()
    declared["source"]["reader"] = "arrow" if variant == "pipeline" else "spark"
    settings = choose_settings(build_job({**declared, "checkpoint": folder}))
    with session("ps2stream bench ingest", settings):
        while variant:
            turn += 1
            own = f"{variant}-{turn}"
            more: dict[str, Any] = {"name": own, "checkpoint": f"{folder}-{own}"}
            if variant == "dedupe":
                more["posts"] = {"dedupe": "1h"}
            job = build_job(merge_declarations(declared, more))
            counts = ConnectorCounts(*COUNTS)
            teller = CountsReporter(counts, _ignore_report, 0)
            stop = threading.Event()
            found = run_pipeline(job, target, {}, counts, teller, stop, lambda reader, reason: None)
            pipe.send((counts["done"], found.busy_ms / 1000))
            variant = pipe.recv()


def _ignore_report(value: dict[str, Any], line: str) -> None:
    pass
