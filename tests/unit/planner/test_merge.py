"""MergeNodesIntoPartitions against its rule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ps2stream.planner.load import worker_loads
from ps2stream.planner.merge import merge_nodes_into_partitions
from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.split import space_split, text_split
from tests.support.by_hand import BOTH, load_of, some_stats
from tests.support.statistics_of import hostile

STATS = hostile(1)["many cells"]


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("m", [2, 5])
def test_leaves_are_merged_by_the_rule(m: int, seed: int, options: PartitionOptions) -> None:
    """By descending load; where a leaf adds least if L_max / L_min does not rise by it, else
    to the least loaded; to empty partitions first."""
    stats = some_stats(seed)
    model = CostModel(stats, options)
    leaves = [
        part
        for i, node in enumerate(space_split(model, model.root(), 8, {}))
        for part in (text_split(model, node, 4) if i % 2 else [node])
    ]
    part, _ = merge_nodes_into_partitions(model, leaves, m)
    held: list[set[int]] = [set() for _ in range(m)]
    loads = [0.0] * m

    def ratio(loads: list[float]) -> float:
        return max(loads) / min(loads) if min(loads) > 0 else math.inf

    for i in sorted(range(len(leaves)), key=lambda i: (-leaves[i].load, i)):
        units = set(leaves[i].units.tolist())
        new = [load_of(stats, h | units, options) for h in held]
        added = [n - old for n, old in zip(new, loads, strict=True)]
        least, lightest = added.index(min(added)), loads.index(min(loads))
        allowed = [j for j in range(m) if added[j] <= min(added) * (1 + 1e-9)]
        after = [new[j] if j == least else loads[j] for j in range(m)]
        if not all(held):
            allowed = [j for j in range(m) if not held[j]]
        elif ratio(after) > ratio(loads) * (1 + 1e-9):
            allowed = [lightest]
        to = int(part[i])
        assert to in allowed
        held[to] |= units
        loads[to] = new[to]


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("m", [1, 3, 8])
def test_partitions_have_the_loads_of_their_unions(options: PartitionOptions, m: int) -> None:
    model = CostModel(STATS, options)
    leaves = [
        part
        for i, node in enumerate(space_split(model, model.root(), 6, {}))
        for part in (text_split(model, node, 3) if i % 2 else [node])
    ]
    part, loads = merge_nodes_into_partitions(model, leaves, m)
    owner = np.empty(STATS.units, np.int32)
    for leaf, to in zip(leaves, part.tolist(), strict=True):
        owner[leaf.units] = to
    assert loads.tolist() == pytest.approx(
        worker_loads(STATS, owner, m, options.costs, options.load).tolist()
    )
    assert set(part.tolist()) == set(range(m))
