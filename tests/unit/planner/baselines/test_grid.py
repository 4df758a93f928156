"""grid: blocks of cells by load."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import PartitionOptions
from ps2stream.space.grid import Grid
from tests.support.baselines_by_hand import assert_lightest_first, cells_of_leaves
from tests.support.by_hand import some_stats
from tests.support.statistics_of import words


def test_grid_gives_cells_by_load_to_the_lightest() -> None:
    stats, options = some_stats(3), PartitionOptions()
    leaf = cells_of_leaves(ALGORITHMS["grid"](stats, 3, options), stats)
    load = dict(enumerate(cell_load(stats, options.costs).tolist()))
    assert_lightest_first(load, leaf, 3)


def test_grid_has_64_blocks_across_at_most() -> None:
    rng = np.random.default_rng(1)
    grid = Grid(8, 7)
    cells = [int(r) * 256 + int(c) for r, c in rng.integers(0, (128, 256), (300, 2))]
    stats = words(grid, rng, [0, grid.rows() * grid.columns() - 1, *cells], 600)
    plane = ALGORITHMS["grid"](stats, 5, PartitionOptions()).cells.reshape(128, 256)
    blocks = plane.reshape(64, 2, 64, 4)
    assert (blocks == blocks[:, :1, :, :1]).all()
    assert len(set(plane.ravel().tolist())) == 5
