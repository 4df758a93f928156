"""The registry: every partitioning algorithm by its name."""

from __future__ import annotations

import numpy as np

from ps2stream.kdt import flatten, kd_tree
from ps2stream.plan import Space, Text
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import Algorithm, Options, Partition
from ps2stream.planner.statistics import Statistics


def kdtree(stats: Statistics, workers: int, options: Options) -> Partition:
    """Space alone: each split takes the line that divides the load most evenly."""
    grid = stats.grid
    load = cell_load(stats, options.costs)
    whole = np.zeros((grid.rows(), grid.columns()))
    whole.ravel()[stats.cell] = load if load.any() else stats.objects
    tree = kd_tree(whole, workers)
    cells, parts = flatten(tree, grid.rows(), grid.columns())
    leaves = tuple(
        Space(part.workers[0]) if len(part.workers) == 1 else Text(part.workers) for part in parts
    )
    return Partition(leaves, cells, tree)


ALGORITHMS: dict[str, Algorithm] = {
    "kdtree": kdtree,
}
