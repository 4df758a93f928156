"""The counts of live postings by tag cell."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.load_kernels import NO_CELL
from ps2stream.workers.radix.layout import CELLS_SIZE, CELLS_USED
from ps2stream.workers.radix.pointers import prefetch

_SPREAD = np.uint32(2654435761)


@njit(inline="always")
def _home_of_cell(cell, mask):
    """Returns where in `cells` a cell belongs."""
    return cell * _SPREAD >> np.uint32(7) & mask


@njit(inline="always")
def prefetch_cells(index, cell, first, last):
    """Asks for where the tags of cell[first:last] are counted."""
    mask = np.uint32(index.state[CELLS_SIZE] - 1)
    for i in range(first, last):
        if i == first or cell[i] != cell[i - 1]:
            at = np.int64(_home_of_cell(cell[i], mask))
            prefetch(index.cells, at)
            prefetch(index.counts, 2 * at)


@njit(cache=True, nogil=True)
def count_tags(cells, counts, state, cell, n, sign, size):
    """Adds sign to the postings of cell[:n], and sign * size to their bytes. `cells` has room."""
    mask = np.uint32(state[CELLS_SIZE] - 1)
    i = 0
    while i < n:
        first, of = i, cell[i]
        while i < n and cell[i] == of:  # the terms of a query in one cell
            i += 1
        at = _home_of_cell(of, mask)
        while cells[at] != of:
            if cells[at] == np.uint32(NO_CELL):
                cells[at] = of
                state[CELLS_USED] += 1
                break
            at = at + np.uint32(1) & mask
        counts[2 * at] += sign * (i - first)
        counts[2 * at + 1] += sign * (i - first) * size


@njit(cache=True, nogil=True)
def rehash_cells(old, old_counts, cells, counts):
    """Puts the cells that have postings into a larger, empty table; returns their number."""
    mask, n = np.uint32(cells.shape[0] - 1), 0
    for i in range(old.shape[0]):
        if old[i] == np.uint32(NO_CELL) or old_counts[i, 0] == 0:
            continue
        at = _home_of_cell(old[i], mask)
        while cells[at] != np.uint32(NO_CELL):
            at = at + np.uint32(1) & mask
        cells[at] = old[i]
        counts[at, 0], counts[at, 1] = old_counts[i, 0], old_counts[i, 1]
        n += 1
    return n
