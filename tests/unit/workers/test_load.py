"""What workers count of their load, against counting one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.loads import LoadReport, LoadRequest
from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.protocol.messages.updates import WorkerUpdates
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.routing.plan import built_in_plan
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Rect
from ps2stream.workers import load
from ps2stream.workers.index import ALL_TERMS, MetPostings
from ps2stream.workers.machine import WorkerMachine

GRID = Grid(5, 4, max_cells=8)
ANALYSIS = Analysis(salt=3)
ANALYZER = Analyzer(ANALYSIS)
TAGGER = QueryTagger(built_in_plan(ANALYSIS, GRID, 1).compile(ANALYZER), GRID)
WORDS = [f"word{i}" for i in range(12)]


class Twin:
    """A worker that owns everything, and each of its counts made one by one."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.machine = WorkerMachine(0, 1, 1, TAGGER, 7)
        self.lsn = 0
        self.batch = 0
        self.counts: Counter[tuple[int, str]] = Counter()
        self.postings: Counter[tuple[int, int]] = Counter()  # (tag cell, term), never purged
        self.live: dict[int, QueryRows] = {}

    def insert(self, n: int) -> None:
        side = self.rng.choice([0.5, 4.0, 60.0], n)
        lon, lat = self.rng.uniform(-100, 100, n), self.rng.uniform(-60, 60, n)
        boxes = [
            Rect(a - s, max(b - s, -90), a + s, min(b + s, 90))
            for a, b, s in zip(lon, lat, side, strict=True)
        ]
        texts = [" OR ".join(self.rng.choice(WORDS, 2, replace=False)) for _ in range(n)]
        compiled = compile_column(*strings_to_column(texts), ANALYZER, Frequencies.of({}, ANALYZER))
        ids = strings_to_column([f"q{self.lsn + i}" for i in range(n)])
        rows = build_rows(ids, compiled, boxes)
        lsn = np.arange(self.lsn + 1, self.lsn + n + 1)
        rows = rows.replace(lsn=lsn, handle=lsn, session=lsn)
        self._apply(rows)
        for i in range(n):
            self.live[int(lsn[i])] = rows.take(np.array([i]))

    def delete(self, n: int) -> None:
        handles = self.rng.choice(list(self.live), n, replace=False).tolist()
        parts = [self.live.pop(handle) for handle in handles]
        lsn = np.arange(self.lsn + 1, self.lsn + n + 1)
        rows = QueryRows.concat(parts)
        self._apply(rows.replace(kind=np.full(n, UpdateKind.DELETE, np.uint8), lsn=lsn))

    def _apply(self, rows: QueryRows) -> None:
        tags = TAGGER.expand(rows)
        for row, kind in enumerate(rows.kind.tolist()):
            for at in range(tags.off[row], tags.off[row + 1]):
                cell = int(tags.cell[at])
                name = "inserts" if kind == UpdateKind.INSERT else "deletes"
                self.counts[_key(cell), name] += 1
                if kind == UpdateKind.INSERT:
                    self.postings[cell, int(tags.term[at])] += 1
        encoded = np.frombuffer(rows.encode(), np.uint8)
        head = (self.lsn + 1, self.lsn + len(rows), 0, 0)  # no watermark: nothing is purged
        self.machine.on(WorkerUpdates(*head, encoded, tags.off, tags.cell, tags.term))
        self.lsn += len(rows)

    def match(self, n: int) -> None:
        lon, lat = self.rng.uniform(-110, 110, n), self.rng.uniform(-65, 65, n)
        texts = [" ".join(self.rng.choice(WORDS, 4, replace=False)) for _ in range(n)]
        off, term = ANALYZER.analyse(*strings_to_column(texts))
        for i in range(n):
            terms = term[off[i] : off[i + 1]].tolist()
            for level in range(GRID.levels):
                cell = int(GRID.cells(lon[i : i + 1], lat[i : i + 1], level)[0])
                self.counts[_key(cell), "checks"] += sum(self.postings[cell, t] for t in terms)
                self.counts[_key(cell), "objects"] += level == 0
        row = np.arange(n, dtype=np.uint32)
        self.machine.on(
            RoutedObjects(
                0, self.batch, 0, 7, self.lsn, self.lsn, 0, 0, row, lon, lat, off, term, ALL_TERMS
            )
        )
        self.batch += n

    def report(self, epoch: int, number: int) -> LoadReport:
        [send] = self.machine.on(LoadRequest(epoch, number, 50))
        assert send.to == Address("controller", 0)
        assert isinstance(send.frame, LoadReport)
        return send.frame

    def expected(self) -> Counter[tuple[int, str]]:
        counts, self.counts = self.counts, Counter()
        return +counts


