"""R-tree: the leaves of a tree packed by STR, divided among the workers by load.

The tree is `rtree`'s, bulk-loaded by Sort-Tile-Recursive with the cells of the sample, each
repeated by the weight of its objects. The boxes of its leaves leave space uncovered, so every
other cell goes to the nearest box: tiles are disjoint and cover everything (algorithms.md 1.5).
"""

from __future__ import annotations

import numpy as np
import shapely

from ps2stream.extras import import_optional
from ps2stream.planner.baselines.frequency import lightest_first
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import Partition, PartitionOptions, idle
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import I64
from ps2stream.routing.plan import Space

TILES = 8  # per worker
ENTRIES = 64  # per tile, so that rounding a cell's weight up costs little
FILL = 0.9


def rtree(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Assigns tiles by load. A hot cell fills several leaves but belongs to one of them, so there
    can be fewer tiles than planned."""
    columns = stats.grid.columns()
    weight = stats.objects if stats.objects.any() else np.ones(stats.cells)
    times = np.ceil(weight * (ENTRIES * TILES * workers / weight.sum())).astype(np.int64)
    entry = np.repeat(np.arange(stats.cells), np.maximum(times, 1))
    y, x = np.divmod(stats.cell, columns)
    leaves = _pack_leaves(x[entry], y[entry], TILES * workers)
    tile = np.zeros(stats.cells, np.int64)
    for n, (held, _) in enumerate(leaves):
        tile[entry[held]] = n
    used, tile = np.unique(tile, return_inverse=True)
    near = shapely.STRtree(shapely.box(*np.array([leaves[n][1] for n in used.tolist()]).T))
    across = np.arange(columns)
    rows = [near.nearest(shapely.points(across, row)) for row in range(stats.grid.rows())]
    cells = np.concatenate(rows).astype(np.uint32)
    cells[stats.cell] = tile
    load = np.bincount(tile, cell_load(stats, options.costs), len(used)).astype(np.float64)
    owner = lightest_first(load, workers)
    spaces = tuple(Space(worker) for worker in owner.tolist())
    return Partition(spaces, cells, None, idle(owner.tolist(), workers))


def _pack_leaves(x: I64, y: I64, count: int) -> list[tuple[list[int], list[float]]]:
    """Returns (entries, box) of the leaves, about `count` of nearly equally many entries."""
    capacity = max(round(len(x) / count / FILL), 4)
    index = import_optional("rtree.index", "The algorithm rtree")
    form = index.Property(leaf_capacity=capacity, fill_factor=FILL)
    points = enumerate(zip(x.tolist(), y.tolist(), strict=True))
    tree = index.Index(((i, (*at, *at), None) for i, at in points), properties=form)
    return [(held, box) for _, held, box in tree.leaves()]
