"""Counting by cell: one table of those that were met."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

NO_CELL = 0xFFFFFFFF  # its level would be 15
_SPREAD = np.uint32(2654435761)


@njit(cache=True, nogil=True)
def add(cells, counts, cell, column, one, other):
    """counts[of cell[i], column] += one[i], and the column behind it += other[i]; the number
    of cells that are new. cells uint32[2^k] with NO_CELL where nothing is, more than half of
    it still after all are in."""
    mask = np.uint32(cells.shape[0] - 1)
    new = 0
    for i in range(cell.shape[0]):
        at = cell[i] * _SPREAD >> np.uint32(7) & mask
        while cells[at] != cell[i]:
            if cells[at] == NO_CELL:
                cells[at] = cell[i]
                new += 1
                break
            at = at + np.uint32(1) & mask
        counts[at, column] += one[i]
        counts[at, column + 1] += other[i]
    return new
