"""The Index port: what a worker needs of the structure that holds its queries.

Nothing here assumes GI2 (PS2Stream section IV-D: other structures may be used). Tags say where a
query is to be found; an index may store them in any way, as long as `match` returns exactly the
pairs of the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Array
from ps2stream.protocol.rows import QueryRows

ALL_TERMS: U8 = np.zeros(0, np.uint8)
"""Stands for a bitset of terms, which are all chosen."""

NO_ROWS: I64 = np.zeros(0, np.int64)
NO_VALUES: U64 = np.zeros(0, np.uint64)
"""Stand for the values of objects of which no query compares any."""
Parts = Mapping[str, Array]
"""The arrays that an index consists of, by name: enough to build it again."""


class SavedIndex(NamedTuple):
    """An index that holds all updates up to `lsn` and no others. `route` is the number of the
    plan by which it was filled."""

    lsn: int
    parts: Parts
    route: int = 0


Mask = NDArray[np.bool_]


class MatchColumns(NamedTuple):
    """The matches of a batch, in no order: row of the object, handle and session of the query."""

    row: U32
    handle: I64
    session: I64


NO_MATCHES = MatchColumns(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))


class MetPostings(NamedTuple):
    """The postings met under terms of the objects: base int64[n], per object on the base level;
    levels int64[16], of all objects on each of the others."""

    base: I64
    levels: I64


class IndexStats(NamedTuple):
    """The sizes of an index. live: queries that match newer objects; tombstones: deleted ones
    not yet purged; postings: stored entries, dead ones included; bytes: memory held, slack
    included."""

    live: int
    tombstones: int
    postings: int
    bytes: int


class StoredCensus(NamedTuple):
    """The stored postings by cell, one row for each tag cell that has live ones, in no order:
    the number of live postings, and the bytes of their queries, each counted whole once a
    posting (Definition 3 of algorithms.md 1.8)."""

    cell: U32
    queries: I64
    bytes: I64


class Index(Protocol):
    """The queries of one worker. Single-threaded; LSNs are those of rows.py."""

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores the inserts among `rows` under their tags (ragged; cells as in WorkerUpdates).
        A handle that is stored already stays as it is."""

    def extend(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores rows like `insert`, but a handle that is stored, perhaps deleted at an LSN that
        the watermark has not reached, is then found under these tags too, none of which it may
        have already. A handle that was deleted before that is stored anew, as one never seen:
        transferred queries must be deleted after they were extended."""

    def delete(self, handles: I64, lsns: I64) -> None:
        """Ends these queries at these LSNs; unknown and ended ones are passed over."""

    def drop(self, keep: Callable[[U32, U64], Mask]) -> None:
        """Drops what is stored under units (cell, term) for which `keep`, given columns of them,
        is false, and the queries that are then stored under none."""

    def drop_shards(self, keep: Callable[[U32, U64, U64], Mask]) -> None:
        """Drops postings likewise, of units whose queries are divided among workers: `keep` is
        given a row a posting, with the place of its query behind cell and term, as in QueryTags."""

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
        """Returns all (object, query) pairs with insert_lsn <= lsn < delete_lsn, each once, that
        this index must emit: those whose smallest posting term in the object's terms is a tag
        here (algorithms.md 6.6). Terms are sorted and unique in each row. `chosen` are the terms
        that chose this worker, as in RoutedObjects; nothing is found under others. `value` are
        the values that queries compare, as there."""

    def met(self) -> MetPostings:
        """Returns what the objects of the last `match` met, whether it matched or not."""

    def purge(self, watermark: int) -> None:
        """Notes that no object below this LSN will arrive: queries deleted up to it may go."""

    def sweep(self, budget: int) -> int:
        """Searches up to `budget` lists for postings that may go; returns how many it removed."""

    def hold(self) -> Parts:
        """Returns the arrays of the index as views, to be copied by another thread: nothing in
        them changes until `release`. Until then only `match`, `census` and `stats` may be
        called, and `purge` and `sweep`, which do nothing."""

    def release(self) -> None:
        """Allows changes again after `hold`; idempotent."""

    def census(self, slices: int = 1, level: int = 0) -> Iterator[StoredCensus | None]:
        """Counts what is stored by cell of `level`; what is stored on coarser levels, by the
        cells of those. Yields the census at the end of at most 2 * `slices` steps, and None
        before. Anything may be done between the steps: what then changes is counted as it was or
        as it is, or left out."""

    def postings(self, lsn: int) -> int:
        """Counts the postings of queries that were live at this LSN, if none of these was
        purged. Looks at every query."""

    def stats(self) -> IndexStats:
        """Returns the current sizes; cheap."""
