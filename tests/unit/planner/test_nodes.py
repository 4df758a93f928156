"""Nodes of the kdt-tree: their loads, and the two sides of a line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.planner.load import copies, worker_loads
from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import PartitionOptions
from tests.support.by_hand import BOTH, COLUMNS, Cells, load_of, some_stats, units_in
from tests.support.statistics_of import hostile

STATS = hostile(1)["many cells"]


@pytest.mark.parametrize("options", BOTH)
def test_the_root_has_the_load_of_one_worker(options: PartitionOptions) -> None:
    root = CostModel(STATS, options).root()
    owner = np.zeros(STATS.units, np.int32)
    alone = worker_loads(STATS, owner, 1, options.costs, options.load)[0]
    assert root.load == pytest.approx(alone)


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize(("axis", "at"), [(0, 3), (0, 7), (1, 2), (1, 9)])
def test_a_line_divides_a_node_into_the_cells_before_and_behind_it(
    axis: int, at: int, options: PartitionOptions
) -> None:
    stats = some_stats(3)
    model = CostModel(stats, options)
    root = model.root()
    low, high = model.cut(root, axis, at)
    strip = (stats.cell // COLUMNS, stats.cell % COLUMNS)[axis]
    below: Cells = frozenset(np.flatnonzero(strip < at).tolist())
    for node, cells in ((low, below), (high, frozenset(range(stats.cells)) - below)):
        assert frozenset(node.cells.tolist()) == cells
        assert set(node.units.tolist()) == units_in(stats, cells)
        assert node.load == pytest.approx(load_of(stats, units_in(stats, cells), options))
        assert node.depth == 1
        assert node.whole
    edge = (low.rect.bottom, low.rect.right)[axis]
    assert edge == (high.rect.top, high.rect.left)[axis] == at
    assert low.objects + high.objects == root.objects


@pytest.mark.parametrize("options", BOTH)
def test_the_load_of_some_units_counts_each_of_their_objects_once(
    options: PartitionOptions,
) -> None:
    """Signatures stand for more objects in some cells than in others."""
    stats = dataclasses.replace(STATS, weight=np.linspace(0.5, 3.0, STATS.cells))
    model = CostModel(stats, options)
    units = np.arange(0, stats.units, 3, dtype=np.int32)
    owner = np.ones(stats.units, np.int32)
    owner[units] = 0
    held = [
        r
        for r in range(len(model.row_cell))
        if not owner[stats.row_unit[stats.row_start[r] : stats.row_start[r + 1]]].all()
    ]
    root = model.root()
    node = model.node(root.rect, root.cells, units, np.array(held), whole=False)
    assert node.objects == pytest.approx(copies(stats, owner, 2)[0])
    assert node.load == pytest.approx(load_of(stats, set(units.tolist()), options))
