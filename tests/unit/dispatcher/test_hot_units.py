"""The counter of hot units: shares of places and words, with their words, from routed batches."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.hot_unit_kernels import EVERY
from ps2stream.dispatcher.hot_units import (
    FULL_ROWS,
    LOOKED_AT_PER_S,
    MOST_UNITS,
    PATIENCE_TICKS,
    HotUnitCounter,
    find_names,
)
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.reservoir import ObjectReservoir, ObjectSample
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.language.expression import hash_literals, watch_literals
from ps2stream.language.object_terms import find_terms
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.loads import NO_CELL, HotUnitsReport, HotUnitsRequest
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.plan import RoutingPlan, Space, Text
from ps2stream.space.grid import Grid
from tests.support.attributes import opaque_column
from tests.support.routing import Row, query_rows

ANALYZER = Analyzer(Analysis(salt=5))
GRID = Grid(3, 2)
FLOOD, RIVER, QUIET = (int(h) for h in ANALYZER.hash_terms(["flood", "river", "quiet"]))
LITERALS = [
    '"rising water"', "wat*", "net EXISTS", 'kind = "quake"', '(kind = "quake" AND net = "us")'
]  # fmt: skip
EAST = 2 * 8 + 4
"""The cell at (10, 10), of a text leaf; that at (-10, 10) before it is of a space leaf."""


def gridt() -> Gridt:
    cells = np.zeros(32, np.uint32)
    cells[4::8] = 1
    leaves = Space(0), Text((1, 2), {"flood": 1, "river": 2})
    plan = RoutingPlan(3, ANALYZER.analysis, GRID, leaves, cells)
    found = Gridt(plan.compile(ANALYZER), GRID)
    box = (-20.0, 5.0, 20.0, 15.0)
    rows = [Row((term,), (0,), (box,)) for term in sorted((FLOOD, RIVER, QUIET))]
    found.insert(found.expand(query_rows(rows)))
    return found


def posts(places: list[tuple[float, float]], texts: list[str]) -> ObjectRows:
    n = len(texts)
    term_off, term = ANALYZER.analyse(*strings_to_column(texts))
    ids = strings_to_column([""] * n)
    lon, lat = (np.array([p[i] for p in places]) for i in (0, 1))
    text = strings_to_column(texts)
    return ObjectRows(*ids, np.zeros(n, np.int64), lon, lat, *text, term_off, term)


def report_after(
    counter: HotUnitCounter,
    seconds: float,
    texts: ObjectSample,
    analyzer: Analyzer | None = ANALYZER,
    on: Gridt | None = None,
    under_way: float = 0.0,
) -> HotUnitsReport:
    """A report after some seconds, with a batch under way for the first part of them."""
    for tick in range(round(seconds * 10)):
        counter.tick(tick < under_way * seconds * 10)
    request, busy = HotUnitsRequest(1, 2, int(on is not None)), np.array([7, 0, 9])
    literals = LiteralTable()
    literals.add(watch_literals(ANALYZER, LITERALS))
    on = on or gridt()
    return counter.report(request, 0, 9, 3, lambda: texts, analyzer, on, busy, literals)


def publish(counter: HotUnitCounter, on: Gridt, rows: ObjectRows) -> None:
    shares, _ = on.route(rows.lon, rows.lat, rows.term_off, rows.term)
    counter.count(on, rows, shares)


def test_places_and_words_are_reported_with_their_shares() -> None:
    counter, on, reservoir = HotUnitCounter(), gridt(), ObjectReservoir(1_000)
    west, east, far = (-10.0, 10.0), (10.0, 10.0), (100.0, 50.0)
    rows = posts(
        [west] * 5 + [east] * 4 + [far],
        ["flood", "flood river", "river", "quiet", "no match"]
        + ["flood"] * 3
        + ["river flood", "flood"],
    )
    reservoir.add(rows, 1)
    for _ in range(30):
        publish(counter, on, rows)
    report = report_after(counter, 2.0, reservoir.held().joined())
    assert (report.objects, report.ms) == (300, 2_000)
    assert report.sent.tolist() == [120, 120, 30]
    words = report.term.tobytes().decode()
    off, shares = report.term_off.tolist(), report.share.round(3).tolist()
    names = [words[a:b] for a, b in pairwise(off)]
    columns = shares, report.cell.tolist(), names, report.owner.tolist()
    found = list(zip(*columns, strict=True))
    assert sorted(found, reverse=True) == [
        (0.4, NO_CELL, "flood", 1),
        (0.4, EAST, "", 0),
        (0.4, EAST - 1, "", 0),
        (0.1, NO_CELL, "river", 2),
    ]


def test_units_are_reported_with_their_postings_where_these_are_requested() -> None:
    """Each word is posted in two cells."""
    counter, on, reservoir = HotUnitCounter(), gridt(), ObjectReservoir(1_000)
    rows = posts([(-10.0, 10.0)] * 4 + [(10.0, 10.0)] * 4, ["flood", "flood", "river", "x"] * 2)
    reservoir.add(rows, 1)
    for weighed in (False, True):
        for _ in range(30):
            publish(counter, on, rows)
        counter.note_updates(40)
        held = reservoir.held().joined()
        report = report_after(counter, 2.0, held, on=on if weighed else None)
        assert (report.updates, report.stored) == (40, 6 * weighed)
        cells, words = report.cell.tolist(), report.term.tobytes().decode()
        names = [words[a:b] for a, b in pairwise(report.term_off.tolist())]
        found = dict(zip(zip(cells, names, strict=True), report.postings.tolist(), strict=True))
        want = {(EAST, ""): 3, (EAST - 1, ""): 3, (NO_CELL, "flood"): 2, (NO_CELL, "river"): 2}
        assert found == {unit: n * weighed for unit, n in want.items()}


def test_it_is_crowded_where_full_batches_are_always_under_way() -> None:
    nothing = ObjectReservoir(10).held().joined()
    counter, on = HotUnitCounter(), gridt()
    full = posts([(-10.0, 10.0)] * FULL_ROWS, ["flood"] * FULL_ROWS)
    small = posts([(-10.0, 10.0)] * 100, ["flood"] * 100)
    for batches, under_way, crowded in [
        ([full, full], 1.0, 1),
        ([full, full], 0.6, 0),
        ([small, full], 1.0, 0),
        ([], 1.0, 0),
        ([full], 0.8, 1),  # once none was under way
    ]:
        for rows in batches:
            publish(counter, on, rows)
        report = report_after(counter, 0.5, nothing, under_way=under_way)
        assert report.crowded == crowded
        assert report.busy.tolist() == [7, 0, 9]


def test_the_scatter_is_the_variance_of_what_batches_brought() -> None:
    """Of ten batches worker 0 got all of each third, and worker 1 some of each."""
    nothing = ObjectReservoir(10).held().joined()
    counter, on = HotUnitCounter(), gridt()
    west, east = (-10.0, 10.0), (10.0, 10.0)
    sent = []
    for i in range(10):
        n = 30 * (i % 3 == 0)
        publish(counter, on, posts([west] * n + [east] * (10 + i), ["flood"] * (n + 10 + i)))
        sent.append([n, 10 + i, 0])
    report = report_after(counter, 0.5, nothing)
    assert report.sent.tolist() == np.sum(sent, axis=0).tolist()
    assert report.scatter.tolist() == pytest.approx(10 * np.var(sent, axis=0, ddof=1))
    publish(counter, on, posts([west] * 5, ["flood"] * 5))
    assert report_after(counter, 0.5, nothing).scatter.tolist() == [25, 0, 0]
    assert report_after(counter, 0.5, nothing).scatter.tolist() == [0, 0, 0]


def test_a_jump_is_seen_after_some_hundred_objects() -> None:
    counter, on = HotUnitCounter(), gridt()
    calm = posts([(-10.0, 10.0)] * 100, ["flood"] * 100)
    for _ in range(100):
        publish(counter, on, calm)
    jump = posts([(10.0, 10.0)] * 100, ["flood"] * 100)
    for _ in range(10):
        publish(counter, on, jump)
    found = counter.find_shares()
    share = dict(zip(found.key.tolist(), found.share.tolist(), strict=True))
    assert share[EAST] > 0.6


def test_fast_streams_are_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object counts as sent, one in ten is looked at, many of a batch or all at once."""
    counter, on, none = HotUnitCounter(), gridt(), ObjectReservoir(0).held().joined()
    looked_at: list[int] = []
    list_met_units = Gridt.list_met_units

    def note(self: Gridt, *args: Any) -> Any:
        keys = list_met_units(self, *args)
        looked_at.append(int((keys == EVERY).sum()))
        return keys

    monkeypatch.setattr(Gridt, "list_met_units", note)
    rows = posts([(-10.0, 10.0)] * 1_000, ["flood"] * 1_000)
    for _ in range(10 * LOOKED_AT_PER_S // 1_000):
        publish(counter, on, rows)
    report_after(counter, 1.0, none)
    looked_at.clear()
    for n in (1, 2, 3, 1, 33, 60, 400):
        publish(counter, on, rows.take(np.arange(n)))
    assert looked_at == [50]
    for _ in range(30):
        publish(counter, on, rows.take(np.arange(1)))
    assert looked_at == [50, 1, 1, 1]
    report = report_after(counter, 1.0, none)
    assert (report.objects, report.sent.tolist()) == (530, [530, 0, 0])


def test_units_are_counted_while_reports_are_requested() -> None:
    counter, none = HotUnitCounter(), ObjectReservoir(0).held().joined()
    seen = [counter.active]
    report_after(counter, 0.5, none)
    for _ in range(PATIENCE_TICKS):
        seen.append(counter.active)
        counter.tick()
    assert [*seen, counter.active] == [False, *[True] * PATIENCE_TICKS, False]


def test_a_word_that_no_recent_text_has_is_left_out() -> None:
    counter, on, none = HotUnitCounter(), gridt(), ObjectReservoir(0).held().joined()
    publish(counter, on, posts([(10.0, 10.0)] * 10, ["flood"] * 10))
    report = report_after(counter, 0.5, none)
    assert report.cell.tolist() == [EAST]
    publish(counter, on, posts([(10.0, 10.0)] * 10, ["flood"] * 10))
    assert report_after(counter, 0.5, none, None).cell.tolist() == [EAST]


def test_words_are_found_by_part_of_their_hash() -> None:
    reservoir = ObjectReservoir(100)
    reservoir.add(posts([(0.0, 0.0)] * 3, ["a River, a quiet one", "flood", ""]), 1)
    hashes = np.array([RIVER, int(TOP), FLOOD, 12345 << 20], np.uint64)
    part = hashes & np.uint64(2**63 - 2**16)
    texts = reservoir.held().joined()
    none = LiteralTable()
    assert find_names(part, texts, ANALYZER, none) == ["river", "", "flood", None]
    assert find_names(part[:1], texts, None, none) == [None]


def test_watched_literals_are_named_like_words() -> None:
    """Or the unit of a phrase, a prefix, an equality or a pair could not be replicated."""
    on, reservoir = gridt(), ObjectReservoir(100)
    term = hash_literals(ANALYZER, LITERALS)
    box = (-20.0, 5.0, 20.0, 15.0)
    on.insert(on.expand(query_rows([Row((int(t),), (0,), (box,)) for t in sorted(term)])))
    texts = strings_to_column(["the rising water", "nothing"] * 20)
    opaque = opaque_column([{"net": "us", "kind": "quake"}, {}] * 20)
    found = find_terms(ANALYZER, texts, opaque, watch_literals(ANALYZER, LITERALS).view())
    rows = dataclasses.replace(
        posts([(10.0, 10.0)] * 40, ["the rising water", "nothing"] * 20),
        term_off=found[0], term=found[1], opaque_off=opaque[0], opaque=opaque[1],
    )  # fmt: skip
    counter = HotUnitCounter()
    publish(counter, on, rows)
    reservoir.add(rows, 1)
    report = report_after(counter, 0.5, reservoir.held().joined())
    words = report.term.tobytes().decode()
    names = {words[a:b] for a, b in pairwise(report.term_off.tolist())}
    assert names == {"", *LITERALS}


def test_a_report_has_a_bounded_number_of_units() -> None:
    cells = np.zeros(1 << 17, np.uint32)
    plan = RoutingPlan(1, ANALYZER.analysis, Grid(9, 8), (Space(0),), cells)
    on, counter = Gridt(plan.compile(ANALYZER), Grid(9, 8)), HotUnitCounter()
    lons = np.linspace(-179, 179, 400)
    rows = [Row((FLOOD,), (0,), ((x, 0.0, x, 0.0),)) for x in lons.tolist()]
    on.insert(on.expand(query_rows(rows)))
    for _ in range(3):
        publish(counter, on, posts([(x, 0.0) for x in lons.tolist()], ["flood"] * 400))
    assert len(counter.find_shares().share) == MOST_UNITS
