"""The plan after an adjustment: H1 differs for what moved and for nothing else."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove
from ps2stream.planner.adjust.apply import apply
from ps2stream.routing.leaves import Moved, Space, Text, holders
from ps2stream.routing.plan import TOP_TERM, RoutingPlan, built_in_plan, hash_units, text_plan
from ps2stream.space.grid import Grid

ANALYSIS = Analysis(salt=7)
ANALYZER = Analyzer(ANALYSIS)
GRID = Grid(4, 3)
CELLS = 1 << 7
WORKERS = 5
WORDS = [TOP_TERM, *(f"w{i}" for i in range(40))]
HASHES = hash_units(ANALYZER, WORDS)


def plans() -> dict[str, RoutingPlan]:
    every = tuple(range(WORKERS))
    listed = {w: i % WORKERS for i, w in enumerate(WORDS[:25])}
    leaves = (Space(0), Space(3), Text(every, listed), Text((2, 2, 4), {"w1": 0}), Text((1,)))
    cells = np.arange(CELLS, dtype=np.uint32) % len(leaves)
    return {
        "space": built_in_plan(ANALYSIS, GRID, WORKERS),
        "text": text_plan(ANALYSIS, GRID, WORKERS, listed),
        "mixed": RoutingPlan(WORKERS, ANALYSIS, GRID, leaves, cells, {"w1": 9}, 4, 2),
    }


def table(plan: RoutingPlan) -> list[list[int]]:
    """The owner of every word in every cell."""
    h1 = plan.compile(ANALYZER)
    return [
        list(map(int, h1.owners(np.full(len(WORDS), cell, np.uint32), HASHES)))
        for cell in range(CELLS)
    ]


def some_moves(rng: random.Random, plan: RoutingPlan, owner: list[list[int]]) -> list[PartMove]:
    """Parts of some cells, whole or by words, that are there."""
    moves = []
    for cell in rng.sample(range(CELLS), 6):
        held = holders(plan.leaves)[int(plan.cells[cell])]
        for source in rng.sample(held, rng.randint(1, min(2, len(held)))):
            target = rng.randrange(WORKERS)
            words = [w for w, of in zip(WORDS, owner[cell], strict=True) if of == source]
            if words and rng.random() < 0.5:
                terms = tuple(rng.sample(words, rng.randint(1, min(len(words), 6))))
                moves.append(PartMove(cell, source, target, 10, 1.0, terms, "split"))
            else:
                moves.append(PartMove(cell, source, target, 10, 1.0))
    return moves


def moved(owner: list[list[int]], moves: list[PartMove]) -> list[list[int]]:
    """What the moves say."""
    after = [list(row) for row in owner]
    for move in moves:
        for i, of in enumerate(owner[move.cell]):
            if of == move.source and (move.terms is None or WORDS[i] in move.terms):
                after[move.cell][i] = move.target
    return after


def adjustment(plan: RoutingPlan, moves: list[PartMove]) -> LoadAdjustment:
    loads = (1.0,) * plan.workers
    return LoadAdjustment(plan.version, tuple(moves), loads, loads)


@pytest.mark.takes_turns
@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(plans())), st.randoms(use_true_random=False))
def test_only_what_moved_has_another_owner(name: str, rng: random.Random) -> None:
    plan = plans()[name]
    owner = table(plan)
    for _ in range(6):
        moves = some_moves(rng, plan, owner)
        new = apply(plan, adjustment(plan, moves))
        owner = moved(owner, moves)
        assert table(new) == owner
        assert (new.version, new.base_version) == (plan.version + 1, plan.version)
        assert new.frequencies == plan.frequencies
        again = RoutingPlan.from_dict(json.loads(json.dumps(new.to_dict())), ANALYSIS)
        assert again.leaves == new.leaves
        coarse = np.full(len(HASHES), 1 << 28, np.uint32)
        spread = [p.compile(ANALYZER).owners(coarse, HASHES).tolist() for p in (plan, new)]
        assert spread[0] == spread[1]
        plan = new


def test_what_has_come_back_leaves_no_trace() -> None:
    for plan in plans().values():
        owner = table(plan)
        for cell in range(CELLS):
            source, target = owner[cell][1], (owner[cell][1] + 1) % WORKERS
            if target in holders(plan.leaves)[int(plan.cells[cell])]:
                continue
            words = tuple(w for w, of in zip(WORDS, owner[cell], strict=True) if of == source)
            for terms in (None, words[:3]):
                there = PartMove(cell, source, target, 1, 1.0, terms)
                back = PartMove(cell, target, source, 1, 1.0)
                out = apply(plan, adjustment(plan, [there]))
                home = apply(out, adjustment(out, [back]))
                assert table(home) == owner
                if terms is None or isinstance(plan.leaves[int(plan.cells[cell])], Space):
                    assert not any(isinstance(leaf, Moved) for leaf in home.leaves)


def test_a_cell_that_one_worker_has_all_of_is_in_its_space_leaf() -> None:
    plan = plans()["text"]
    moves = [PartMove(9, w, 2, 1, 1.0) for w in range(WORKERS) if w != 2]
    new = apply(plan, adjustment(plan, moves))
    assert new.leaves[int(new.cells[9])] == Space(2)


def test_plans_stay_small_after_thousands_of_moves() -> None:
    """As large as what is out of place, however many terms a leaf lists and however long
    its cells have been moved about."""
    rng = random.Random(5)
    grid = Grid(6, 5)
    terms = {f"t{i}": i % WORKERS for i in range(20_000)}
    plan = first = text_plan(ANALYSIS, grid, WORKERS, terms)
    for _ in range(60):
        moves, held = [], holders(plan.leaves)
        for cell in rng.sample(range(1 << 11), 100):
            source, target = rng.sample(range(WORKERS), 2)
            if source in held[int(plan.cells[cell])]:
                moves.append(PartMove(cell, source, target, 1, 1.0))
        plan = apply(plan, adjustment(plan, moves))
    assert sum(isinstance(leaf, Text) for leaf in plan.leaves) == 1
    assert all(not leaf.terms for leaf in plan.leaves if isinstance(leaf, Moved))
    grown = len(json.dumps(plan.to_dict())) - len(json.dumps(first.to_dict()))
    assert grown < 80 * (1 << 11)
    assert plan.compile(ANALYZER).bytes < 1.2 * first.compile(ANALYZER).bytes


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        (PartMove(CELLS, 0, 1, 1, 1.0), "there is no cell 128; the grid has 128"),
        (PartMove(-1, 0, 1, 1, 1.0), "cell -1"),
        (PartMove(0, 3, 1, 1, 1.0), "worker 3 owns nothing of cell 0"),
        (PartMove(0, 0, 5, 1, 1.0), "there is no worker 5; the plan has 5"),
        (PartMove(2, 0, 1, 1, 1.0, ("w1",)), "worker 0 does not own 'w1' in cell 2"),
        (PartMove(3, 4, 1, 1, 1.0, ("w1",)), "worker 4 does not own 'w1' in cell 3"),
    ],
)
def test_a_move_that_does_not_fit_is_refused(move: PartMove, reason: str) -> None:
    plan = plans()["mixed"]
    with pytest.raises(PlanError, match=reason):
        apply(plan, adjustment(plan, [move]))


def test_a_part_moves_once_and_from_the_current_plan() -> None:
    plan = plans()["mixed"]
    twice = adjustment(plan, [PartMove(0, 0, 1, 1, 1.0), PartMove(0, 0, 2, 1, 1.0)])
    with pytest.raises(PlanError, match="twice"):
        apply(plan, twice)
    stale = dataclasses.replace(adjustment(plan, []), base_version=3)
    with pytest.raises(PlanError, match="made for plan version 3, but the current one is 4"):
        apply(plan, stale)
    assert apply(plan, adjustment(plan, []), version=70).version == 70
