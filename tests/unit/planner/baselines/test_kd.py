"""kd-tree: the space split of Algorithm 1 alone."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.baselines.kd import kd
from ps2stream.planner.partition import PartitionOptions
from ps2stream.routing.plan import Space
from ps2stream.space.kdt_tree import flatten
from tests.support.by_hand import BOTH, by_space, some_stats
from tests.support.statistics_of import hostile


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("seed", range(4))
def test_the_heaviest_leaf_is_halved_until_each_worker_has_one(
    seed: int, options: PartitionOptions
) -> None:
    stats = some_stats(seed)
    for k in (2, 3, 6):
        partition = kd(stats, k, options)
        assert [isinstance(leaf, Space) for leaf in partition.leaves] == [True] * k
        workers = {s.worker for s in partition.leaves if isinstance(s, Space)}
        assert workers == {*range(k)}
        leaf = partition.cells[stats.cell].tolist()
        found = {frozenset(c for c, n in enumerate(leaf) if n == of) for of in set(leaf)}
        assert found == by_space(stats, k, options)
        assert not partition.warnings


def test_the_tree_gives_the_cells_their_leaves() -> None:
    stats = some_stats(1)
    partition = kd(stats, 5, PartitionOptions())
    assert partition.tree is not None
    cells, _ = flatten(partition.tree, stats.grid.rows(), stats.grid.columns())
    assert np.array_equal(cells, partition.cells)


def test_fewer_leaves_than_workers_are_a_warning() -> None:
    partition = kd(hostile(1)["two corners"], 5, PartitionOptions())
    assert len(partition.leaves) == 2
    assert partition.warnings == ("3 of 5 workers have no load",)
