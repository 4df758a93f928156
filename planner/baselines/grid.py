"""grid: blocks of cells by descending load, each to the least loaded worker."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.baselines.frequency import lightest_first
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import Partition, PartitionOptions, idle
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import I64
from ps2stream.routing.plan import Space

SIDE = 64  # blocks across the sample, at most: 2^6 by 2^6 (algorithms.md 1.5)


def grid(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Assigns blocks by load; blocks without load are dealt out in turn."""
    rows, columns = stats.grid.rows(), stats.grid.columns()
    row = _assign_blocks(stats.cell // columns, rows)
    column = _assign_blocks(stats.cell % columns, columns)
    across = int(column[-1]) + 1
    block = (row[:, None] * across + column).ravel()
    load = np.bincount(
        block[stats.cell], cell_load(stats, options.costs), (int(row[-1]) + 1) * across
    ).astype(np.float64)
    owner = lightest_first(load, workers)
    leaves = tuple(Space(worker) for worker in range(workers))
    return Partition(leaves, owner[block].astype(np.uint32), None, idle(owner.tolist(), workers))


def _assign_blocks(used: I64, size: int) -> I64:
    """Returns the block of each strip 0..size - 1: at most SIDE blocks across the used strips;
    the strips outside belong to the outermost blocks."""
    first, last = int(used.min()), int(used.max())
    side = -(-(last - first + 1) // SIDE)
    return (np.clip(np.arange(size), first, last) - first) // side