def _key(cell: int) -> int:
    """Coarser levels count as one each."""
    return cell if cell >> 28 == 0 else cell >> 28 << 28


def counted(report: LoadReport) -> Counter[tuple[int, str]]:
    names = ("objects", "checks", "inserts", "deletes")
    columns = {name: getattr(report, name).tolist() for name in names}
    rows = enumerate(report.cell.tolist())
    return +Counter({(c, name): columns[name][i] for i, c in rows for name in names})


def test_counts_are_those_of_counting_one_by_one() -> None:
    for seed in range(4):
        twin = Twin(seed)
        for number in range(1, 5):
            twin.insert(40)
            twin.match(300)
            twin.delete(10)
            twin.match(5)
            twin.match(2000)
            report = twin.report(1, number)
            expected = twin.expected()
            assert counted(report) == expected
            assert sum(n for (c, name), n in expected.items() if c >> 28 and name == "checks") > 0
            assert (np.diff(report.cell.astype(np.int64)) > 0).all()


def test_what_is_held_is_told_as_it_is_now() -> None:
    twin = Twin(9)
    twin.insert(50)
    twin.delete(20)
    report = twin.report(1, 1)
    held: Counter[int] = Counter()
    for rows in twin.live.values():
        held.update(map(_key, TAGGER.expand(rows).cell.tolist()))
    found = dict(zip(report.cell.tolist(), report.queries.tolist(), strict=True))
    assert +Counter(found) == held
    assert all(
        (size > 0) == (found[c] > 0) for c, size in zip(report.cell, report.bytes, strict=True)
    )


def test_a_report_says_how_many_periods_it_is_of() -> None:
    twin = Twin(1)
    twin.insert(5)
    assert twin.report(1, 4).periods == 0  # since when it counts the controller cannot know
    assert twin.report(1, 5).periods == 1
    twin.match(10)
    assert twin.machine.on(LoadRequest(1, 5, 50)) == []  # again, or late: what was counted stays
    assert twin.machine.on(LoadRequest(1, 3, 50)) == []
    later = twin.report(1, 8)
    assert (later.periods, int(later.objects.sum())) == (3, 10)
    assert twin.report(2, 1).periods == 0  # another controller
    assert twin.machine.on(LoadRequest(1, 9, 50)) == []


@pytest.mark.parametrize(
    ("size", "periodic", "off"), [(50, 0, 0.04), (3000, 0, 0.04), (3000, 7, 0.5)]
)
def test_of_a_busy_period_some_objects_stand_for_all(
    size: int, periodic: int, off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches and large ones, and a stream that repeats itself just so."""
    monkeypatch.setattr(load, "EXACT", 2_000)
    monkeypatch.setattr(load, "_TOGETHER", 500)
    rng = np.random.default_rng(1)
    counter = load.LoadCounter(0, GRID)
    places = 7
    number = np.arange(700_000)
    at = number % periodic if periodic else rng.integers(0, places, len(number))
    lon, lat = (-100.0 + 30 * at).astype(np.float64), np.full(len(at), 10.0)
    for first in range(0, len(at), size):
        some = slice(first, first + size)
        met = MetPostings(at[some] * 10, np.where(np.arange(16) == 3, size, 0))
        counter.objects(lon[some], lat[some], met)
    counts = counter.take()
    assert len(counts.cell) == places + 1  # from west to east, and a coarser level
    assert counts.by[-1, load.CHECKS] == pytest.approx(len(number), rel=off)
    row = np.arange(places)
    exact = np.bincount(at)
    assert counts.by[row, load.OBJECTS] == pytest.approx(exact, rel=off)
    assert counts.by[row, load.CHECKS] == pytest.approx(exact * 10 * np.arange(places), rel=off)
    if not periodic:
        assert (counts.by[row, load.OBJECTS] != exact).any()
    counter.objects(lon[:size], lat[:size], MetPostings(at[:size], np.zeros(16, np.int64)))
    again = counter.take()  # a new period begins one by one
    assert again.by[:, load.OBJECTS].sum() == size
