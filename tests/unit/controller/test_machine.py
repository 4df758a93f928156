"""The controller machine: periods, smoothing, and when it adjusts."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest

from ps2stream.controller.machine import ControllerMachine
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.language.analyzer import Analysis
from ps2stream.planner.adjust.decide import Rules
from ps2stream.protocol.addresses import ROLES, Address, Send
from ps2stream.protocol.messages.loads import (
    AdjustReply,
    AdjustRequest,
    LoadReport,
    LoadRequest,
    SampleRequest,
)
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply, PlanChangeRequest
from ps2stream.routing.costs import Costs
from ps2stream.routing.leaves import Space
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState
from ps2stream.space.grid import Grid

GRID = Grid(3, 2)
PERIOD = 30  # ticks, 3 s
COSTS = Costs(c1=1.0, c2=0.0, c3=0.0, c4=0.0)
Part = tuple[int, int, int, int]  # cell, worker, checks, bytes
ROWS: list[Part] = [(0, 0, 600_000, 50), (1, 0, 500_000, 40), (16, 1, 100_000, 10)]


def halves(workers: int = 2) -> RoutingPlan:
    """Cells 0..15 to worker 0, 16..31 to worker 1."""
    cells = np.repeat(np.arange(2, dtype=np.uint32), 16)
    leaves = (Space(0), Space(1))
    return RoutingPlan(workers, Analysis(salt=1), GRID, leaves, cells, {})


class World:
    """A controller, and everyone else by hand. `strategy` is the sequencer's."""

    def __init__(self, automatic: bool = False, plan: RoutingPlan | None = None) -> None:
        self.strategy = PlanState(plan or halves())
        policy = ControllerPolicy(Rules(COSTS, sigma=1.3), PERIOD, automatic)
        self.machine = ControllerMachine(self.strategy.plan, policy, epoch=3)
        self.lsn = 5
        self.begun: list[RoutingPlan] = []
        self.asked = 0
        self.numbers: list[int] = []
        self.samples: list[tuple[int, SampleRequest]] = []
        self.problem = ""
        self.live, self.old, self.age_ms = 100, 100, 0
        self.united = 0

    def report(self, worker: int, parts: list[Part], number: int, periods: int = 1) -> LoadReport:
        mine = [part for part in parts if part[1] == worker]
        checks, none = [m[2] for m in mine], np.zeros(len(mine), np.int64)
        return LoadReport(
            worker, number, periods, self.strategy.serving.route,
            int(self.strategy.following is not None), np.array([m[0] for m in mine], np.uint32),
            np.ones(len(mine), np.int64), np.array(checks, np.int64), none, none,
            np.full(len(mine), 3), np.array([m[3] for m in mine], np.int64),
        )  # fmt: skip

    def serve(self, sends: list[Send]) -> None:
        """The sequencer answers; requests for loads are noted."""
        for to, frame in sends:
            if isinstance(frame, LoadRequest):
                self.numbers.append(frame.number)
                continue
            if isinstance(frame, SampleRequest):  # nobody answers; see test_hot_cells.py
                self.samples.append((to.index, frame))
                continue
            assert to == Address("sequencer", 0)
            assert isinstance(frame, PlanChangeRequest)
            assert (ROLES[frame.role], frame.index) == ("controller", 0)
            self.asked += 1
            if frame.ask == PlanAction.UNITE and not self.problem:
                self.united += 1
                self.strategy = dataclasses.replace(self.strategy, begun=self.lsn)
            if frame.ask == PlanAction.MOVE and not self.problem:
                body = json.loads(frame.plan.tobytes())
                self.move(RoutingPlan.from_dict(body, self.strategy.plan.analysis))
            raw = np.frombuffer(self.problem.encode(), np.uint8)
            record = self.strategy.record()
            told = json.dumps({"apart_for": self.age_ms} if self.age_ms else {}).encode()
            counts = self.lsn, 0, self.live, self.old
            state = np.frombuffer(told, np.uint8)
            reply = PlanChangeReply(frame.seq, *counts, raw, record, state)
            self.serve(self.machine.on(reply))

    def move(self, plan: RoutingPlan) -> None:
        self.begun.append(plan)
        self.strategy = dataclasses.replace(self.strategy, following=plan, begun=self.lsn)

    def coexist(self, plan: RoutingPlan) -> None:
        self.strategy = dataclasses.replace(self.strategy, following=plan, apart=self.lsn)

    def finish(self) -> None:
        assert self.strategy.following is not None
        self.strategy = PlanState(self.strategy.following)

    def period(self, parts: list[Part] | None = None, periods: int = 1) -> None:
        """The ticks of a period, then the reports of it."""
        for _ in range(PERIOD):
            self.serve(self.machine.tick())
        if parts is not None:
            for worker in range(self.strategy.plan.workers):
                report = self.report(worker, parts, self.numbers[-1], periods)
                self.serve(self.machine.on(report))

    def told(self, algorithm: str = "") -> tuple[str, dict[str, Any], RoutingPlan | None]:
        [send] = self.machine.on(AdjustRequest(4, 77, np.frombuffer(algorithm.encode(), np.uint8)))
        assert send.to == Address("dispatcher", 4)
        reply = send.frame
        assert isinstance(reply, AdjustReply)
        assert reply.seq == 77
        plan = None
        if len(reply.plan):
            body = json.loads(reply.plan.tobytes())
            plan = RoutingPlan.from_dict(body, self.strategy.plan.analysis)
        return reply.problem.tobytes().decode(), json.loads(reply.told.tobytes()), plan

    def loads(self) -> list[float]:
        return [w["load_us"] for w in self.told()[1]["workers"]]


