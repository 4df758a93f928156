"""grid: blocks of cells by load."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.baselines.grid import SIDE, grid
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import PartitionOptions
from ps2stream.routing.plan import Space
from ps2stream.space.grid import Grid
from tests.support.baselines_by_hand import assert_lightest_first, cells_of_leaves
from tests.support.by_hand import some_stats
from tests.support.statistics_of import tables, words


def test_grid_gives_cells_by_load_to_the_lightest() -> None:
    stats, options = some_stats(3), PartitionOptions()
    leaf = cells_of_leaves(grid(stats, 3, options), stats)
    load = dict(enumerate(cell_load(stats, options.costs).tolist()))
    assert_lightest_first(load, leaf, 3)


def test_grid_has_64_blocks_across_at_most() -> None:
    rng = np.random.default_rng(1)
    fine = Grid(8, 7)
    cells = [int(r) * 256 + int(c) for r, c in rng.integers(0, (128, 256), (300, 2))]
    stats = words(fine, rng, [0, fine.rows() * fine.columns() - 1, *cells], 600)
    plane = grid(stats, 5, PartitionOptions()).cells.reshape(128, 256)
    blocks = plane.reshape(SIDE, 2, SIDE, 4)
    assert (blocks == blocks[:, :1, :, :1]).all()
    assert len(set(plane.ravel().tolist())) == 5


def test_cells_outside_the_sample_belong_to_the_outermost_blocks() -> None:
    """The sample lies in the columns 2 to 4 of one row, which are three blocks."""
    names = [(18 + i, "storm", 1.0, n, 0.0, 0.0) for i, n in enumerate((9.0, 5.0, 4.0))]
    stats = tables(Grid(4, 3), {18: 1.0, 19: 1.0, 20: 1.0}, names, [])
    partition = grid(stats, 2, PartitionOptions())
    owners = [leaf.worker for leaf in partition.leaves if isinstance(leaf, Space)]
    plane = np.array(owners)[partition.cells].reshape(8, 16)
    assert (plane[:, :3] == 0).all()
    assert (plane[:, 3:] == 1).all()
