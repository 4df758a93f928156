"""lpt: single cells by descending load, each to the least loaded worker (longest processing time).

It balances as well as whole cells can, and pays for it with borders everywhere: a query is stored
at nearly as many workers as it touches cells.
"""

from __future__ import annotations

import numpy as np

from ps2stream.planner.baselines.frequency import lightest_first
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import Partition, PartitionOptions, idle
from ps2stream.planner.statistics import Statistics
from ps2stream.routing.plan import Space


def lpt(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Assigns cells by load; cells without load are dealt out in turn."""
    load = np.zeros(stats.grid.rows() * stats.grid.columns())
    load[stats.cell] = cell_load(stats, options.costs)
    owner = lightest_first(load, workers)
    leaves = tuple(Space(worker) for worker in range(workers))
    busy = owner[np.flatnonzero(load)].tolist()
    return Partition(leaves, owner.astype(np.uint32), None, idle(busy, workers))
