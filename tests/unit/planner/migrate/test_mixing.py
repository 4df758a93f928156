"""Plans between two plans: each cell belongs to whom one or the other says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.migrate.mixing import MixedLeaves, renumbered
from ps2stream.routing.leaves import Moved
from ps2stream.routing.plan import RoutingPlan, Space, Text, hash_units
from ps2stream.routing.replicas import ReplicatedUnit
from tests.support.migrating import ANALYSIS, GRID, WORDS

CELLS = GRID.rows() * GRID.columns()
ANALYZER = Analyzer(ANALYSIS)
TERMS = hash_units(ANALYZER, WORDS)


def random_plan(seed: int, workers: int = 3) -> RoutingPlan:
    rng = np.random.default_rng(seed)
    text = Text(tuple(rng.permutation(workers).tolist()), {"flood": int(rng.integers(workers))})
    leaves = (Moved(1, {0: 1}, {"dam": 0}), text, Moved(3, {}, {"fire": 1}), Space(0), Space(2))
    return RoutingPlan(workers, ANALYSIS, GRID, leaves, rng.integers(0, 5, CELLS).astype(np.uint32))


def owners(plan: RoutingPlan) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """Of each cell and term."""
    cell = np.repeat(np.arange(CELLS, dtype=np.uint32), len(TERMS))
    found = plan.compile(ANALYZER).owners(cell, np.tile(TERMS, CELLS))
    return found.reshape(CELLS, len(TERMS))


@pytest.mark.parametrize("seed", range(4))
def test_each_cell_follows_one_of_the_plans(seed: int) -> None:
    base, target = random_plan(seed), random_plan(seed + 9)
    leaves = MixedLeaves(base, target)
    rng = np.random.default_rng(seed)
    for share in (0.0, 0.4, 1.0):
        follows = rng.random(CELLS) < share
        mixed = leaves.mixed(follows, 2, is_last=False)
        assert (mixed.version, mixed.base_version) == (3, 2)
        expected = np.where(follows[:, None], owners(target), owners(base))
        assert (owners(mixed) == expected).all()
    same = ~leaves.differs
    assert (owners(base)[same] == owners(target)[same]).all()
    assert same.any()
    assert leaves.differs.any()


def test_equal_leaves_are_listed_once() -> None:
    base = random_plan(1)
    again = dataclasses.replace(base, cells=base.cells[::-1].copy())
    leaves = MixedLeaves(base, again)
    assert len(leaves.mixed(np.arange(CELLS) % 2 == 0, 1, is_last=False).leaves) == 5
    assert (leaves.differs == (base.cells != again.cells)).all()


def test_only_the_last_step_takes_what_is_not_of_cells() -> None:
    unit = ReplicatedUnit(None, "storm", (0, 1))
    base = dataclasses.replace(random_plan(1), frequencies={"dam": 1}, replicas=(unit,))
    target = dataclasses.replace(random_plan(2, workers=4), frequencies={"dam": 9})
    leaves, all_cells = MixedLeaves(base, target), np.ones(CELLS, np.bool_)
    for last in (False, True):
        plan = leaves.mixed(all_cells, 1, is_last=last)
        found = dict(plan.frequencies), plan.replicas, plan.workers
        assert found == (({"dam": 9}, (), 4) if last else ({"dam": 1}, (unit,), 4))
    fewer = MixedLeaves(target, base).mixed(~all_cells, 1, is_last=False)
    assert fewer.workers == 4


def test_renumbered_workers_have_what_others_had() -> None:
    plan, to = random_plan(5), np.array([2, 0, 1])
    assert (owners(renumbered(plan, to)) == to[owners(plan)]).all()
