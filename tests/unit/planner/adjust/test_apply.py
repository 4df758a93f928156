"""The plan after an adjustment: each owner worked out anew, and a plan that does not grow."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove
from ps2stream.planner.adjust.apply import apply, used
from ps2stream.routing.leaves import Leaf, Moved, Space, Text
from ps2stream.routing.plan import RoutingPlan, hash_units
from ps2stream.routing.replicas import ReplicatedUnit
from tests.support.adjustments import ANALYSIS, CELLS, blocks, divided

ANALYZER = Analyzer(ANALYSIS)
WORDS = [f"w{i}" for i in range(12)]  # a plan of `divided` lists the first eight


def moved(plan: RoutingPlan, *moves: PartMove) -> RoutingPlan:
    none = (0.0,) * plan.workers
    return apply(plan, LoadAdjustment(plan.version, moves, none, none))


def owners(plan: RoutingPlan) -> dict[tuple[int, str], int]:
    """The worker of every word in every cell."""
    cells = np.repeat(np.arange(CELLS, dtype=np.uint32), len(WORDS))
    hashes = np.tile(hash_units(ANALYZER, WORDS), CELLS)
    found = plan.compile(ANALYZER).owners(cells, hashes).tolist()
    units = [(cell, word) for cell in range(CELLS) for word in WORDS]
    return dict(zip(units, found, strict=True))


def whole(cell: int, source: int, target: int) -> PartMove:
    return PartMove(cell, source, target, 1, 1.0)


def split(cell: int, source: int, target: int, *terms: str) -> PartMove:
    return PartMove(cell, source, target, 1, 1.0, terms, "split")


@pytest.mark.parametrize(
    "moves",
    [
        [whole(3, 0, 2)],
        [split(3, 0, 2, "w1", "w9")],
        [whole(5, 0, 3)],
        [whole(5, 0, 1), whole(6, 0, 1)],
        [split(5, 1, 3, "w1"), split(5, 0, 1, "w0", "w2"), whole(100, 3, 0)],
        [split(5, 1, 3, "w1"), whole(5, 0, 2)],
        [whole(5, 0, 1), whole(5, 1, 0)],
    ],
)
def test_the_moved_units_change_their_owner_and_no_others(moves: list[PartMove]) -> None:
    plan = divided()
    expected = before = owners(plan)
    for move in moves:
        mine = {
            unit: move.target
            for unit, worker in before.items()
            if unit[0] == move.cell and worker == move.source
            and (move.terms is None or unit[1] in move.terms)
        }  # fmt: skip
        assert mine
        expected = expected | mine
    new = moved(plan, *moves)
    assert owners(new) == expected
    assert (new.version, new.base_version) == (plan.version + 1, plan.version)
    assert owners(plan) == before


def test_a_whole_cell_joins_the_leaf_of_its_new_owner() -> None:
    new = moved(blocks(), whole(3, 0, 2))
    assert new.leaves == blocks().leaves
    assert new.leaves[int(new.cells[3])] == Space(2)


def test_listed_terms_make_a_leaf_upon_the_old_one() -> None:
    new = moved(blocks(), split(3, 0, 2, "w1"))
    assert new.leaves[int(new.cells[3])] == Moved(0, {}, {"w1": 2})
    assert (np.delete(new.cells, 3) == np.delete(blocks().cells, 3)).all()


def test_a_plan_forgets_what_has_come_back() -> None:
    plan = divided()
    there = moved(plan, whole(3, 0, 2), split(5, 0, 3, "w0"), split(9, 0, 1, "w2"))
    back = moved(there, whole(3, 2, 0), split(5, 3, 0, "w0"), split(9, 1, 0, "w2"))
    assert len(there.leaves) == len(plan.leaves) + 2
    assert back.leaves == plan.leaves
    assert np.array_equal(back.cells, plan.cells)
    assert back.version == 3


def test_a_cell_that_one_worker_owns_again_is_a_space_leaf() -> None:
    new = moved(divided(), whole(5, 1, 0))
    assert new.leaves[int(new.cells[5])] == Space(0)
    assert len(new.leaves) == 4  # without the divided one


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([whole(CELLS, 0, 1)], "cell 128; the grid has 128"),
        ([whole(-1, 0, 1)], "cell -1; the grid has 128"),
        ([whole(3, 1, 0)], "worker 1 owns nothing of cell 3"),
        ([whole(3, 0, 4)], "there is no worker 4; the plan has 4 workers"),
        ([whole(3, 0, 1), whole(3, 0, 2)], "moves all of cell 3 twice"),
        ([split(3, 0, 1, "w1"), split(3, 0, 2, "w1")], "moves w1 of cell 3 twice"),
        ([split(5, 0, 2, "w1")], "worker 0 does not own 'w1' in cell 5"),
    ],
)
def test_what_the_plan_does_not_allow_is_refused(moves: list[PartMove], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        moved(divided(), *moves)


def test_an_adjustment_of_another_version_is_refused() -> None:
    with pytest.raises(PlanError, match="made for plan version 7, but the current one is 1"):
        apply(blocks(), LoadAdjustment(7, (), (), ()))
    assert apply(blocks(), LoadAdjustment(1, (), (), ()), version=9).version == 9


def test_leaves_without_cells_go_but_for_the_bases_of_others() -> None:
    leaves: list[Leaf] = [Space(0), Text((1, 2)), Space(3), Moved(1, {1: 0}), Moved(2, {3: 0})]
    kept, cells = used(leaves, np.array([3, 0, 3], np.uint32))
    assert kept == [Space(0), Text((1, 2)), Moved(1, {1: 0})]
    assert cells.tolist() == [2, 0, 2]
    kept, cells = used(leaves, np.array([4], np.uint32))
    assert kept == [Space(3), Moved(0, {3: 0})]
    assert cells.tolist() == [1]


def test_terms_that_are_replicated_belong_to_no_worker() -> None:
    units = ReplicatedUnit(3, "w1", (0, 1)), ReplicatedUnit(None, "w2", (2, 1))
    plan = dataclasses.replace(blocks(), replicas=units)
    for term in ("w1", "w2"):
        with pytest.raises(PlanError, match=f"worker 0 does not own '{term}' in cell 3"):
            moved(plan, split(3, 0, 2, term, "w9"))
    after = moved(plan, split(3, 0, 2, "w9"), split(4, 0, 2, "w1"))
    assert after.replicas == units
    assert owners(after)[3, "w9"] == owners(after)[4, "w1"] == 2
