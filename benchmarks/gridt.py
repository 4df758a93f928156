"""gridt alone: bytes a unit and a query, CPU of updates and of routing.

The queries of a workload are posted under the built-in plan, in batches of BATCH. Then the objects
are routed, batch by batch and again one by one, and the last queries are deleted and inserted
again. CPU is that of this process in the calls of gridt; texts are analysed before.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ps2stream.benchmarks.engine import analyse_posts
from ps2stream.benchmarks.post_batches import BATCH, PostBatches
from ps2stream.benchmarks.query_tags import query_rows
from ps2stream.benchmarks.workload import make
from ps2stream.cluster.allocator import return_free_memory
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import load_kernels
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.observability.process import resident_bytes
from ps2stream.routing.plan import built_in_plan
from ps2stream.routing.tags import QueryTags
from ps2stream.space.grid import Grid

OBJECT_BATCHES = 40
SINGLE_OBJECTS = 1_000
CHURN_BATCHES = 40
_ROUNDS = 5  # of which the fastest counts


def run_gridt(
    queries: int = 1_000_000,
    group: str = "q1",
    workload: str = "synthetic",
    seed: int = 1,
    workers: int = 8,
) -> dict[str, Any]:
    """Returns the measured figures with every setting, JSON-able."""
    analyzer = Analyzer(Analysis(salt=seed))
    load = make(workload, group, queries, BATCH, OBJECT_BATCHES * BATCH, seed, analyzer)
    frequencies = Frequencies.of(load.counts, analyzer)
    batches = PostBatches(load.posts, *analyse_posts(load.posts, analyzer)[0])
    h1 = built_in_plan(Analysis(salt=seed), load.grid, workers).compile(analyzer)
    load_kernels(Topology(built_in_plan(Analysis(salt=seed), Grid(), workers)))
    gridt = Gridt(h1, load.grid)
    return_free_memory()
    before = resident_bytes()
    kept: list[QueryTags] = []
    seconds, tagged = np.zeros(2), 0
    for first in range(0, queries, BATCH):
        rows = query_rows(load, analyzer, frequencies, first, min(first + BATCH, queries))
        began = time.process_time()
        tags = gridt.expand(rows)
        expanded = time.process_time()
        gridt.insert(tags)
        seconds += expanded - began, time.process_time() - expanded
        tagged += len(tags.cell)
        kept = [*kept[1 - CHURN_BATCHES :], tags]
    return_free_memory()
    resident = resident_bytes() - before
    posted = int(gridt.postings([]).sum())
    churn = np.zeros(2)
    for tags in kept:
        began = time.process_time()
        gridt.retire(tags)
        retired = time.process_time()
        gridt.insert(tags)
        churn += retired - began, time.process_time() - retired
    counted = sum(len(tags.cell) for tags in kept)
    wrong = abs(posted - tagged) + abs(int(gridt.postings([]).sum()) - tagged)
    return {
        "settings": {
            "queries": queries, "group": group, "workload": workload, "seed": seed,
            "workers": workers, "batch": BATCH,
        },
        "units": len(gridt),
        "tags_per_query": tagged / queries,
        "h2_bytes_per_unit": gridt.h2_bytes / len(gridt),
        "h2_bytes_per_query": gridt.h2_bytes / queries,
        "resident_bytes_per_query": resident / queries,
        "cpu_ns_per_tag": {
            "expand": 1e9 * seconds[0] / tagged,
            "insert": 1e9 * seconds[1] / tagged,
            "retire_again": 1e9 * churn[0] / counted,
            "insert_again": 1e9 * churn[1] / counted,
        },
        "route_cpu_us_per_object": _measure_routing(gridt, batches),
        "verified": {"wrong": wrong},
    }  # fmt: skip


def _measure_routing(gridt: Gridt, batches: PostBatches) -> dict[str, float]:
    """Returns the CPU microseconds an object, in batches and alone."""
    many = [batches[k] for k in range(OBJECT_BATCHES)]
    lon, lat, off, term = many[0]
    alone = [
        (lon[i : i + 1], lat[i : i + 1], off[i : i + 2] - off[i], term[off[i] : off[i + 1]])
        for i in range(min(SINGLE_OBJECTS, BATCH))
    ]
    found = {}
    for name, calls in {"in_batches": many, "alone": alone}.items():
        objects = sum(len(call[0]) for call in calls)
        rounds = []
        for _ in range(_ROUNDS):
            began = time.process_time()
            for call in calls:
                gridt.route(*call)
            rounds.append(time.process_time() - began)
        found[name] = 1e6 * min(rounds) / objects
    return found
