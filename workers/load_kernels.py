"""The kernel that counts by cell: one table of the cells that were met."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

NO_CELL = 0xFFFFFFFF  # no cell: its level would be 15
_SPREAD = np.uint32(2654435761)


@njit(cache=True, nogil=True)
def add_counts(cells, counts, cell, column, one, other):
    """Adds one[i] to counts[of cell[i], column] and other[i] to the next column; returns the
    number of new cells. cells uint32[2^k] holds NO_CELL in its free places, which are more than
    half of them even after the call."""
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
