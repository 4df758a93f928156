"""Records of the ledger that change the plan: what they make of it, and of the routes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analyzer
from ps2stream.routing.plan import Moved, RoutingPlan, Space
from ps2stream.routing.plan_changes import (
    PlanFollower,
    PlanState,
    PlanStep,
    changed_box,
    step_of,
    step_record,
)
from ps2stream.space.grid import Grid
from tests.sim.hostile import ANALYSIS, some_plan

GRID = Grid(3, 2)


CELLS = np.arange(32, dtype=np.uint32) % 8 // 4


def plan(
    workers: int = 2, version: int = 1, frequencies: Mapping[str, int] | None = None
) -> RoutingPlan:
    leaves = Space(0), Space(workers - 1)
    many = frequencies or {}
    return RoutingPlan(workers, ANALYSIS, GRID, leaves, CELLS, many, version, version - 1)


def test_the_steps_of_a_move() -> None:
    old, new = plan(2), plan(3, 2)
    begun = PlanState(old).after(PlanState(old).begin(new), 7)
    assert (begun.plan.version, begun.following.version, begun.begun) == (1, 2, 7)  # type: ignore[union-attr]
    assert (begun.serving.version, begun.workers) == (1, 3)
    switched = begun.after(step_record(PlanStep.SWITCH), 9)
    assert (switched.serving.version, switched.switched) == (2, 9)
    done = switched.after(step_record(PlanStep.FINISH), 12)
    assert (done.plan.version, done.following, done.workers) == (2, None, 3)
    assert begun.after(step_record(PlanStep.ABORT), 8) == PlanState(begun.plan)
    for strategy in (begun, switched, done):
        again = PlanState(plan(1)).after(strategy.record(), 20)
        assert again.serving.route == strategy.serving.route
        assert (again.begun, again.switched) == (strategy.begun, strategy.switched)


@pytest.mark.parametrize("step", [PlanStep.SWITCH, PlanStep.FINISH, PlanStep.ABORT])
def test_a_step_that_does_not_follow_is_refused(step: PlanStep) -> None:
    assert step_of(step_record(step)) == step
    with pytest.raises(PlanError, match="cannot follow now"):
        PlanState(plan()).after(step_record(step), 3)


def test_what_cannot_be_taken_back_is_not() -> None:
    begun = PlanState(plan()).after(PlanState(plan()).begin(plan(3, 2)), 1)
    with pytest.raises(PlanError, match="cannot follow now"):
        begun.after(step_record(PlanStep.FINISH), 2)
    with pytest.raises(PlanError, match="cannot follow now"):
        begun.after(begun.begin(plan(1, 2)), 2)
    with pytest.raises(PlanError, match="cannot follow now"):
        begun.after(step_record(PlanStep.SWITCH), 2).after(step_record(PlanStep.ABORT), 3)
    with pytest.raises(PlanError, match="cannot be read"):
        begun.after(np.frombuffer(b"nonsense", np.uint8), 2)


def test_frequencies_travel_only_where_they_changed() -> None:
    base = plan(frequencies={f"t{i}": i for i in range(1000)})
    same = PlanState(base).begin(plan(3, 2, frequencies=dict(base.frequencies)))
    other = PlanState(base).begin(plan(3, 2, frequencies={"t": 1}))
    assert len(same) < 1000 < len(PlanState(base).record())
    assert PlanState(base).after(same, 1).following.frequencies == base.frequencies  # type: ignore[union-attr]
    assert PlanState(base).after(other, 1).following.frequencies == {"t": 1}  # type: ignore[union-attr]


def test_the_routes_of_a_move() -> None:
    old, new = plan(2), plan(3, 2)
    strategist = PlanFollower(old, Analyzer(ANALYSIS))
    first = strategist.routes()
    assert (first.route, first.other, first.workers) == (old.route, None, 2)
    begun = strategist.take(PlanState(old).begin(new), 4)
    assert begun.serving is first.serving
    assert (begun.route, begun.coming, begun.workers) == (old.route, new.route, 3)
    assert (begun.upto, begun.switched) == (4, False)
    switched = strategist.take(step_record(PlanStep.SWITCH), 5)
    assert switched.serving is begun.other
    assert (switched.route, switched.other, switched.switched) == (new.route, first.serving, True)
    assert switched.known > {old.route, new.route}
    done = strategist.take(step_record(PlanStep.FINISH), 6)
    assert done.other is None
    assert done.known == {new.route}


def test_the_routes_of_two_plans_that_coexist() -> None:
    old, new = plan(2), plan(3, 2)
    strategist = PlanFollower(old, Analyzer(ANALYSIS))
    first = strategist.routes()
    apart = strategist.take(PlanState(old).begin(new, apart=True), 4)
    assert apart.serving is first.serving
    assert apart.young is not None
    assert (apart.other, apart.apart, apart.workers, apart.upto) == (None, 4, 3, 4)
    assert apart.route not in (old.route, new.route)
    assert apart.known == {old.route, apart.route}
    # After a restart under the old plan alone it has another meaning from that LSN on.
    assert [apart.serves(old.route, lsn) for lsn in (3, 4, 5)] == [True, False, False]
    assert apart.serves(apart.route, 5)
    united = strategist.take(step_record(PlanStep.UNITE), 9)
    assert united.other is united.young is apart.young
    assert (united.route, united.upto, united.begun) == (apart.route, 4, 9)
    again = PlanState(plan()).after(strategist.strategy.record(), 10)
    assert again.steps == strategist.strategy.steps == {PlanStep.SWITCH}
    switched = strategist.take(step_record(PlanStep.SWITCH), 11)
    assert (switched.serving, switched.young, switched.route) == (apart.young, None, new.route)
    assert strategist.take(step_record(PlanStep.FINISH), 12).other is None


@pytest.mark.parametrize("seed", range(40))
def test_all_that_a_worker_gains_lies_in_the_box(seed: int) -> None:
    rng = random.Random(seed)
    grid = Grid(rng.choice([0, 3, 4]), rng.choice([0, 3, 4]), max_cells=rng.choice([1, 4]))
    old = some_plan(rng, grid)
    new = some_plan(rng, grid)
    if rng.random() < 0.7:  # a few cells alone
        cells = old.cells.copy()
        cells[rng.randrange(len(cells))] = rng.randrange(len(old.leaves))
        new = dataclasses.replace(old, cells=cells)
    analyzer = Analyzer(ANALYSIS)
    one, other = old.compile(analyzer), new.compile(analyzer)
    term = np.random.default_rng(seed).integers(1, 1 << 62, 50).astype(np.uint64)
    term[:3] = analyzer.hash_terms(["flood", "river", "fire"])
    columns = grid.columns()
    for worker in range(new.workers):
        box = changed_box(old, new, worker)
        for cell in range(columns * grid.rows()):
            tag = np.full(len(term), cell, np.uint32)
            gained = (other.owners(tag, term) == worker) & (one.owners(tag, term) != worker)
            if gained.any():
                assert box is not None
                west, south, width, height = grid.bounds(cell)
                assert box[0] <= west
                assert box[1] <= south
                assert box[2] >= west + width
                assert box[3] >= south + height


def test_another_number_of_workers_changes_coarse_levels_everywhere() -> None:
    old = plan(2)
    more = dataclasses.replace(old, workers=3, version=2, base_version=1)
    strategist = PlanFollower(old, Analyzer(ANALYSIS))
    assert strategist.gained(0) is None
    strategist.take(PlanState(old).begin(more), 4)
    for worker in range(3):
        box = strategist.gained(worker)
        assert box is not None
        assert box.tolist() == [-180.0, -90.0, 180.0, 90.0]


def test_leaves_that_say_the_same_of_other_numbers_are_alike() -> None:
    old = plan(2)
    cells = np.where(old.cells == 0, 1, 0).astype(np.uint32)
    new = RoutingPlan(2, ANALYSIS, GRID, (Space(1), Space(0)), cells, version=2)
    assert changed_box(old, new, 0) is None
    cells[20] = 2
    leaves = (*new.leaves, Moved(0, {1: 0}))
    moved = RoutingPlan(2, ANALYSIS, GRID, leaves, cells, version=2)
    box = changed_box(old, moved, 0)
    assert box is not None
    assert box.tolist() == [0.0, 0.0, 45.0, 45.0]
    assert changed_box(old, moved, 1) is None