def test_loads_are_smoothed_over_periods() -> None:
    world = World()
    world.period([])  # the first report of a worker is of nobody knows how long
    assert "workers" in world.told()[1]
    naive = [0.0, 0.0]
    for checks in (100, 700, 0, 50):
        world.period([(0, 0, checks, 9), (16, 1, 2 * checks, 9)])
        naive = [old / 2 + new / 2 for old, new in zip(naive, (checks, 2 * checks), strict=True)]
        assert world.loads() == pytest.approx(naive)


def test_a_period_without_a_report_of_everyone_is_left_out() -> None:
    world = World()
    world.period(ROWS)
    before = world.loads()
    world.period()
    world.machine.on(world.report(0, [(0, 0, 9, 9)], world.numbers[-1]))
    assert world.loads() == before
    world.period()
    late = world.report(1, [(16, 1, 9, 9)], world.numbers[-1] - 1)
    world.machine.on(world.report(0, [(0, 0, 9, 9)], world.numbers[-1]))
    world.machine.on(late)
    assert world.loads() == before
    counters = world.machine.counters
    assert (counters.periods, counters.lost) == (1, 1)
    # What is of two periods counts as one of the mean.
    world.period([(0, 0, 2_000_000, 9), (16, 1, 40, 9)], periods=2)
    assert world.loads() == pytest.approx([(before[0] + 1e6) / 2, (before[1] + 20) / 2])


def test_a_worker_that_is_new_makes_the_period_incomplete() -> None:
    world = World()
    world.period(ROWS)
    before = world.loads()
    world.period()
    world.machine.on(world.report(0, ROWS, world.numbers[-1]))
    world.machine.on(world.report(1, ROWS, world.numbers[-1], periods=0))
    assert world.loads() == before


def test_a_repeated_report_counts_once() -> None:
    world = World()
    world.period(ROWS)
    world.period([(0, 0, 8, 9), (16, 1, 8, 9)])
    before = world.loads()
    world.machine.on(world.report(1, [(16, 1, 99, 9)], world.numbers[-1]))
    assert world.loads() == before


def test_it_moves_by_itself_only_where_it_may() -> None:
    world = World()
    for _ in range(4):
        world.period(ROWS)
    assert world.begun == []
    world = World(automatic=True)
    world.period(ROWS)
    [plan] = world.begun
    assert (plan.version, plan.base_version) == (2, 1)
    assert world.machine.counters.adjustments == 1
    # (600000, 500000 | 100000): half the gap is 500000, which cell 1 is.
    assert plan.leaves[int(plan.cells[1])] == Space(1)
    assert plan.leaves[int(plan.cells[0])] == Space(0)


def test_nothing_moves_while_it_is_balanced_or_idle() -> None:
    world = World(automatic=True)
    for _ in range(3):
        world.period([(0, 0, 600_000, 5), (1, 0, 600_000, 5), (16, 1, 1_000_000, 5)])
    world = World(automatic=True)
    for _ in range(3):
        world.period([(0, 0, 600, 5), (1, 0, 600, 5), (16, 1, 10, 5)])  # 1.2 of 3000 ms
    assert world.begun == []


def test_one_at_a_time_and_a_whole_period_between() -> None:
    world = World(automatic=True)
    world.period(ROWS)
    assert len(world.begun) == 1
    for _ in range(3):
        world.period(ROWS)  # it takes its time
    assert "is under way" in world.told("gr")[0]
    world.finish()
    hot: list[Part] = [(0, 0, 300_000, 50), (1, 1, 500_000, 40), (16, 1, 900_000, 10)]
    world.period(hot)  # learns of the end in its course, so part of it was before
    assert len(world.begun) == 1
    assert "no complete load period (3 s, load_period_s)" in world.told("gr")[0]
    world.period(hot)
    assert len(world.begun) == 2
    assert world.begun[1].base_version == 2


