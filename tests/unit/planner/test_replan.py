"""Two plans judged by the same sample: loads by hand, and the decision."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.planner.replan import divide_loads, judged
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan, Space, Text
from ps2stream.routing.replicas import ReplicatedUnit
from ps2stream.space.grid import Grid
from tests.support.statistics_of import tables

GRID = Grid(1, 0)
COSTS = Costs(c1=0.5, c2=10.0, c3=2.0, c4=1.0)
# Cell 0: 4 objects with both words, cell 1: 6 with a.
STATS = tables(
    GRID,
    {0: 4.0, 1: 6.0},
    [(0, "a", 4.0, 3.0, 1.0, 2.0), (0, "b", 4.0, 5.0, 0.0, 0.0), (1, "a", 6.0, 2.0, 0.0, 0.0)],
    [(0, ["a", "b"])] * 4 + [(1, ["a"])] * 6,
)


def plan(*leaves: Space | Text, cells: tuple[int, int] = (0, 0)) -> RoutingPlan:
    return RoutingPlan(2, Analysis(salt=0), GRID, leaves, np.array(cells, np.uint32))


BY_TEXT = plan(Text((0, 1), {"a": 0, "b": 1}))
BY_SPACE = plan(Space(0), Space(1), cells=(0, 1))
ALL_TO_ONE = plan(Space(0))


def test_loads_are_those_of_the_same_sample() -> None:
    found = judged(STATS, BY_TEXT, BY_SPACE, COSTS, sigma=1.3, unmet=False)
    a0, b0, a1 = 0.5 * 4 * 3 + 2 * 1 + 1 * 2, 0.5 * 4 * 5, 0.5 * 6 * 2
    assert found.now.tolist() == [a0 + a1 + 10 * (4 + 6), b0 + 10 * 4]
    assert found.planned.tolist() == [a0 + b0 + 10 * 4, a1 + 10 * 6]
    assert found.falls == pytest.approx(1 - found.planned.sum() / found.now.sum())
    assert found.reason == "load"
    told = found.to_dict()
    assert (told["now"], told["reason"]) == (found.now.tolist(), "load")
    assert told["balance_planned"] == pytest.approx(66 / 60)


def test_a_plan_that_only_balances_counts_where_moved_parts_would_not() -> None:
    for unmet, reason in ((False, None), (True, "balance")):
        found = judged(STATS, ALL_TO_ONE, BY_SPACE, COSTS, sigma=1.3, unmet=unmet)
        assert found.falls == 0.0
        assert found.reason == reason
        assert found.to_dict()["balance_now"] is None


def test_the_share_that_must_fall_is_given() -> None:
    found = judged(STATS, BY_TEXT, BY_SPACE, COSTS, sigma=1.3, unmet=False, fall=0.5)
    assert found.reason is None
    worse = judged(STATS, BY_SPACE, BY_TEXT, COSTS, sigma=1.3, unmet=False)
    assert worse.falls < 0
    assert worse.reason is None


def test_the_load_of_replicated_units_goes_to_those_with_least() -> None:
    """The word a is at both: its work fills up what b and the rest have."""
    word = dataclasses.replace(ALL_TO_ONE, replicas=(ReplicatedUnit(None, "a", (0, 1)),))
    found = judged(STATS, word, BY_SPACE, COSTS, sigma=1.3, unmet=False)
    a, b = 0.5 * 4 * 3 + 2 * 1 + 1 * 2 + 0.5 * 6 * 2 + 10 * (4 + 6), 0.5 * 4 * 5 + 10 * 4
    assert found.now.tolist() == pytest.approx([(a + b) / 2] * 2)
    cell = dataclasses.replace(ALL_TO_ONE, replicas=(ReplicatedUnit(1, None, (1, 0)),))
    now = judged(STATS, cell, BY_SPACE, COSTS, sigma=1.3, unmet=False).now
    rest, hot = 0.5 * 4 * 3 + 2 * 1 + 1 * 2 + 0.5 * 4 * 5 + 10 * 4, 0.5 * 6 * 2 + 10 * 6
    assert rest < hot
    assert now.tolist() == pytest.approx([(rest + hot) / 2] * 2)


def test_groups_are_filled_up_one_after_the_other() -> None:
    loads = np.array([5.0, 1.0, 2.0, 4.0, 9.0])
    found = divide_loads(loads, [(0, 1), (1, 2)])
    assert found.tolist() == pytest.approx([5.0, 8.0, 8.0])
    assert loads.tolist() == [5.0, 1.0, 2.0, 4.0, 9.0]
    assert divide_loads(loads, []).tolist() == loads.tolist()


def test_a_plan_on_another_grid_is_refused() -> None:
    other = dataclasses.replace(BY_TEXT, grid=Grid(2, 0), cells=np.zeros(4, np.uint32))
    with pytest.raises(PlanError, match="is not that of the sample"):
        judged(STATS, BY_SPACE, other, COSTS, sigma=1.3, unmet=False)
