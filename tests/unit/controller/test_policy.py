"""The settings of the controller: each of them decides what its description says."""

from __future__ import annotations

import pytest

from ps2stream.controller.policy import ControllerPolicy
from ps2stream.planner.adjust.decide import Rules
from ps2stream.planner.adjust.strategy import CoexistenceLimit
from ps2stream.routing.leaves import Space
from tests.support.controller_world import COSTS, PERIOD, ROWS, ControllerWorld, Part, swapped

DAY_MS = 24 * 3_600_000


def test_it_moves_by_itself_only_where_it_may() -> None:
    world = ControllerWorld()
    for _ in range(4):
        world.period(ROWS)
    assert world.begun == []
    world = ControllerWorld(automatic=True)
    world.period(ROWS)
    [plan] = world.begun
    assert (plan.version, plan.base_version) == (2, 1)
    assert world.machine.counters.adjustments == 1
    # (600000, 500000 | 100000): half the gap is 500000, which cell 1 is.
    assert plan.leaves[int(plan.cells[1])] == Space(1)
    assert plan.leaves[int(plan.cells[0])] == Space(0)


@pytest.mark.parametrize(("sigma", "begun"), [(1.19, 1), (1.21, 0)])
def test_nothing_moves_while_it_is_balanced(sigma: float, begun: int) -> None:
    rules = Rules(COSTS, sigma=sigma)
    world = ControllerWorld(policy=ControllerPolicy(rules, PERIOD, automatic=True))
    cells: list[Part] = [(cell, 0, 100_000, 5) for cell in range(12)]
    world.period([*cells, (16, 1, 1_000_000, 5)])
    assert len(world.begun) == begun
    assert world.machine.counters.sigma == sigma


@pytest.mark.parametrize(("busy_us", "begun"), [(59_999, 0), (60_001, 1)])
def test_nothing_moves_while_the_most_loaded_worker_is_idle(busy_us: int, begun: int) -> None:
    """The share of a period of 3 s is 0.02, which is 60 ms."""
    rows: list[Part] = [(0, 0, busy_us - 20_000, 5), (1, 0, 20_000, 5), (16, 1, 1_000, 5)]
    world = ControllerWorld(automatic=True)
    world.period(rows)
    assert world.loads() == [busy_us, 1_000]
    assert len(world.begun) == begun


@pytest.mark.parametrize("ticks", [10, 40])
def test_loads_are_requested_once_a_period(ticks: int) -> None:
    policy = ControllerPolicy(Rules(COSTS), ticks)
    world = ControllerWorld(policy=policy)
    for _ in range(200):
        world.serve(world.machine.tick())
    assert len(world.numbers) == 200 // ticks * 2
    assert sorted(set(world.numbers)) == [*range(1, 200 // ticks + 1)]
    assert world.machine.period_us == ticks * 100_000


@pytest.mark.parametrize(("old", "age_ms"), [(5, 0), (90, 7 * DAY_MS)])
def test_the_old_plan_goes_once_few_queries_or_much_time_are_its_own(old: int, age_ms: int) -> None:
    world = ControllerWorld(automatic=True)
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


@pytest.mark.parametrize(("limit", "united"), [(CoexistenceLimit(0.5), 1), (CoexistenceLimit(), 0)])
def test_the_share_at_which_the_old_plan_goes_is_a_setting(
    limit: CoexistenceLimit, united: int
) -> None:
    world = ControllerWorld(policy=ControllerPolicy(Rules(COSTS), PERIOD, sunset=limit))
    world.coexist(swapped())
    world.old = 50  # of 100
    for _ in range(3):
        world.period(ROWS)
    assert world.united == united
