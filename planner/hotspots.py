"""Text split of one cell: its terms divided among parts that share its load.

The rule is PartitionNode's (algorithms.md 1.4) with SALB's count (2.2): terms by descending
load, each to the part that is lightest with it, where an object counts once a part. A term
that no sampled object has is taken to be in half an object: free, all of them would go to
one part, which then gets all that the sample did not foresee.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.batch import F64, I64
from ps2stream.planner.load import Costs, unit_load
from ps2stream.planner.nodes import UNSEEN
from ps2stream.planner.statistics import I32, Statistics

MAX_PARTS = 64


def divide(stats: Statistics, cell: int, parts: int, costs: Costs) -> tuple[I32, F64]:
    """(the part of each unit of the cell with this index, int32[u]; the load of each part,
    float64[parts]), microseconds. At most MAX_PARTS parts."""
    units = slice(int(stats.unit_off[cell]), int(stats.unit_off[cell + 1]))
    rows = slice(int(stats.row_off[cell]), int(stats.row_off[cell + 1]))
    load = unit_load(stats, costs)[units] + costs.c1 * UNSEEN * stats.q[units]
    start = stats.row_start[rows.start : rows.stop + 1]
    flat = stats.row_unit[start[0] : start[-1]] - units.start
    row = np.repeat(np.arange(rows.stop - rows.start), np.diff(start))
    by_unit = np.argsort(flat, kind="stable")
    off = np.searchsorted(flat[by_unit], np.arange(len(load) + 1))
    heavy = load + costs.c2 * stats.weight[cell] * np.diff(off)
    order = np.argsort(-heavy, kind="stable")
    part = np.empty(len(load), np.int32)
    total = np.zeros(parts)
    _divide(
        order, load, off, row[by_unit], rows.stop - rows.start, costs.c2 * stats.weight[cell],
        part, total,
    )  # fmt: skip
    return part, total


@njit(cache=True, nogil=True)
def _divide(
    order: I64, load: F64, off: I64, row: I64, rows: int, copy: float, part: I32, total: F64
) -> None:
    """Greedy; `seen` has a bit for each part that a row is already sent to."""
    seen = np.zeros(rows, np.uint64)
    parts = len(total)
    for unit in order:
        best, best_load = 0, np.inf
        for p in range(parts):
            bit = np.uint64(1) << np.uint64(p)
            fresh = 0
            for i in range(off[unit], off[unit + 1]):
                fresh += (seen[row[i]] & bit) == 0
            candidate = total[p] + load[unit] + copy * fresh
            if candidate < best_load:
                best, best_load = p, candidate
        part[unit] = best
        total[best] = best_load
        bit = np.uint64(1) << np.uint64(best)
        for i in range(off[unit], off[unit + 1]):
            seen[row[i]] |= bit
