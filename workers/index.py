"""The Index port: what a worker asks of the structure that holds its queries.

Nothing here assumes GI2 (PS2Stream section IV-D: other structures may be used). Tags
say where a query is to be found; an index is free to store them in any way, as long as
`match` gives exactly the pairs that the definition gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U32, U64, Array
from ps2stream.protocol.rows import QueryRows

Parts = Mapping[str, Array]
"""All that an index consists of, by name: enough to make it anew."""


class Saved(NamedTuple):
    """An index as it was when all updates up to `lsn`, and no others, were in it; `route`: of
    the plan that it was laid out by."""

    lsn: int
    parts: Parts
    route: int = 0


Mask = NDArray[np.bool_]


class Matches(NamedTuple):
    """Pairs of a batch, in no order: row of the object, handle and session of the query."""

    row: U32
    handle: I64
    session: I64


class Met(NamedTuple):
    """Postings met under a term of the object: base int64[n], by each object on the base
    level; levels int64[16], on the others."""

    base: I64
    levels: I64


class IndexStats(NamedTuple):
    """live: queries that match newer objects; tombstones: deleted ones not yet purged;
    postings: stored entries, dead ones included; bytes: memory held, slack included."""

    live: int
    tombstones: int
    postings: int
    bytes: int


class Census(NamedTuple):
    """What is stored by cell, a row a tag cell with something, in no order: live postings,
    and the bytes of their queries, each counted whole once a posting (Definition 3 of
    algorithms.md 1.8)."""

    cell: U32
    queries: I64
    bytes: I64


class Index(Protocol):
    """The queries of one worker. Single-threaded; LSNs in the sense of rows.py."""

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Store the inserts among `rows` under their tags (ragged; cells as in
        WorkerUpdates). A handle that is stored already stays as it is."""

    def extend(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Like `insert`, but a handle that is stored, perhaps deleted at an LSN that the
        watermark has not reached, is found under these tags too, none of which it may have
        already. One deleted before that is stored anew, as one never seen: what is loaded
        must be deleted after it was extended."""

    def delete(self, handles: I64, lsns: I64) -> None:
        """End these queries at these LSNs; those that are unknown or ended are passed over."""

    def drop(self, keep: Callable[[U32, U64], Mask]) -> None:
        """Forget what is stored under units (cell, term) for which `keep`, given columns of
        them, is false; and queries that are then stored under none."""

    def match(self, lsn: int, lon: F64, lat: F64, term_off: I64, term: U64) -> Matches:
        """All (object, query) pairs with insert_lsn <= lsn < delete_lsn, each once, that
        this index must emit: those whose smallest posting term in the object's terms is
        a tag here (algorithms.md 6.6). Terms are sorted and unique a row."""

    def met(self) -> Met:
        """What the objects of the last `match` met, whether it matched or not."""

    def purge(self, watermark: int) -> None:
        """No object below this LSN will come: queries deleted up to it may go."""

    def sweep(self, budget: int) -> int:
        """Look at up to `budget` lists for postings that may go; how many went."""

    def hold(self) -> Parts:
        """What it consists of, as views, to be copied from another thread: until `release`
        nothing in them changes. Meanwhile only `match`, `census` and `stats` may be called, and
        `purge` and `sweep`, which do nothing."""

    def release(self) -> None:
        """Go on; idempotent."""

    def census(self, slices: int = 1, level: int = 0) -> Iterator[Census | None]:
        """What is stored, by cell of `level`; of coarser levels by their own cells. Comes at
        the end of at most 2 * `slices` steps, None before, between which anything may be done:
        what then changes is counted as it was or as it is, or left out."""

    def postings(self, lsn: int) -> int:
        """How many there are of queries that lived at this LSN, if none of them was purged. Looks
        at every query."""

    def stats(self) -> IndexStats:
        """Current sizes; cheap."""
