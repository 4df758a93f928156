"""R-tree: the leaves of a tree packed by STR, divided among the workers by load.

Sort-Tile-Recursive cuts space into vertical slabs of equally many objects, and each slab
into tiles of equally many. Boxes around a leaf's objects would leave points uncovered;
the tiles themselves are disjoint and cover everything (algorithms.md 1.5).
"""

from __future__ import annotations

import math

import numpy as np

from ps2stream.batch import I64, Array
from ps2stream.plan import Space
from ps2stream.planner.baselines.frequency import lightest_first
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import Options, Partition, idle
from ps2stream.planner.statistics import Statistics

TILES = 8  # a worker


def rtree(stats: Statistics, workers: int, options: Options) -> Partition:
    """Tiles' borders are grid lines, so a hot strip or cell makes fewer tiles."""
    rows, columns = stats.grid.rows(), stats.grid.columns()
    row, column = stats.cell // columns, stats.cell % columns
    weight = stats.objects if stats.objects.any() else np.ones(stats.cells)
    slabs = math.ceil(math.sqrt(TILES * workers))
    slab = _strips(np.bincount(column, weight, columns), slabs)
    tile = np.zeros((rows, columns), np.int64)
    count = 0
    for number in range(int(slab[-1]) + 1):
        inside = slab[column] == number
        across = _strips(np.bincount(row[inside], weight[inside], rows), slabs)
        tile[:, slab == number] = (count + across)[:, None]
        count += int(across[-1]) + 1
    flat = tile.ravel()
    load = np.bincount(flat[stats.cell], cell_load(stats, options.costs), count)
    owner = lightest_first(load.astype(np.float64), workers)
    leaves = tuple(Space(worker) for worker in owner.tolist())
    return Partition(leaves, flat.astype(np.uint32), None, idle(owner.tolist(), workers))


def _strips(weight: Array, parts: int) -> I64:
    """The strip of each line, ascending from 0: at most `parts`, of nearly equal weight."""
    before = np.cumsum(weight) - weight / 2
    at = np.floor(before / max(float(weight.sum()), 1e-300) * parts)
    return np.unique(at, return_inverse=True)[1].astype(np.int64)
