"""Samples of hot cells: what dispatchers report of them, and what becomes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ps2stream.controller.hot_cells import FRESH, HotCells
from ps2stream.controller.machine import ControllerMachine
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.dispatcher import hot_cells
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.language.expression import watch_literals
from ps2stream.language.pairs import is_pair, split_pair
from ps2stream.language.predicates import predicate_of
from ps2stream.language.values import decode_value
from ps2stream.planner.adjust.decide import Rules
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.loads import LoadReport, SampleReport, SampleRequest
from ps2stream.routing.costs import Costs
from ps2stream.routing.leaves import Moved
from tests.support.attributes import opaque_column
from tests.support.controller_world import PERIOD, ControllerWorld
from tests.support.sampled_dispatchers import (
    ANALYZER,
    GRID,
    HOT,
    PLAN,
    WORDS,
    SampledDispatcher,
    ask,
    objects,
    posted,
)

COSTS = Costs(c1=1.0, c2=0.001, c3=0.0, c4=0.0)
EPOCH, NUMBER, TICK, ROUTE, WAIT = 3, 6, 100, 4, 10


def asked_cells() -> tuple[HotCells, list[SampleReport]]:
    """The requests of a controller that has just asked two dispatchers, and their answers."""
    hot = HotCells(EPOCH, 2, WAIT)
    sends = hot.ask(np.array([HOT], np.uint32), NUMBER, TICK, ROUTE)
    assert [send.to for send in sends] == [Address("dispatcher", i) for i in range(2)]
    reports = []
    for send in sends:
        assert isinstance(send.frame, SampleRequest)
        assert (send.frame.epoch, send.frame.number) == (EPOCH, NUMBER)
        dispatcher = SampledDispatcher(send.to.index, posted())
        dispatcher.reservoir.add(objects(WORDS, [HOT] * len(WORDS)), 5)
        reports.append(dispatcher.told(send.frame, ROUTE))
    return hot, reports


def sampled_terms(hot: HotCells, number: int = NUMBER, route: int = ROUTE) -> list[str] | None:
    found = hot.statistics(number, route, GRID, PLAN.analysis)
    return None if found is None else list(found.terms)


def test_the_last_report_completes_the_sample() -> None:
    hot, (first, second) = asked_cells()
    assert not hot.take(first)
    assert not hot.take(first)
    assert sampled_terms(hot) is None
    assert hot.take(second)
    assert not hot.take(second)  # nothing waits for it any more
    assert sampled_terms(hot) == WORDS


def test_waiting_ends_with_what_has_come() -> None:
    hot, (first, second) = asked_cells()
    assert not hot.take(first)
    assert not hot.late(TICK + WAIT - 1)
    assert hot.late(TICK + WAIT)
    assert not hot.late(TICK + WAIT + 1)  # once only
    assert not hot.take(second)
    assert sampled_terms(hot) == WORDS


def test_a_sample_serves_for_a_period_and_under_its_plan() -> None:
    hot, reports = asked_cells()
    for report in reports:
        hot.take(report)
    assert sampled_terms(hot, NUMBER + FRESH + 1) is None
    assert sampled_terms(hot, route=ROUTE + 1) is None
    assert sampled_terms(hot, NUMBER + FRESH) == WORDS
    hot.ask(np.array([HOT], np.uint32), NUMBER + 1, TICK + 30, ROUTE)
    assert hot.late(TICK + 30 + WAIT)
    assert sampled_terms(hot, NUMBER + 1) is None  # the old sample is gone


# --- dispatchers ------------------------------------------------------------------------


def test_a_dispatcher_tells_of_the_cells_it_is_asked_for() -> None:
    dispatcher = SampledDispatcher(0, posted() | {(20, "w1"): 3})
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
    dispatcher = SampledDispatcher(0, posted())
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
    assert len(SampledDispatcher(0, posted()).told(ask(HOT)).cell) == 0  # one that has just begun


# --- the controller ---------------------------------------------------------------------


class HotWorld(ControllerWorld):
    """One part is nearly all the load; two dispatchers know its units, and objects of which each
    meets one of them."""

    def __init__(self, automatic: bool = True, units: Sequence[str] = WORDS) -> None:
        super().__init__(automatic)
        policy = ControllerPolicy(Rules(COSTS, sigma=1.3), PERIOD, automatic)
        self.machine = ControllerMachine(PLAN, policy, epoch=3, dispatchers=2)
        queries = {(HOT, unit): 5 + i for i, unit in enumerate(units)}
        self.dispatchers = [SampledDispatcher(i, queries) for i in range(2)]
        held = watch_literals(ANALYZER, units).view()
        for dispatcher in self.dispatchers:
            texts, attributes = [], []
            for i in range(80):
                offers = split_pair(units[i % 8]) if is_pair(units[i % 8]) else ()
                found = [predicate_of(offer) for offer in offers]
                attributes.append({p.name: decode_value(p.value) for p in found if p.value})
                texts.append("" if offers else units[i % 8].strip('"*'))
            rows = objects(texts, [HOT] * 80, opaque_column(attributes), held)
            dispatcher.reservoir.add(rows, 5)

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
    world = HotWorld()
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


@pytest.mark.parametrize(
    "units",
    [
        [f'(kind = "k{i}" AND net = {i})' for i in range(8)],
        [f'"rising w{i}"' for i in range(8)],
        [f"w{i}x*" for i in range(8)],
    ],
    ids=["pairs", "phrases", "prefixes"],
)
def test_a_cell_without_words_is_split_by_what_its_queries_are_posted_under(
    units: list[str],
) -> None:
    world = HotWorld(units=units)
    world.heat()
    world.answer(0)
    world.answer(1)
    [plan] = world.begun
    leaf = plan.leaves[int(plan.cells[HOT])]
    assert isinstance(leaf, Moved)
    assert 2 <= len(leaf.terms) <= 6
    assert {*leaf.terms} < {*units}
    plan.compile(ANALYZER)


def test_nobody_is_asked_where_all_can_move() -> None:
    world = HotWorld()
    world.period([(HOT, 0, 9_000, 40), (1, 0, 8_000, 9), (16, 1, 1_000, 9)])
    assert world.samples == []
    world = HotWorld()
    world.period([(HOT, 0, 9_000, 40), (16, 1, 8_900, 9)])  # balanced
    assert world.samples == []


@pytest.mark.parametrize("answers", [[], [0], [1]])
def test_who_has_died_is_not_waited_for(answers: list[int]) -> None:
    world = HotWorld()
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
    world = HotWorld()
    world.heat()
    for (_, asked), dispatcher in zip(world.samples, world.dispatchers, strict=True):
        told = dataclasses.replace(dispatcher.told(asked), **change)
        world.serve(world.machine.on(told))
    world.ticks(10)
    assert not world.begun
    world.heat()
    assert len(world.samples) == 2  # it asks again


def test_an_answer_without_objects_divides_nothing() -> None:
    world = HotWorld()
    for dispatcher in world.dispatchers:
        dispatcher.reservoir = ObjectReservoir(0)
    world.heat()
    for index in (0, 1):
        world.answer(index)
    assert not world.begun


def test_an_operator_is_told_of_the_split_while_the_sample_is_new() -> None:
    world = HotWorld(automatic=False)
    world.heat()
    assert world.told("gr")[1]["adjustment"]["migrations"] == []
    for index in (0, 1):
        world.answer(index)
    problem, told, plan = world.told("gr")
    assert (problem, world.begun) == ("", [])
    [move] = told["adjustment"]["migrations"]
    assert (move["kind"], move["cell"], move["source"], move["target"]) == ("split", HOT, 0, 1)
    assert set(move["terms"]) < set(WORDS)
    assert plan is not None
    world.ticks(2 * PERIOD)
    assert world.told("gr")[1]["adjustment"]["migrations"] == []


def test_what_some_have_told_is_no_sample_and_an_old_one_is_none() -> None:
    world = HotWorld(automatic=False)
    world.heat()
    world.answer(0)
    assert world.told("gr")[1]["adjustment"]["migrations"] == []
    world.answer(1)
    assert len(world.told("gr")[1]["adjustment"]["migrations"]) == 1
    world.heat()
    world.ticks(10)  # this time nobody answers
    assert world.told("gr")[1]["adjustment"]["migrations"] == []


def test_nobody_is_asked_while_nothing_may_move() -> None:
    world = HotWorld()
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
    world = HotWorld()
    world.heat()
    asked = world.samples[1][1]
    for index in (0, 1):
        world.answer(index)
    world.finish()
    world.ticks(2 * PERIOD)
    version = world.machine.strategy.plan.version
    assert world.machine.on(world.dispatchers[1].told(asked)) == []
    assert world.machine.strategy.plan.version == version == 2
    assert world.told("gr")[1].get("adjustment", {"migrations": []})["migrations"] == []
