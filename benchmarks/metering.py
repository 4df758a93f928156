"""The cost of metering, or of a watcher: the same objects through two runtimes of one process, in
turn."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Any

import numpy as np

from ps2stream.benchmarks import workload
from ps2stream.client.client import Client
from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import warm
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.watch import WatchSample
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.ticks import TICK_S
from ps2stream.routing.plan import built_in_plan
from ps2stream.service.server import serve
from ps2stream.space.regions import Rect
from ps2stream.store.memory import MemoryStore

POSTS = 8192
BLOCK_S = 0.025


class NullMeter(StageMeter):
    """A meter that records nothing."""

    def add(self, stage: str, seconds: float, count: int = 1) -> None:
        """Does nothing."""

    def time(self, stage: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def run_metering(
    queries: int = 20_000,
    batch: int = 1024,
    seconds: float = 10.0,
    seed: int = 1,
    watched: bool = False,
) -> dict[str, Any]:
    """Publishes blocks of batches without metering and with it, in turn, for `seconds`;
    JSON-able: CPU time of the thread, which does all the work. `watched`: compares metering
    without and with a watcher, with as many ticks as that time has."""
    analysis = Analysis(salt=seed)
    analyzer = Analyzer(analysis)
    load = workload.make("synthetic", "q1", queries, 100, POSTS, seed, analyzer)
    posts = load.posts
    plan = built_in_plan(analysis, load.grid, 2, (posts.lon, posts.lat), load.counts)
    topology = Topology(plan)
    warm(topology)
    meters = (StageMeter if watched else NullMeter, StageMeter)
    without, metered = (LocalRuntime(topology, MemoryStore(), meter=meter) for meter in meters)
    for runtime in (without, metered):
        _insert_queries(runtime, load)
    glimpses: list[WatchSample] = []
    if watched:
        metered.edges[0].watch("", glimpses.append)
    off, term = analyzer.analyse(posts.text_off, posts.text)
    ids = strings_to_column([str(i) for i in range(len(posts.lon))])
    rows = ObjectRows(
        *ids, np.zeros(len(posts.lon), np.int64), posts.lon, posts.lat,
        posts.text_off, posts.text, off, term,
    )  # fmt: skip
    parts = [rows.take(np.arange(i, i + batch)) for i in range(0, len(rows) - batch + 1, batch)]
    size = 1
    due = {id(runtime): 0.0 for runtime in (without, metered)}

    def block(runtime: LocalRuntime) -> float:
        begun = time.thread_time()
        for i in range(size):
            runtime.edges[0].publish(parts[i % len(parts)], durable=False)
        took = time.thread_time() - begun
        due[id(runtime)] += took * watched
        while due[id(runtime)] >= TICK_S:
            due[id(runtime)] -= TICK_S
            begun = time.thread_time()
            runtime.tick()
            took += time.thread_time() - begun
        return took

    enough = 4 * TICK_S if watched else BLOCK_S
    while max(block(without), block(metered)) < enough:
        size *= 2
    ratios: list[float] = []
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(ratios) < 2:
        plain, with_, again, last = (block(r) for r in (without, metered, metered, without))
        ratios.append((with_ + again) / (plain + last))
        took.append(plain / size)
    return {
        "queries": queries,
        "batch": batch,
        "blocks": len(ratios),
        "batch_us": statistics.median(took) * 1e6,
        "cpu_ratio": statistics.median(ratios),
        "standard_error": statistics.stdev(ratios) / len(ratios) ** 0.5,
        "verified": {"different": abs(_count_matches(without) - _count_matches(metered))},
        **({"seen": sum(glimpse.accepted for glimpse in glimpses)} if watched else {}),
    }


def _count_matches(runtime: LocalRuntime) -> int:
    status = runtime.status()
    return sum(status[name]["matches"] for name in status if name.startswith("worker"))


def _insert_queries(runtime: LocalRuntime, load: workload.Workload) -> None:
    server = serve(runtime.edges[0], "127.0.0.1", 0)
    rects = load.interests.rect[: load.start].tolist()
    expressions = load.expressions()[: load.start]
    pairs = enumerate(zip(expressions, rects, strict=True))
    with Client(f"127.0.0.1:{server.port}", timeout=60) as client:
        client.insert_many(
            {"id": str(i), "expression": words, "region": Rect(*rect)} for i, (words, rect) in pairs
        )
    server.stop(0.1)
