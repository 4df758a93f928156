"""Objects from texts to matches on one core: the engine, and `ps2stream.match` by its side.

The engine analyses the texts of BATCH objects and matches them, and that is all. `match` also reads
the objects from a table of Arrow, a file of Parquet or a data frame of pandas, checks them, and
orders the matches. Its result makes a table of all their columns when that is asked for: the ways
called `_table` make one of each batch. Times are of the processor, each turn one after the other;
what is done once for all objects, such as the index, is left out.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.benchmarks.engine import ROUNDS, IndexEngine
from ps2stream.benchmarks.figures import summarise_values
from ps2stream.benchmarks.post_batches import BATCH
from ps2stream.benchmarks.tuning import tune_workload
from ps2stream.benchmarks.variants import NO_SHARES, QueryVariants
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.inprocess.match_columns import MatchedBatch, QueryIds
from ps2stream.inprocess.match_table import MatchTable
from ps2stream.inprocess.matching import match_numbered, number_batches
from ps2stream.inprocess.object_batches import list_batches
from ps2stream.inprocess.query_index import QueryIndex
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.query_rows import RectColumns
from ps2stream.protocol.frame import strings_to_column
from ps2stream.workers.indexes import INDEXES

OBJECTS = ROUNDS * BATCH


class _Turns:
    """The engine and the index of `match` with the same queries, over the same objects."""

    def __init__(self, load: Workload, analyzer: Analyzer, seed: int) -> None:
        posts = load.posts
        objects = analyzer.analyse(posts.text_off, posts.text)
        self._analyzer, self._posts = analyzer, posts
        variants = QueryVariants(load, NO_SHARES, analyzer, seed)
        self._engine = IndexEngine(variants, analyzer, objects, INDEXES["gi2-radix"])
        self._engine.fill()
        self.table = _build_table(load)
        ids = pa.array([f"q{i}" for i in range(load.start)])
        expressions = strings_to_column(load.expressions()[: load.start])
        regions = RectColumns(*(side.copy() for side in load.interests.rect[: load.start].T))
        sample = next(list_batches(self.table))
        self._index = QueryIndex(ids, expressions, regions, Analysis(salt=seed), sample)
        self._ids = QueryIds(ids)

    def run_engine(self) -> int:
        """Analyses and matches all objects; returns the number of matches."""
        off, text, index, found = self._posts.text_off, self._posts.text, self._engine.index, 0
        for first in range(0, OBJECTS, BATCH):
            part = slice(first, first + BATCH)
            terms = self._analyzer.analyse(off[first : first + BATCH + 1], text)
            lon, lat = self._posts.lon[part], self._posts.lat[part]
            found += len(index.match(self._engine.lsn, lon, lat, *terms).row)
        return found

    def run_match(self, source: Any) -> int:
        """Matches all objects of a source as `match` does; returns the number of matches."""
        found = [batch.drop_unmatched(False) for batch in self._match_batches(source)]
        return len(MatchTable(self._ids, found))

    def run_match_table(self, source: Any) -> int:
        """Matches all objects of a source as `match_batches` does, and makes the table of each
        batch; returns the number of matches."""
        batches = self._match_batches(source)
        return sum(len(MatchTable(self._ids, [batch]).table) for batch in batches)

    def _match_batches(self, source: Any) -> Iterator[MatchedBatch]:
        return match_numbered(self._index, number_batches(list_batches(source)), 1, True)


def run_from_text(
    queries: int = 1_000_000,
    group: str = "q1",
    mo: float | None = None,
    workload: str = "synthetic",
    runs: int = 5,
    seed: int = 1,
) -> dict[str, Any]:
    """Returns objects per processor second of the engine and of `match` from each source, and the
    ratios of the medians, JSON-able. mo: matches per object to tune to. One run of each comes
    first, unmeasured. `differing` is the number of matches that a source has more or fewer."""
    analyzer = Analyzer(Analysis(salt=seed))
    load = make(workload, group, queries, 0, OBJECTS, seed, analyzer)
    if mo is not None:
        objects = analyzer.analyse(load.posts.text_off, load.posts.text)
        load, _ = tune_workload(load, mo, analyzer, objects)
    turns = _Turns(load, analyzer, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "posts.parquet")
        pq.write_table(turns.table, path)
        sources = {"arrow": turns.table, "parquet": path, "pandas": turns.table.to_pandas()}
        ways: dict[str, Callable[[], int]] = {"engine": turns.run_engine}
        for name, source in sources.items():
            ways[name] = partial(turns.run_match, source)
            ways[f"{name}_table"] = partial(turns.run_match_table, source)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        matches: dict[str, int] = {}
        for turn in range(runs + 1):
            for name, (rate, found) in _run_turn(ways):
                matches[name] = found
                rates[name] += [rate] * (turn > 0)
    base = float(np.median(rates["engine"]))
    return {
        "settings": {
            "queries": queries, "group": group, "workload": workload, "mo": mo, "runs": runs,
            "seed": seed, "objects_per_run": OBJECTS,
        },
        "matches_per_object": matches["engine"] / OBJECTS,
        "objects_per_cpu_second": {n: summarise_values(found) for n, found in rates.items()},
        "over_engine": {
            name: float(np.median(values)) / base
            for name, values in rates.items()
            if name != "engine"
        },
        "differing": sum(abs(count - matches["engine"]) for count in matches.values()),
    }  # fmt: skip


def _run_turn(ways: dict[str, Callable[[], int]]) -> Iterator[tuple[str, tuple[float, int]]]:
    for name, run in ways.items():
        begun = time.process_time()
        found = run()
        yield name, (OBJECTS / (time.process_time() - begun), found)


def _build_table(load: Workload) -> pa.Table:
    posts = load.posts
    offsets = pa.py_buffer(posts.text_off[: OBJECTS + 1].astype(np.int32).tobytes())
    text = pa.StringArray.from_buffers(OBJECTS, offsets, pa.py_buffer(posts.text.tobytes()))
    return pa.table({"lon": posts.lon[:OBJECTS], "lat": posts.lat[:OBJECTS], "text": text})