def test_a_move_that_was_given_up_ends_as_any_other() -> None:
    """And what is measured amid a move, at both owners, does not count."""
    world = World(automatic=True)
    world.period(ROWS)
    before, counted = world.loads(), world.machine.counters.periods
    world.period([(0, 0, 9, 50), (16, 1, 9, 10)])
    assert (world.loads(), world.machine.counters.periods) == (before, counted)
    world.strategy = PlanState(world.strategy.plan)
    world.period(ROWS)  # learns of it in its course
    assert len(world.begun) == 1
    assert "no complete load period" in world.told("gr")[0]
    world.period(ROWS)
    assert len(world.begun) == 2


def test_what_is_known_of_a_part_goes_with_it() -> None:
    world = World(automatic=True)
    world.period(ROWS)
    before = world.loads()
    world.finish()
    world.period()
    after = world.loads()
    assert sum(after) == pytest.approx(sum(before))
    assert after == pytest.approx([600_000, 600_000])


def test_another_plan_makes_it_forget() -> None:
    world = World()
    world.period(ROWS)
    other = dataclasses.replace(halves(), cells=halves().cells[::-1].copy(), version=9)
    world.strategy = PlanState(other)
    world.period(ROWS)  # the reports say that there is another plan
    assert world.machine.strategy.plan.version == 9
    assert "workers" not in world.told()[1]
    world.period(ROWS)
    world.period(ROWS)
    assert world.told("gr")[0] == ""


def test_a_proposal_begins_nothing_and_says_what_it_would_bring() -> None:
    world = World()
    assert "no complete load period" in world.told("gr")[0]
    assert "expected one of gr" in world.told("best")[0]
    world.period(ROWS)
    for algorithm in ("gr", "gr+", "dp", "si", "ra"):
        problem, told, plan = world.told(algorithm)
        assert problem == ""
        assert plan is not None
        found = told["adjustment"]
        assert found["bytes"] == sum(m["bytes"] for m in found["moves"])
        assert found["balance_before"] == pytest.approx(11.0)
        assert found["balance_after"] < 11.0
        move = found["moves"][0]
        assert (move["source"], move["target"]) == (0, 1)
        assert (move["west"], move["south"]) == (-180 + 45 * (move["cell"] % 8), -90.0)
    assert world.begun == []


def test_when_nothing_helps_there_is_no_plan() -> None:
    world = World()
    world.period([(0, 0, 9, 9), (16, 1, 9, 9)])
    problem, told, plan = world.told("gr")
    assert (problem, told["adjustment"]["moves"], plan) == ("", [], None)


def test_what_got_lost_is_asked_again() -> None:
    machine = ControllerMachine(halves(), ControllerPolicy(), epoch=1)
    sends = [machine.tick() for _ in range(50)]
    asked = [s.frame for s in itertools.chain.from_iterable(sends)]
    assert len(asked) == 3
    assert all(isinstance(f, PlanChangeRequest) and f.ask for f in asked)
    assert len({f.seq for f in asked if isinstance(f, PlanChangeRequest)}) == 1
    [again] = machine.joined(Address("sequencer", 0))
    assert again.frame is asked[0]
    assert machine.joined(Address("worker", 0)) == []


def test_a_refused_plan_is_made_anew_from_what_is_known_then() -> None:
    world = World(automatic=True)
    world.problem = "plan: derived from version 1; the current one is 2"
    world.period(ROWS)
    assert world.machine.counters.declined == 1
    world.problem = ""
    world.period(ROWS)
    assert len(world.begun) == 1


def swapped() -> RoutingPlan:
    return dataclasses.replace(halves(), leaves=(Space(1), Space(0)), version=2, base_version=1)


@pytest.mark.parametrize(("old", "age_ms"), [(5, 0), (90, 7 * 24 * 3_600_000)])
def test_the_old_plan_goes_once_few_queries_or_much_time_are_its_own(old: int, age_ms: int) -> None:
    world = World(automatic=True)
    world.period(ROWS[:1])
    world.coexist(swapped())
    world.old, world.age_ms = 6, max(age_ms - 1, 0)
    for _ in range(3):
        world.period(ROWS)
    assert world.united == world.machine.counters.sunsets == 0
    assert world.begun == []  # no third plan
    assert world.machine.counters.periods > 2  # loads are told of all the while
    assert "waits while both plans coexist" in world.told("gr")[0]
    world.old, world.age_ms = old, age_ms
    world.period(ROWS)
    world.period(ROWS)
    assert world.united == world.machine.counters.sunsets == 1
    world.finish()
    world.period()
    assert world.machine.strategy.plan.version == 2


def test_a_sunset_that_is_refused_is_asked_for_again_once_a_period() -> None:
    world = World()
    world.coexist(swapped())
    world.old, world.problem = 0, "the disk is full"
    world.period(ROWS)
    world.period(ROWS)
    asked = world.asked
    world.period(ROWS)
    assert world.asked <= asked + 2
    world.problem = ""
    world.period(ROWS)
    assert world.united == 1
    assert world.machine.counters.declined == 0
