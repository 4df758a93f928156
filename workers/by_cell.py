"""Two or more counts by cell, in one table of those that were met."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U32
from ps2stream.workers.load_kernels import NO_CELL, add

_FIRST = 1 << 10


class Counts(NamedTuple):
    """cell uint32[k] ascending, by int64[k, columns]."""

    cell: U32
    by: I64


class ByCell:
    """Columns come in pairs. Grows as needed."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._clear(_FIRST)

    def add(self, cell: U32, column: int, one: I64, other: I64) -> None:
        """Add to the counts of `cell`, which may repeat, in this column and the one behind."""
        if 2 * (self._used + len(cell)) >= len(self._cells):
            cells, by = self._cells, self._by
            held = np.flatnonzero(cells != NO_CELL)
            self._clear(1 << (4 * (len(held) + len(cell))).bit_length())
            for at in range(0, self._columns, 2):
                self._used += add(
                    self._cells, self._by, cells[held], at, by[held, at], by[held, at + 1]
                )
        self._used += add(self._cells, self._by, cell, column, one, other)

    def take(self) -> Counts:
        """What was counted, which is forgotten."""
        held = np.flatnonzero(self._cells != NO_CELL)
        order = held[np.argsort(self._cells[held])]
        counts = Counts(self._cells[order], self._by[order])
        self._clear(len(self._cells))
        return counts

    def _clear(self, size: int) -> None:
        self._cells = np.full(size, NO_CELL, np.uint32)
        self._by = np.zeros((size, self._columns), np.int64)
        self._used = 0
