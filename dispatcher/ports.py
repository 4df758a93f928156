"""The port to a worker's index, which a dispatcher needs to explain and price a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ps2stream.protocol.frame import F64, I64, U32, U64
from ps2stream.protocol.rows import QueryRows
from ps2stream.space.grid import Grid


class FoundRows(Protocol):
    """The matches of a batch, in no order; row: the object's row, uint32[n]."""

    @property
    def row(self) -> U32: ...


class TrialIndex(Protocol):
    """An index of one query, used once: the part of a worker's Index port that this needs."""

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores the inserts among `rows` under their tags (ragged)."""

    def match(self, lsn: int, lon: F64, lat: F64, term_off: I64, term: U64) -> FoundRows:
        """Returns all pairs of objects (degrees; terms ragged) and queries live as of `lsn`."""
        ...


NewIndex = Callable[[Grid], TrialIndex]
