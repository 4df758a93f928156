"""Plans for more and for fewer workers: who owns what then, and how evenly."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.adjust.scale import scaled
from ps2stream.routing.costs import PartWeights
from ps2stream.routing.leaves import Moved, Space, Text
from ps2stream.routing.plan import TOP_TERM, RoutingPlan, built_in_plan, hash_units, text_plan
from ps2stream.space.grid import Grid

ANALYSIS = Analysis(salt=7)
ANALYZER = Analyzer(ANALYSIS)
GRID = Grid(4, 3)
CELLS = 1 << 7
WORDS = [TOP_TERM, *(f"w{i}" for i in range(40))]
HASHES = hash_units(ANALYZER, WORDS)


def plan(kind: str) -> RoutingPlan:
    listed = {w: i % 4 for i, w in enumerate(WORDS[:25])}
    if kind == "space":
        return built_in_plan(ANALYSIS, GRID, 4)
    if kind == "text":
        return text_plan(ANALYSIS, GRID, 4, listed)
    leaves = (
        Space(0), Space(3), Text((0, 1, 2, 3), listed), Text((2, 2, 3), {"w1": 0}), Text((1,)),
        Moved(2, {3: 0, 1: 3}, {"w7": 1}), Moved(0, {}, {"w2": 3}), Moved(3, {3: 2}),
    )  # fmt: skip
    cells = np.arange(CELLS, dtype=np.uint32) % len(leaves)
    return RoutingPlan(4, ANALYSIS, GRID, leaves, cells, {"w1": 9}, 4, 2)


def table(plan: RoutingPlan) -> np.ndarray[tuple[int, int], np.dtype[np.uint16]]:
    """The owner of every word in every cell."""
    h1 = plan.compile(ANALYZER)
    cells = np.repeat(np.arange(CELLS, dtype=np.uint32), len(WORDS))
    return h1.owners(cells, np.tile(HASHES, CELLS)).reshape(CELLS, -1)


def weights(seed: int, plan: RoutingPlan) -> PartWeights:
    """By cell alone, so that a part's load can be told from the table: each word is worth
    as much."""
    rng = np.random.default_rng(seed)
    heavy = rng.exponential(size=CELLS)
    owner = table(plan)
    cell = np.repeat(np.arange(CELLS), owner.shape[1])
    load = np.repeat(heavy, owner.shape[1])
    return PartWeights(cell.astype(np.uint32), owner.ravel().astype(np.int64), load)


NOTHING = PartWeights(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0))


def loads(plan: RoutingPlan, known: PartWeights) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.bincount(table(plan).ravel(), known.weight, plan.workers).astype(np.float64)


@pytest.mark.parametrize("workers", [5, 7, 16])
@pytest.mark.parametrize("kind", ["space", "text", "mixed"])
def test_new_workers_get_an_even_share_and_nobody_else_gets_anything(
    kind: str, workers: int
) -> None:
    old = plan(kind)
    known = weights(workers, old)
    new = scaled(old, workers, known)
    before, after = table(old), table(new)
    assert (after[after != before] >= 4).all()
    assert (new.version, new.base_version) == (old.version + 1, old.version)
    mine = loads(new, known)
    heaviest = known.weight.reshape(CELLS, -1).sum(axis=1).max()
    assert np.abs(mine[4:] - mine.mean()).max() <= heaviest
    assert dict(new.frequencies) == dict(old.frequencies)


@pytest.mark.parametrize("workers", [3, 2, 1])
@pytest.mark.parametrize("kind", ["space", "text", "mixed"])
def test_who_goes_leaves_all_and_who_stays_keeps_all(kind: str, workers: int) -> None:
    old = plan(kind)
    known = weights(workers, old)
    new = scaled(old, workers, known)
    before, after = table(old), table(new)
    assert (after[before < workers] == before[before < workers]).all()
    assert after.max() < workers
    given = loads(new, known)
    kept = np.bincount(before.ravel(), known.weight, 4)[:workers]
    # What came is where there was room for it: nobody is above an even share by it.
    assert (given <= np.maximum(kept, given.mean()) + 0.25 * given.mean()).all()


@pytest.mark.parametrize("kind", ["space", "text", "mixed"])
def test_without_weights_parts_are_shared_by_their_number(kind: str) -> None:
    new = scaled(plan(kind), 6, NOTHING)
    assert set(table(new).ravel().tolist()) == set(range(6))


def test_there_and_back_keeps_the_plan_small() -> None:
    start = RoutingPlan.from_dict(plan("space").to_dict(), ANALYSIS)
    there = scaled(start, 8, NOTHING)
    back = scaled(there, 4, NOTHING)
    assert back.version == 3
    assert len(back.leaves) == 4
    assert all(isinstance(leaf, Space) for leaf in back.leaves)
    assert (np.diff(back.cells.astype(int)) != 0).sum() < 100


def test_no_change_and_no_workers_are_refused() -> None:
    with pytest.raises(PlanError, match="it has 4 workers already"):
        scaled(plan("space"), 4, NOTHING)
    with pytest.raises(PlanError, match=r"expected 1 to .* workers, got 0"):
        scaled(plan("space"), 0, NOTHING)
