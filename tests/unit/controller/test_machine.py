"""The controller machine: periods, smoothing, and when it adjusts."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from ps2stream.controller.hot_units import RECENT, REPORT_TICKS
from ps2stream.controller.machine import ControllerMachine
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.planner.adjust.decide import Rules
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.loads import HotUnitsReport, HotUnitsRequest
from ps2stream.protocol.messages.plan import PlanChangeRequest
from ps2stream.routing.plan_changes import PlanState
from ps2stream.routing.replicas import ReplicatedUnit
from tests.support.controller_world import (
    COSTS,
    PERIOD,
    ROWS,
    ControllerWorld,
    Part,
    halves,
    swapped,
)


def test_loads_are_smoothed_over_periods() -> None:
    world = ControllerWorld()
    world.period([])  # the first report of a worker is of nobody knows how long
    assert "workers" in world.told()[1]
    naive = [0.0, 0.0]
    for checks in (100, 700, 0, 50):
        world.period([(0, 0, checks, 9), (16, 1, 2 * checks, 9)])
        naive = [old / 2 + new / 2 for old, new in zip(naive, (checks, 2 * checks), strict=True)]
        assert world.loads() == pytest.approx(naive)


def test_a_period_without_a_report_of_everyone_is_left_out() -> None:
    world = ControllerWorld()
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
    world = ControllerWorld()
    world.period(ROWS)
    before = world.loads()
    world.period()
    world.machine.on(world.report(0, ROWS, world.numbers[-1]))
    world.machine.on(world.report(1, ROWS, world.numbers[-1], periods=0))
    assert world.loads() == before


def test_a_repeated_report_counts_once() -> None:
    world = ControllerWorld()
    world.period(ROWS)
    world.period([(0, 0, 8, 9), (16, 1, 8, 9)])
    before = world.loads()
    world.machine.on(world.report(1, [(16, 1, 99, 9)], world.numbers[-1]))
    assert world.loads() == before


def test_one_at_a_time_and_a_whole_period_between() -> None:
    world = ControllerWorld(automatic=True)
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
    world = ControllerWorld(automatic=True)
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
    world = ControllerWorld(automatic=True)
    world.period(ROWS)
    before = world.loads()
    world.finish()
    world.period()
    after = world.loads()
    assert sum(after) == pytest.approx(sum(before))
    assert after == pytest.approx([600_000, 600_000])


def test_another_plan_makes_it_forget() -> None:
    world = ControllerWorld()
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
    world = ControllerWorld()
    assert "no complete load period" in world.told("gr")[0]
    assert "expected one of gr" in world.told("best")[0]
    world.period(ROWS)
    for algorithm in ("gr", "gr+", "dp", "si", "ra"):
        problem, told, plan = world.told(algorithm)
        assert problem == ""
        assert plan is not None
        found = told["adjustment"]
        assert found["bytes"] == sum(m["bytes"] for m in found["migrations"])
        assert found["balance_before"] == pytest.approx(11.0)
        assert found["balance_after"] < 11.0
        move = found["migrations"][0]
        assert (move["source"], move["target"]) == (0, 1)
        assert (move["west"], move["south"]) == (-180 + 45 * (move["cell"] % 8), -90.0)
    assert world.begun == []


def test_when_nothing_helps_there_is_no_plan() -> None:
    world = ControllerWorld()
    world.period([(0, 0, 9, 9), (16, 1, 9, 9)])
    problem, told, plan = world.told("gr")
    assert (problem, told["adjustment"]["migrations"], plan) == ("", [], None)


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
    world = ControllerWorld(automatic=True)
    world.problem = "plan: derived from version 1; the current one is 2"
    world.period(ROWS)
    assert world.machine.counters.declined == 1
    world.problem = ""
    world.period(ROWS)
    assert len(world.begun) == 1


def test_a_sunset_that_is_refused_is_asked_for_again_once_a_period() -> None:
    world = ControllerWorld()
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


def hot_report(
    world: ControllerWorld, request: HotUnitsRequest, share: float, crowded: int = 0
) -> HotUnitsReport:
    """Of 1,000 objects in half a second this share met cell 0 and worker 0, the rest worker 1."""
    sent = np.array([round(1000 * share), 1000 - round(1000 * share)], np.int64)
    return HotUnitsReport(
        0, request.epoch, request.number, world.strategy.serving.route, 1000, 500, 0, 0, sent,
        np.array([share]), np.array([0], np.uint32), np.zeros(2, np.int64), np.zeros(0, np.uint8),
        np.zeros(1, np.uint16), np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(2), crowded,
    )  # fmt: skip


def test_replicated_units_are_told_with_the_share_that_was_last_reported() -> None:
    unit = ReplicatedUnit(0, None, (0, 1))
    plan = dataclasses.replace(halves(), replicas=(unit,))
    policy = ControllerPolicy(Rules(COSTS, sigma=1.3), PERIOD, hot=True)
    world = ControllerWorld(plan=plan, policy=policy)
    assert world.told()[1]["replicated"][0]["workers"] == [0, 1]
    assert "share" not in world.told()[1]["replicated"][0]
    for _ in range(12):
        world.serve(world.machine.tick())
    assert len(world.watched) == 2
    assert world.machine.on(hot_report(world, world.watched[-1], 0.55)) == []
    told = world.told()[1]
    assert (told["replicated"][0]["share"], told["hot_balance"]) == (0.55, pytest.approx(1.1))
    assert world.machine.counters.replicated == 1


def test_no_adjustment_begins_while_publications_wait_but_not_for_a_worker() -> None:
    """What it costs would be taken from them; a requested one is made all the same."""
    world = ControllerWorld(automatic=True)
    for _ in range(10):
        world.serve(world.machine.tick())
    assert world.machine.on(hot_report(world, world.watched[-1], 0.5, crowded=1)) == []
    world.period(ROWS)
    world.period(ROWS)
    assert world.begun == []
    assert world.told("gr")[2] is not None
    for _ in range(RECENT):
        for _ in range(REPORT_TICKS):
            world.serve(world.machine.tick())
        world.machine.on(hot_report(world, world.watched[-1], 0.9))  # only adjustments are allowed
    assert world.begun == []
    world.period(ROWS)
    world.period(ROWS)
    assert len(world.begun) == 1
