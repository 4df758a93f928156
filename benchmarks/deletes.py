"""Many deletes at once, as a worker gets them: how long a call of its index takes, and whether what
was deleted goes.

A worker machine gets the updates, the watermarks and the ticks. Its index is timed in processor
time, call by call. Three runs: deleted queries of one place and one word, which are one list;
queries all over the world, whose deletes wait for a watermark that passes all of them at once; and
as many inserts as deletes with every tick.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final

import numpy as np

from ps2stream.benchmarks.query_tags import tags_of
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import F64, I64, U64
from ps2stream.protocol.messages.loads import LoadRequest
from ps2stream.protocol.messages.objects import MatchBatch, RoutedObjects, WatermarkNotice
from ps2stream.protocol.messages.updates import WorkerUpdates
from ps2stream.protocol.rows import (
    ExpressionForm,
    QueryRows,
    RegionShape,
    UpdateKind,
    no_queries,
)
from ps2stream.routing.plan import text_plan
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid
from ps2stream.workers.index import ALL_TERMS, Index, Parts
from ps2stream.workers.indexes import INDEXES, IndexName
from ps2stream.workers.machine import WorkerMachine

SHARE: Final = 2 / 3  # of the queries, that are deleted
WORDS = 200
GRID: Final = Grid(10, 9)
DELETES_A_TICK, TICKS = 10_000, 30
TICKS_A_SECOND = 10
OBJECTS = 64  # compared with brute force
_UPDATES = 1 << 12  # rows of a message
_FEW = 1_000
_PERIOD = 100  # ticks
_MOST_TICKS = 100_000  # in which everything is gone


class TimedIndex:
    """An index that notes the processor time of each call by its name, in milliseconds."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.taken: defaultdict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._index, name)
        if name == "census":
            return lambda *arguments: self._take_steps(call(*arguments))
        return lambda *arguments: self._time_call(name, call, *arguments)

    def _time_call(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        start = time.thread_time()
        found = call(*arguments)
        self.taken[name].append(1e3 * (time.thread_time() - start))
        return found

    def _take_steps(self, steps: Iterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._time_call("census", next, steps)
            except StopIteration:
                return


class DeletedQueries:
    """Queries of one word and a small rectangle, all at one place or all over the world.

    rect float64[n, 4]; word int64[n]: number of the word; handle int64[n]: the LSN of the insert;
    live bool[n].
    """

    def __init__(self, queries: int, everywhere: bool, seed: int) -> None:
        rng = np.random.default_rng([seed, 10])
        low = np.ones((queries, 2))
        self.word = np.zeros(queries, np.int64)
        if everywhere:
            low = rng.uniform((-180.0, -70.0), (179.0, 70.0), (queries, 2))
            self.word = rng.integers(0, WORDS, queries)
        # A little wider each, or alike ones would be stored once.
        side = np.full((queries, 2), 0.25) + 1e-9 * np.arange(queries)[:, None]
        self.rect: F64 = np.concatenate([low, low + side], 1)
        self.handle = np.zeros(queries, np.int64)
        self.live = np.zeros(queries, np.bool_)
        self.term: U64 = np.sort(rng.integers(1, 1 << 63, WORDS).astype(np.uint64))

    def build_inserts(self, first: int, last: int) -> QueryRows:
        """Returns the rows of the queries first..last - 1, which have their handles."""
        n, handle = last - first, self.handle[first:last]
        box, steps = self.rect[first:last].ravel(), np.arange(n + 1)
        return _fill_rows(UpdateKind.INSERT, handle, handle).replace(
            form=np.full(n, ExpressionForm.ALL, np.uint8),
            post=np.ones(n, np.uint64),
            term_off=steps,
            term=self.term[self.word[first:last]],
            box_off=4 * steps,
            box=box,
            geom_off=4 * steps,
            geom=box,
        )

    def list_live(self, word: int, lon: float, lat: float) -> I64:
        """Returns the handles of the queries that match an object with this word, by comparing all
        of them."""
        west, south, east, north = self.rect.T
        found = self.live & (self.word == word) & (west <= lon) & (lon <= east)
        return np.sort(self.handle[found & (south <= lat) & (lat <= north)])


def _fill_rows(kind: UpdateKind, lsn: I64, handle: I64) -> QueryRows:
    n = len(lsn)
    nothing = np.zeros(n + 1, np.int64)
    return no_queries().replace(
        kind=np.full(n, kind, np.uint8),
        lsn=lsn,
        handle=handle,
        session=handle,
        form=np.zeros(n, np.uint8),
        post=np.zeros(n, np.uint64),
        shape=np.full(n, RegionShape.RECT, np.uint8),
        id_off=nothing,
        term_off=nothing,
        prog_off=nothing,
        box_off=nothing,
        geom_off=nothing,
        source_off=nothing,
    )


class DeletesRun:
    """A worker that holds the first `held` of some queries, and what happens to it."""

    def __init__(self, queries: DeletedQueries, held: int, index: IndexName) -> None:
        self.queries = queries
        plan = text_plan(Analysis(salt=1), GRID, 1)
        tagger = QueryTagger(plan.compile(Analyzer(plan.analysis)), GRID)
        self.timed = TimedIndex(INDEXES[index](GRID))
        self.machine = WorkerMachine(0, 1, 1, tagger, 0, self._give_index)
        self._lsn = self._inserted = self.ticks = self.most_tombstones = 0
        self.insert(held)
        self.timed.taken.clear()

    def _give_index(self, _grid: Grid, _parts: Parts | None = None, /) -> Any:
        return self.timed

    def _take_lsns(self, number: int) -> I64:
        self._lsn += number
        return np.arange(self._lsn - number + 1, self._lsn + 1)

    def insert(self, number: int) -> None:
        """Inserts the next queries."""
        end = self._inserted + number
        for first in range(self._inserted, end, _UPDATES):
            last = min(first + _UPDATES, end)
            self.queries.handle[first:last] = lsn = self._take_lsns(last - first)
            self.queries.live[first:last] = True
            self._send(self.queries.build_inserts(first, last), lsn, False)
        self._inserted = end

    def delete(self, numbers: I64, ripe: bool) -> None:
        """Deletes the queries with these numbers in messages of many; `ripe`: each watermark
        passes the deletes of its own message."""
        self.queries.live[numbers] = False
        for first in range(0, len(numbers), _UPDATES):
            some = self.queries.handle[numbers[first : first + _UPDATES]]
            lsn = self._take_lsns(len(some))
            self._send(_fill_rows(UpdateKind.DELETE, lsn, some), lsn, ripe)

    def _send(self, rows: QueryRows, lsn: I64, ripe: bool) -> None:
        _, off, cell, term = tags_of(rows, GRID)
        packed = np.frombuffer(rows.encode(), np.uint8)
        span = int(lsn[0]), int(lsn[-1])
        watermark = span[1] if ripe else 0
        self.machine.on(WorkerUpdates(*span, 0, watermark, packed, off, cell, term))
        self._note_tombstones()

    def _note_tombstones(self) -> None:
        self.most_tombstones = max(self.most_tombstones, self.machine.stats().tombstones)

    def pass_watermark(self) -> None:
        """Has the watermark pass all deletes at once."""
        self.machine.on(WatermarkNotice(0, self._lsn))

    def tick(self) -> None:
        """Has a tenth of a second pass, and the load counted in each period of the controller."""
        if self.ticks % _PERIOD == 0:
            self.machine.on(LoadRequest(1, self.ticks + 1, _PERIOD // 2))
        self.machine.tick()
        self.ticks += 1
        self._note_tombstones()

    def wait(self) -> int:
        """Waits until all that was deleted is gone, and then for a count of the load; returns the
        number of ticks before."""
        ticks = 0
        while self.machine.stats().tombstones and ticks < _MOST_TICKS:
            self.tick()
            ticks += 1
        for _ in range(_PERIOD):
            self.tick()
        return ticks

    def count_differences(self, seed: int) -> int:
        """Counts the objects at queries, live and deleted ones, whose matches differ from brute
        force."""
        rng, queries = np.random.default_rng(seed), self.queries
        at = rng.integers(0, self._inserted, OBJECTS)
        lon, lat = queries.rect[at, 0], queries.rect[at, 1]
        term = queries.term[queries.word[at]]
        row = np.arange(OBJECTS, dtype=np.uint32)
        objects = RoutedObjects(
            0, self.ticks, 0, 0, self._lsn, self._lsn, 0, 0, row, lon, lat,
            np.arange(OBJECTS + 1), term, ALL_TERMS,
        )  # fmt: skip
        [sent] = self.machine.on(objects)
        found = sent.frame
        assert isinstance(found, MatchBatch)
        wrong = 0
        for i in range(OBJECTS):
            want = queries.list_live(int(queries.word[at[i]]), float(lon[i]), float(lat[i]))
            wrong += not np.array_equal(np.sort(found.handle[found.row == i]), want)
        return wrong

    def report(self, wrong: int) -> dict[str, Any]:
        """Returns the longest call of each kind, and how much of the time sweeps took."""
        taken = self.timed.taken
        names = "delete", "purge", "sweep", "census"
        return {
            "longest_ms": {name: max(taken[name], default=0.0) for name in names},
            "median_ms": {name: median(taken[name] or [0.0]) for name in names},
            "calls": {name: len(taken[name]) for name in names},
            "sweeps_ms": sum(taken["sweep"]),
            "most_tombstones": self.most_tombstones,
            "tombstones": self.machine.stats().tombstones,
            "live": self.machine.stats().live,
            "verified": {"objects": 2 * OBJECTS, "different": wrong},
        }


def _run_place(deletes: int, index: IndexName, seed: int) -> dict[str, Any]:
    """Deletes queries of one word and one place, in one leaf of half as many more."""
    n = int(deletes / SHARE)
    run = DeletesRun(DeletedQueries(n, False, seed), n, index)
    run.delete(np.random.default_rng(seed).permutation(n)[:deletes], ripe=True)
    wrong = run.count_differences(seed)
    ticks = run.wait()
    return run.report(wrong + run.count_differences(seed + 1)) | {"ticks_until_gone": ticks}


def _run_ripe(deletes: int, index: IndexName, seed: int) -> dict[str, Any]:
    """Deletes queries all over the world, which become ripe at once."""
    n = int(deletes / SHARE)
    run = DeletesRun(DeletedQueries(n, True, seed), n, index)
    run.delete(np.random.default_rng(seed).permutation(n)[:deletes], ripe=False)
    run.pass_watermark()
    wrong = run.count_differences(seed)
    ticks = run.wait()
    return run.report(wrong + run.count_differences(seed + 1)) | {"ticks_until_gone": ticks}


def _run_stream(deletes: int, each: int, index: IndexName, seed: int) -> dict[str, Any]:
    """Deletes the oldest queries with every tick, and inserts as many."""
    held = max(int(deletes / SHARE), each)
    run = DeletesRun(DeletedQueries(held + each * TICKS, True, seed), held, index)
    for k in range(TICKS):
        run.insert(each)
        run.delete(np.arange(each * k, each * (k + 1)), ripe=True)
        run.tick()
    wrong = run.count_differences(seed)
    share = sum(run.timed.taken["sweep"]) * TICKS_A_SECOND / (1e3 * TICKS)
    left = run.machine.stats().tombstones
    ticks = run.wait()
    found = run.report(wrong + run.count_differences(seed + 1))
    return found | {
        "ticks_until_gone": ticks,
        "share_of_a_core": share,
        "tombstones_at_the_end": left,
    }


def run_deletes(
    deletes: int, index: IndexName, seed: int, each: int = DELETES_A_TICK
) -> dict[str, Any]:
    """Returns the figures of the three runs with every setting, JSON-able; milliseconds are of
    processor time. each: deletes a tick in the third run. A run with few deletes comes first, in
    which code is loaded."""
    _run_place(_FEW, index, seed)
    _run_ripe(_FEW, index, seed)
    return {
        "settings": {"deletes": deletes, "index": index, "seed": seed, "deletes_a_tick": each},
        "place": _run_place(deletes, index, seed),
        "ripe": _run_ripe(deletes, index, seed),
        "stream": _run_stream(deletes, each, index, seed),
    }
