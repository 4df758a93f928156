"""The routes that follow from the records of plan changes."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from ps2stream.language.analyzer import Analyzer
from ps2stream.protocol.frame import U64
from ps2stream.routing.plan import Moved, RoutingPlan, Space, hash_units
from ps2stream.routing.plan_changes import PlanState, step_record
from ps2stream.routing.plan_follower import PlanFollower, changed_box
from ps2stream.routing.plan_states import PlanStep
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.grid import Grid
from tests.sim.hostile import ANALYSIS, some_plan
from tests.support.grids import with_lines

GRID = Grid(3, 2)


CELLS = np.arange(32, dtype=np.uint32) % 8 // 4


def plan(
    workers: int = 2, version: int = 1, frequencies: Mapping[str, int] | None = None
) -> RoutingPlan:
    leaves = Space(0), Space(workers - 1)
    many = frequencies or {}
    return RoutingPlan(workers, ANALYSIS, GRID, leaves, CELLS, many, version, version - 1)


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
    grid = with_lines(rng, grid) if seed % 2 else grid
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
                for lon in (
                    west,
                    max(np.nextafter(west, -200), -180.0),
                ):  # which may be rounded into the cell
                    if grid.cells(np.array([lon]), np.array([south]), 0)[0] == cell:
                        assert box[0] <= lon


def test_what_workers_gain_and_lose_is_found() -> None:
    """Compared with the holders of all units of some terms, by plans with replicas."""
    found = Counter[str]()
    analyzer = Analyzer(ANALYSIS)
    words = ["flood", "river", "fire", "the", ""]
    for seed in range(60):
        rng = random.Random(seed)
        grid = Grid(rng.choice([0, 3, 4]), rng.choice([0, 3, 4]), max_cells=rng.choice([1, 4]))
        old, other = some_plan(rng, grid), some_plan(rng, grid)
        if rng.random() < 0.7:  # the same leaves
            kept = [unit for unit in other.replicas if max(unit.workers) < old.workers]
            other = dataclasses.replace(old, replicas=tuple(kept))
        new = dataclasses.replace(other, version=old.version + 1, base_version=old.version)
        end = rng.choice([PlanStep.FINISH, PlanStep.ABORT])
        found += compare_with_holders(old, new, end, hash_units(analyzer, words))
    assert min(found[kind] for kind in ("gained", "lost", "nothing", "kept", "terms")) > 5


def compare_with_holders(
    old: RoutingPlan, new: RoutingPlan, end: PlanStep, term: U64
) -> Counter[str]:
    """Checks what each worker is said to gain by `new`, and to lose at the end of the change;
    returns how often it was what."""
    found, analyzer = Counter[str](), Analyzer(ANALYSIS)
    one, two = old.compile(analyzer), new.compile(analyzer)
    cells = [
        level << LEVEL_SHIFT | cell
        for level in range(old.grid.levels)
        for cell in range(old.grid.columns(level) * old.grid.rows(level))
    ]
    cell, terms = np.repeat(np.array(cells, np.uint32), len(term)), np.tile(term, len(cells))
    follower = PlanFollower(old, analyzer)
    follower.take(PlanState(old).begin(new), 4)
    workers = range(max(old.workers, new.workers))
    place = np.random.default_rng(len(cell)).integers(1, 1 << 62, len(cell)).astype(np.uint64)
    held = [
        [h1.held_by(w, h1.holders(cell, terms), terms, place) for h1 in (one, two)] for w in workers
    ]
    for worker in workers:
        before, after = held[worker]
        more, gained = after & ~before, follower.gained(worker)
        if gained is None:
            found["nothing"] += 1
            assert not more.any()
            continue
        found["gained"] += 1
        found["terms"] += len(gained.term) > 0
        assert not len(gained.term) or np.isin(terms[more], gained.term).all()
        for tag in np.unique(cell[more]).tolist():
            west, south, width, height = old.grid.bounds(tag)
            assert gained.box[0] <= west
            assert gained.box[1] <= south
            assert gained.box[2] >= west + width
            assert gained.box[3] >= south + height
    plans = follower.strategy
    for step in (PlanStep.SWITCH,) * (end is PlanStep.FINISH) + (end,):
        follower.take(step_record(step), 5)
    for worker in workers:
        kept = held[worker][end is PlanStep.FINISH]
        lost = (held[worker][0] | held[worker][1]) & ~kept
        has_lost = follower.has_lost(worker, plans)
        found["lost" if has_lost else "kept"] += 1
        assert has_lost or not lost.any()
    return found


def test_another_number_of_workers_changes_coarse_levels_everywhere() -> None:
    old = plan(2)
    more = dataclasses.replace(old, workers=3, version=2, base_version=1)
    strategist = PlanFollower(old, Analyzer(ANALYSIS))
    assert strategist.gained(0) is None
    strategist.take(PlanState(old).begin(more), 4)
    for worker in range(3):
        gained = strategist.gained(worker)
        assert gained is not None
        assert gained.box.tolist() == [-180.0, -90.0, 180.0, 90.0]
        assert not len(gained.term)


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
    assert box == pytest.approx([0.0, 0.0, 45.0, 45.0], abs=1e-8)
    assert changed_box(old, moved, 1) is None
