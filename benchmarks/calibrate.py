"""c1 to c4 of Definition 1 on this machine: GI2 timed on several mixes of work.

A mix is a number of queries of a group of algorithms.md 1.10 under synthetic posts (or those of a
file), in the grid that a plan for them would have. The inserts, the matching of objects, and the
deletes with the sweeps that remove their postings are timed separately.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ps2stream.benchmarks.post_batches import BATCH, PostBatches
from ps2stream.benchmarks.query_tags import TaggedRows, query_rows, tags_of
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.planner.calibrate import fit
from ps2stream.protocol.frame import I64, U64, row_of
from ps2stream.workers.gi2 import GI2

MIXES = ((5_000, "q1"), (20_000, "q2"), (40_000, "q1"), (100_000, "q2"), (100_000, "q1"))
OBJECTS = 24 * BATCH
RUNS = 3
_SWEEP = 1 << 16  # lists
_ODD = np.uint64(0x9E3779B97F4A7C15)


def calibrate(
    source: str = "synthetic",
    seed: int = 1,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Measures and fits; JSON-able: c1 to c4 in microseconds, the median relative error of what
    they predict, and every measurement. source: "synthetic" or a file of posts."""
    analyzer = Analyzer(Analysis(salt=seed))
    progress("compiling")
    _measure_mix(*MIXES[0], source, seed, analyzer)
    rows: list[dict[str, Any]] = []
    for queries, group in MIXES:
        progress(f"{queries:,} queries of {group.upper()}")
        rows += _measure_mix(queries, group, source, seed, analyzer)
    names = ("candidates", "objects", "inserts", "deletes")
    work = np.array([[row[name] for name in names] for row in rows], np.float64)
    found = fit(work, np.array([row["microseconds"] for row in rows]))
    return {**dataclasses.asdict(found.costs), "error": found.error, "measured": rows}


def _measure_mix(
    queries: int, group: str, source: str, seed: int, analyzer: Analyzer
) -> list[dict[str, Any]]:
    """Returns the timed runs of one mix, with what each of them did."""
    load = make(source, group, queries, 0, OBJECTS, seed, analyzer)
    rows = query_rows(load, analyzer, Frequencies.of(load.counts, analyzer), 0, queries)
    tags = tags_of(rows, load.grid)
    objects = analyzer.analyse(load.posts.text_off, load.posts.text)
    batches = PostBatches(load.posts, *objects)
    index = GI2(load.grid)
    found: list[dict[str, Any]] = []

    def timed(work: Callable[[], object], **counts: int) -> None:
        began = time.perf_counter()
        work()
        took = (time.perf_counter() - began) * 1e6
        nothing = dict.fromkeys(("candidates", "objects", "inserts", "deletes"), 0)
        mix = {"queries": queries, "group": group}
        found.append(mix | nothing | counts | {"microseconds": took})

    def match() -> None:
        for k in range(len(batches)):
            index.match(queries, *batches[k])

    half = queries // 2
    handles = np.arange(half + 1, queries + 1)

    def delete() -> None:
        index.delete(handles, np.full(len(handles), queries + 1, np.int64))
        index.purge(queries + 1)
        while index.stats().tombstones and index.sweep(_SWEEP):
            pass

    timed(lambda: index.insert(*tags), inserts=int(tags.off[-1]))
    met = _count_candidates(load, tags, *objects)
    for _ in range(RUNS):
        timed(match, candidates=met, objects=OBJECTS)
    timed(delete, deletes=int(tags.off[-1] - tags.off[half]))
    kept = tags.off[half]
    rest = TaggedRows(rows, tags.off[: half + 1], tags.cell[:kept], tags.term[:kept])
    met = _count_candidates(load, rest, *objects)
    for _ in range(RUNS):
        timed(match, candidates=met, objects=OBJECTS)
    return found


def _count_candidates(load: Workload, tags: TaggedRows, off: I64, term: U64) -> int:
    """Counts the objects met with a posting of a term that they have, in their cell of a level."""
    tag, count = np.unique(
        _make_unit_keys(tags.cell.astype(np.uint64), tags.term), return_counts=True
    )
    row, met = row_of(off), 0
    for level in range(load.grid.levels):
        cell = load.grid.cells(load.posts.lon, load.posts.lat, level).astype(np.uint64)
        unit = _make_unit_keys(cell[row], term)
        at = np.minimum(np.searchsorted(tag, unit), len(tag) - 1)
        met += int(count[at][tag[at] == unit].sum())
    return met


def _make_unit_keys(cell: U64, term: U64) -> U64:
    return term ^ (cell * _ODD)
