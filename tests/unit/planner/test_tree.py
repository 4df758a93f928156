"""The partition of a tree: every cell in the leaf of its rectangle."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.nodes import CostModel, KdtNode
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.split import GridLine, Lines, space_split, text_split
from ps2stream.planner.tree import build_partition
from ps2stream.routing.plan import Space, Text
from ps2stream.space.kdt_tree import KdtSplit, flatten
from tests.support.by_hand import COLUMNS, some_stats

STATS = some_stats(2)


def cells_of(node: KdtNode) -> set[int]:
    """All cells of its rectangle, those without objects too."""
    rows, columns = range(node.rect.top, node.rect.bottom), range(node.rect.left, node.rect.right)
    return {row * COLUMNS + column for row in rows for column in columns}


@pytest.mark.parametrize("k", [1, 2, 7])
def test_each_rectangle_is_a_leaf_of_its_worker(k: int) -> None:
    model = CostModel(STATS, PartitionOptions())
    lines: Lines = {}
    nodes = space_split(model, model.root(), k, lines)
    owner = [i % 3 for i in range(k)]
    partition = build_partition(model, nodes, owner, lines, 3)
    assert len(partition.leaves) == k
    for node, worker in zip(nodes, owner, strict=True):
        [leaf] = {int(partition.cells[cell]) for cell in cells_of(node)}
        assert partition.leaves[leaf] == Space(worker)
        assert set(np.flatnonzero(partition.cells == leaf).tolist()) == cells_of(node)
    assert partition.tree is not None
    cells, _ = flatten(partition.tree, 8, COLUMNS)
    assert np.array_equal(cells, partition.cells)


def test_the_parts_of_a_text_split_are_one_leaf() -> None:
    model = CostModel(STATS, PartitionOptions())
    lines: Lines = {}
    low, high = space_split(model, model.root(), 2, lines)
    parts = text_split(model, high, 3)
    owner = [0, 2, 1, 2]
    partition = build_partition(model, [low, *parts], owner, lines, 3)
    [text] = [leaf for leaf in partition.leaves if isinstance(leaf, Text)]
    assert text.workers == (1, 2)
    wanted = {
        STATS.terms[t]: worker
        for part, worker in zip(parts, owner[1:], strict=True)
        for t in STATS.term[part.units].tolist()
    }
    assert text.terms == wanted
    number = partition.leaves.index(text)
    assert set(np.flatnonzero(partition.cells == number).tolist()) == cells_of(high)


def test_parts_that_one_worker_has_all_of_are_a_space_leaf() -> None:
    model = CostModel(STATS, PartitionOptions())
    parts = text_split(model, model.root(), 3)
    partition = build_partition(model, parts, [1, 1, 1], {}, 2)
    assert partition.leaves == (Space(1),)
    assert not partition.cells.any()


def test_a_line_inside_a_node_is_left_out() -> None:
    model = CostModel(STATS, PartitionOptions())
    lines: Lines = {}
    nodes = space_split(model, model.root(), 2, lines)
    [first] = lines.values()
    lines[nodes[0].rect] = GridLine(0, nodes[0].rect.top + 1)
    partition = build_partition(model, nodes, [0, 1], lines, 2)
    assert len(partition.leaves) == 2
    assert isinstance(partition.tree, KdtSplit)
    assert partition.tree.at == first.at


def test_warnings_are_kept_and_idle_workers_told_of() -> None:
    model = CostModel(STATS, PartitionOptions())
    partition = build_partition(model, [model.root()], [1], {}, 3, ["sigma is not met"])
    assert partition.warnings == ("sigma is not met", "2 of 3 workers have no load")
