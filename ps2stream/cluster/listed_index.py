"""An index that is a list of tags and calls no kernel, for rehearsals of all but the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, sealed
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.routing.shard_kernels import hash_places
from ps2stream.workers.index import (
    ALL_TERMS,
    NO_ROWS,
    NO_VALUES,
    IndexStats,
    Mask,
    MatchColumns,
    MetPostings,
    Parts,
    StoredCensus,
)


class ListedIndex:
    """Implements `Index` but for matching: every query that is stored matches the first object.
    Tags are counted as they should be, so that a plan change finds no difference."""

    def __init__(self) -> None:
        self._handle: I64 = np.zeros(0, np.int64)
        self._session: I64 = np.zeros(0, np.int64)
        self._cell: U32 = np.zeros(0, np.uint32)
        self._term: U64 = np.zeros(0, np.uint64)
        self._place: U64 = np.zeros(0, np.uint64)
        self._objects = 0  # of the last match

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Lists the tags of the inserts."""
        row = np.repeat(np.arange(len(rows)), np.diff(tag_off))
        new = rows.kind[row] == UpdateKind.INSERT
        self._handle = np.append(self._handle, rows.handle[row[new]])
        self._session = np.append(self._session, rows.session[row[new]])
        self._cell = np.append(self._cell, tag_cell[new])
        self._term = np.append(self._term, tag_term[new])
        place = np.zeros(len(rows), np.uint64)
        hash_places(sealed(rows.box_off), sealed(rows.box).view(np.uint64), place)
        self._place = np.append(self._place, place[row[new]])

    extend = insert

    def delete(self, handles: I64, lsns: I64) -> None:
        """Strikes the tags of these queries out at once."""
        self._keep(~np.isin(self._handle, handles))

    def drop(self, keep: Callable[[U32, U64], Mask]) -> None:
        """Strikes out the tags that are not kept."""
        self._keep(keep(self._cell, self._term))

    def drop_shards(self, keep: Callable[[U32, U64, U64], Mask]) -> None:
        """Strikes out the tags that are not kept."""
        self._keep(keep(self._cell, self._term, self._place))

    def _keep(self, kept: Mask) -> None:
        self._handle, self._session = self._handle[kept], self._session[kept]
        self._cell, self._term = self._cell[kept], self._term[kept]
        self._place = self._place[kept]

    def match(
        self,
        lsn: int,
        lon: F64,
        lat: F64,
        term_off: I64,
        term: U64,
        chosen: U8 = ALL_TERMS,
        value_off: I64 = NO_ROWS,
        value: U64 = NO_VALUES,
    ) -> MatchColumns:
        """Returns a pair of the first object with each query."""
        self._objects = len(lon)
        handle, first = np.unique(self._handle, return_index=True)
        return MatchColumns(np.zeros(len(handle), np.uint32), handle, self._session[first])

    def met(self) -> MetPostings:
        """Returns that nothing was met."""
        return MetPostings(np.zeros(self._objects, np.int64), np.zeros(16, np.int64))

    def purge(self, watermark: int) -> None:
        """Does nothing, as nothing deleted is kept."""

    def sweep(self, budget: int) -> int:
        """Removes nothing, as nothing deleted is kept."""
        return 0

    def hold(self) -> Parts:
        """Returns no arrays: there are no snapshots of this index."""
        return {}

    def release(self) -> None:
        """Does nothing."""

    def census(self, slices: int = 1, level: int = 0) -> Iterator[StoredCensus | None]:
        """Counts the tags of each cell, of whatever level."""
        cell, count = np.unique(self._cell, return_counts=True)
        yield StoredCensus(cell, count.astype(np.int64), np.zeros(len(cell), np.int64))

    def postings(self, lsn: int) -> int:
        """Counts the tags."""
        return len(self._handle)

    def stats(self) -> IndexStats:
        """Returns the number of tags, as if each were a query."""
        return IndexStats(len(self._handle), 0, len(self._handle), 0)
