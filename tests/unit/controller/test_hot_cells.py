"""Cells that are too hot to move: what dispatchers tell of them, and what becomes of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

from ps2stream.controller.machine import ControllerMachine
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.dispatcher import hot_cells
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.language.analyzer import TOP, Analyzer
from ps2stream.planner.adjust.cell_sample import statistics
from ps2stream.planner.adjust.decide import Rules
from ps2stream.protocol.frame import decode, strings_to_column
from ps2stream.protocol.messages.loads import LoadReport, SampleReport, SampleRequest
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.costs import Costs
from ps2stream.routing.leaves import Moved
from ps2stream.routing.tags import QueryTags
from ps2stream.space.grid import Grid
from tests.unit.controller.test_machine import PERIOD, World, halves

PLAN = halves()
GRID: Grid = PLAN.grid
ANALYZER = Analyzer(PLAN.analysis)
WORDS = [f"w{i}" for i in range(8)]
HOT = 0  # a cell of worker 0
COSTS = Costs(c1=1.0, c2=0.001, c3=0.0, c4=0.0)


def inside(cell: int) -> tuple[float, float]:
    west, south, width, height = GRID.bounds(cell)
    return west + width / 2, south + height / 2


def objects(texts: list[str], cells: list[int]) -> ObjectRows:
    text = strings_to_column(texts)
    lon, lat = (np.array(side) for side in zip(*map(inside, cells), strict=True))
    ids = strings_to_column([str(i) for i in range(len(texts))])
    return ObjectRows(*ids, np.arange(len(texts)), lon, lat, *text, *ANALYZER.analyse(*text))


class Dispatcher:
    """What one knows. posted: live queries by cell and word."""

    def __init__(self, index: int, posted: dict[tuple[int, str], int]) -> None:
        self.index = index
        h1 = PLAN.compile(ANALYZER)
        self.gridt = Gridt(h1, GRID)
        cell = np.array([c for (c, _), n in posted.items() for _ in range(n)], np.uint32)
        words = [w for (_, w), n in posted.items() for _ in range(n)]
        term = ANALYZER.hash_terms(words)
        off = np.arange(len(cell) + 1)
        self.gridt.insert(QueryTags(off, cell, term, h1.owners(cell, term)))
        self.reservoir = ObjectReservoir(5000, seed=index)

    def told(self, ask: SampleRequest, route: int | None = None) -> SampleReport:
        route = PLAN.route if route is None else route
        report = hot_cells.report(ask, self.index, route, self.reservoir, self.gridt)
        sent = decode(report.encode())
        assert isinstance(sent, SampleReport)
        return sent


def posted(number: int = 5) -> dict[tuple[int, str], int]:
    return {(HOT, word): number + i for i, word in enumerate(WORDS)}


def ask(*cells: int) -> SampleRequest:
    return SampleRequest(3, 1, np.array(cells, np.uint32))


def test_a_dispatcher_tells_of_the_cells_it_is_asked_for() -> None:
    dispatcher = Dispatcher(0, posted() | {(20, "w1"): 3})
    texts = [f"{WORDS[i % 8]} {WORDS[i % 3]} nobody{i}" for i in range(60)]
    dispatcher.reservoir.add(objects(texts, [(HOT, 20, 30)[i % 3] for i in range(60)]), 7)
    told = dispatcher.told(ask(HOT, 30))
    assert (told.dispatcher, told.epoch, told.number, told.route) == (0, 3, 1, PLAN.route)
    held = dispatcher.gridt.counts()
    expected = {
        (HOT, int(term)): held[HOT, int(term)][1]
        for i in range(0, 60, 3)
        for term in ANALYZER.hash_terms(texts[i].split())
        if (HOT, int(term)) in held
    }
    found = zip(told.cell.tolist(), told.term.tolist(), told.queries.tolist(), strict=True)
    units = [((cell, term), n) for cell, term, n in found]
    assert dict(units) == expected
    assert len(units) == len(expected)
    assert len(told.lon) == 40
    assert set(GRID.cells(told.lon, told.lat, 0).tolist()) == {HOT, 30}


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = Dispatcher(0, posted())
    for ms in range(200):
        dispatcher.reservoir.add(objects([f"w1 {ms} " + "x" * 100] * 20, [HOT] * 20), ms)
    told = dispatcher.told(ask(HOT))
    assert len(told.lon) == hot_cells.OBJECTS
    assert told.accepted.max() == 199  # the newest
    assert told.since == told.accepted.min()
    monkeypatch.setattr(hot_cells, "TEXT_BYTES", 5000)
    told = dispatcher.told(ask(HOT))
    assert 0 < len(told.text) <= 5000
    assert told.since == told.accepted.min() > 190
    monkeypatch.setattr(hot_cells, "TEXT_BYTES", 1)
    assert len(dispatcher.told(ask(HOT)).lon) == 0
    assert len(Dispatcher(0, posted()).told(ask(HOT)).cell) == 0  # one that has just begun


def test_what_several_tell_is_joined() -> None:
    """The same words, known by name: objects of both, queries of one."""
    both = [Dispatcher(i, posted() | {(20, "w1"): 2}) for i in range(2)]
    rng = np.random.default_rng(5)
    seen: Counter[tuple[int, str]] = Counter()
    for dispatcher in both:
        texts = [" ".join(rng.choice(WORDS, 2, replace=False)) for _ in range(100)]
        cells = [HOT if i % 2 else 20 for i in range(100)]
        seen.update((c, w) for c, t in zip(cells, texts, strict=True) for w in t.split())
        dispatcher.reservoir.add(objects(texts, cells), 5)
    found = statistics([d.told(ask(HOT, 20)) for d in both], GRID, ANALYZER)
    assert found is not None
    units = {
        (int(found.cell[c]), found.terms[t]): (o, q)
        for c, t, o, q in zip(found.unit_cell(), found.term, found.o, found.q, strict=True)
    }
    queries = posted() | {(20, "w1"): 2}
    assert units == {key: (seen[key], n) for key, n in queries.items()}
    assert found.objects.tolist() == [100.0, 100.0]


def test_the_time_that_all_cover_counts() -> None:
    quiet, busy = Dispatcher(0, posted()), Dispatcher(1, posted())
    quiet.reservoir.add(objects(["w0"] * 50, [HOT] * 50), 10)  # long ago
    quiet.reservoir.add(objects(["w1"] * 5, [HOT] * 5), 900)
    for ms in range(800, 1000):
        busy.reservoir.add(objects(["w2"] * 10, [HOT] * 10), ms)
    told = [d.told(ask(HOT)) for d in (quiet, busy)]
    found = statistics(told, GRID, ANALYZER)
    assert found is not None
    assert set(found.terms) == {"w1", "w2"}
    top = dataclasses.replace(told[1], since=2000)
    assert statistics([told[0], top], GRID, ANALYZER) is None


def test_queries_without_words_are_terms_like_others() -> None:
    dispatcher = Dispatcher(0, posted())
    none = np.zeros(1, np.uint32)
    dispatcher.gridt.insert(
        QueryTags(np.arange(2), none, np.array([TOP], np.uint64), none.astype(np.uint16))
    )
    dispatcher.reservoir.add(objects(["w1 w2"] * 9, [HOT] * 9), 5)
    found = statistics([dispatcher.told(ask(HOT))], GRID, ANALYZER)
    assert found is not None
    assert found.terms == ("", "w1", "w2")
    assert found.o.tolist() == [9.0] * 3


# --- the controller ---------------------------------------------------------------------


class Hot(World):
    """One part is nearly all the load; two dispatchers know its words."""

    def __init__(self, automatic: bool = True) -> None:
        super().__init__(automatic)
        policy = ControllerPolicy(Rules(COSTS, sigma=1.3), PERIOD, automatic)
        self.machine = ControllerMachine(PLAN, policy, epoch=3, dispatchers=2)
        self.dispatchers = [Dispatcher(i, posted()) for i in range(2)]
        for dispatcher in self.dispatchers:
            texts = [WORDS[i % 8] for i in range(80)]
            dispatcher.reservoir.add(objects(texts, [HOT] * 80), 5)

    def report(
        self, worker: int, parts: list[tuple[int, int, int, int]], number: int, periods: int = 1
    ) -> LoadReport:
        found = super().report(worker, parts, number, periods)
        return dataclasses.replace(found, objects=found.checks // 8, queries=found.queries + 60)

    def heat(self) -> None:
        self.samples.clear()
        self.period([(HOT, 0, 900_000, 4000), (1, 0, 9_000, 9), (16, 1, 10_000, 9)])

    def answer(self, index: int) -> None:
        """One dispatcher does."""
        [asked] = [frame for to, frame in self.samples if to == index]
        self.serve(self.machine.on(self.dispatchers[index].told(asked)))

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.serve(self.machine.tick())


def test_a_hot_cell_is_split_once_all_have_told_of_it() -> None:
    world = Hot()
    world.heat()
    assert [(to, frame.cell.tolist()) for to, frame in world.samples] == [(0, [HOT]), (1, [HOT])]
    world.answer(1)
    assert not world.begun
    world.answer(1)  # it may come twice
    assert not world.begun
    world.answer(0)
    [plan] = world.begun
    leaf = plan.leaves[int(plan.cells[HOT])]
    assert isinstance(leaf, Moved)
    assert 2 <= len(leaf.terms) <= 6
    assert set(leaf.terms.values()) == {1}
    world.finish()
    world.ticks(2 * PERIOD)
    assert world.machine.counters.splits == 1
    assert world.machine.strategy.plan.version == 2


def test_nobody_is_asked_where_all_can_move() -> None:
    world = Hot()
    world.period([(HOT, 0, 9_000, 40), (1, 0, 8_000, 9), (16, 1, 1_000, 9)])
    assert world.samples == []
    world = Hot()
    world.period([(HOT, 0, 9_000, 40), (16, 1, 8_900, 9)])  # balanced
    assert world.samples == []


@pytest.mark.parametrize("answers", [[], [0], [1]])
def test_who_has_died_is_not_waited_for(answers: list[int]) -> None:
    world = Hot()
    world.heat()
    for index in answers:
        world.answer(index)
    assert not world.begun
    world.ticks(10)
    split = [leaf for plan in world.begun for leaf in plan.leaves if isinstance(leaf, Moved)]
    assert len(split) == len(answers)
    # What comes now is too late, and nothing waits for it.
    version = world.machine.strategy.plan.version
    for index in {0, 1} - set(answers):
        world.answer(index)
    assert world.machine.strategy.plan.version == version


@pytest.mark.parametrize(
    "change", [{"epoch": 2}, {"number": 0}, {"route": 17}, {"dispatcher": 2}], ids=str
)
def test_foreign_answers_are_ignored(change: dict[str, Any]) -> None:
    """Of another controller's question, another period's, by another plan, of nobody."""
    world = Hot()
    world.heat()
    for (_, asked), dispatcher in zip(world.samples, world.dispatchers, strict=True):
        told = dataclasses.replace(dispatcher.told(asked), **change)
        world.serve(world.machine.on(told))
    world.ticks(10)
    assert not world.begun
    world.heat()
    assert len(world.samples) == 2  # it asks again


def test_an_answer_without_objects_divides_nothing() -> None:
    world = Hot()
    for dispatcher in world.dispatchers:
        dispatcher.reservoir = ObjectReservoir(0)
    world.heat()
    for index in (0, 1):
        world.answer(index)
    assert not world.begun


def test_an_operator_is_told_of_the_split_while_the_sample_is_new() -> None:
    world = Hot(automatic=False)
    world.heat()
    assert world.told("gr")[1]["adjustment"]["moves"] == []
    for index in (0, 1):
        world.answer(index)
    problem, told, plan = world.told("gr")
    assert (problem, world.begun) == ("", [])
    [move] = told["adjustment"]["moves"]
    assert (move["kind"], move["cell"], move["source"], move["target"]) == ("split", HOT, 0, 1)
    assert set(move["terms"]) < set(WORDS)
    assert plan is not None
    world.ticks(2 * PERIOD)
    assert world.told("gr")[1]["adjustment"]["moves"] == []


def test_what_some_have_told_is_no_sample_and_an_old_one_is_none() -> None:
    world = Hot(automatic=False)
    world.heat()
    world.answer(0)
    assert world.told("gr")[1]["adjustment"]["moves"] == []
    world.answer(1)
    assert len(world.told("gr")[1]["adjustment"]["moves"]) == 1
    world.heat()
    world.ticks(10)  # this time nobody answers
    assert world.told("gr")[1]["adjustment"]["moves"] == []


def test_nobody_is_asked_while_nothing_may_move() -> None:
    world = Hot()
    world.heat()
    for index in (0, 1):
        world.answer(index)
    assert len(world.begun) == 1
    for _ in range(2):
        world.heat()
        assert world.samples == []
    world.finish()
    world.heat()  # learns of the end in its course
    assert world.samples == []
    world.heat()
    assert len(world.samples) == 2


def test_what_was_asked_before_a_move_is_not_used_after_it() -> None:
    world = Hot()
    world.heat()
    asked = world.samples[1][1]
    for index in (0, 1):
        world.answer(index)
    world.finish()
    world.ticks(2 * PERIOD)
    version = world.machine.strategy.plan.version
    assert world.machine.on(world.dispatchers[1].told(asked)) == []
    assert world.machine.strategy.plan.version == version == 2
    assert world.told("gr")[1].get("adjustment", {"moves": []})["moves"] == []
