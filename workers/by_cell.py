"""Counts by cell: a table of the cells that were met, with two or more columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U32
from ps2stream.workers.load_kernels import NO_CELL, add_counts

_FIRST = 1 << 10


class CellCounts(NamedTuple):
    """The counts of the cells that were met: cell uint32[k] ascending, by int64[k, columns]."""

    cell: U32
    by: I64


class CellCounter:
    """A table of counts by cell. Columns come in pairs; the table grows as needed."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._clear_table(_FIRST)

    def add(self, cell: U32, column: int, one: I64, other: I64) -> None:
        """Adds to the counts of `cell`, which may repeat: `one` to this column, `other` to the
        next."""
        if 2 * (self._used + len(cell)) >= len(self._cells):
            cells, by = self._cells, self._by
            filled = np.flatnonzero(cells != NO_CELL)
            self._clear_table(1 << (4 * (len(filled) + len(cell))).bit_length())
            for at in range(0, self._columns, 2):
                self._used += add_counts(
                    self._cells, self._by, cells[filled], at, by[filled, at], by[filled, at + 1]
                )
        self._used += add_counts(self._cells, self._by, cell, column, one, other)

    def take(self) -> CellCounts:
        """Returns the counts so far and clears the table."""
        filled = np.flatnonzero(self._cells != NO_CELL)
        order = filled[np.argsort(self._cells[filled])]
        counts = CellCounts(self._cells[order], self._by[order])
        self._clear_table(len(self._cells))
        return counts

    def _clear_table(self, size: int) -> None:
        self._cells = np.full(size, NO_CELL, np.uint32)
        self._by = np.zeros((size, self._columns), np.int64)
        self._used = 0
