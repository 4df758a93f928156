"""Tags: the postings of queries, (level, cell, term) with the worker that owns them by H1.

Dispatchers and workers expand queries alike: a dispatcher in order to send each worker its
postings, a worker in order to rebuild its share from the ledger.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U32, U64, sealed
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.h1 import H1
from ps2stream.routing.tag_kernels import expand_tags, group_tags, split_tags, tag_sizes
from ps2stream.routing.unit_kernels import U16
from ps2stream.space.grid import Grid


class QueryTags(NamedTuple):
    """The postings of query rows. Row i has the tags off[i]..off[i + 1]. cell: level << 28 |
    cell on that level; worker: the owner by H1."""

    off: I64
    cell: U32
    term: U64
    worker: U16

    def with_owners(self, other: U16) -> QueryTags:
        """Returns tags where each one also appears for its worker in `other`, if that is a
        different one."""
        twice = np.stack([self.worker, other], 1).ravel()
        kept = np.ones(len(twice), bool)
        kept[1::2] = self.worker != other
        off = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=off[1:])
        cell, term = np.repeat(self.cell, 2)[kept], np.repeat(self.term, 2)[kept]
        return QueryTags(off[2 * self.off], cell, term, twice[kept])

    def of(self, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> QueryTags:
        """Returns the tags of the rows where the mask is true."""
        size = np.diff(self.off)
        kept = np.repeat(rows, size)
        off = np.r_[0, np.cumsum(size[rows])]
        return QueryTags(off, self.cell[kept], self.term[kept], self.worker[kept])


class TagShare(NamedTuple):
    """The share of one worker in some Tags: row numbers, and their tags, ragged."""

    row: I64
    off: I64
    cell: U32
    term: U64


class QueryTagger:
    """Expands queries into tags under the plan of `h1`. During a migration `other` is the H1 of
    another plan, whose owners hold the queries too. Queries with a handle above `apart` have
    their owners by `young`."""

    def __init__(
        self,
        h1: H1,
        grid: Grid,
        other: H1 | None = None,
        young: H1 | None = None,
        apart: int = 0,
    ) -> None:
        self.h1 = h1
        self.other = other
        self.young = young
        self.apart = apart
        self.grid = grid

    def expand(self, rows: QueryRows) -> QueryTags:
        """Returns the tags of inserts or deletes: cells of the bounding boxes times posting
        terms."""
        cell_off, cell = self.grid.cover(rows.box_off, rows.box)
        off = np.zeros(len(rows) + 1, np.int64)
        tag_sizes(cell_off, sealed(rows.post), off)
        tag_cell = np.empty(off[-1], np.uint32)
        tag_term = np.empty(off[-1], np.uint64)
        expand_tags(
            cell_off, cell, sealed(rows.post), sealed(rows.term_off), sealed(rows.term),
            tag_cell, tag_term,
        )  # fmt: skip
        worker = self.h1.owners(tag_cell, tag_term)
        if self.young is not None:
            new = np.repeat(rows.handle > self.apart, np.diff(off))
            worker[new] = self.young.owners(tag_cell[new], tag_term[new])
        return QueryTags(off, tag_cell, tag_term, worker)

    def split(self, tags: QueryTags) -> list[TagShare]:
        """Returns the tags of each worker, by worker number; a share may be empty."""
        m = max(h1.workers for h1 in (self.h1, self.other, self.young) if h1 is not None)
        if self.other is not None:
            tags = tags.with_owners(self.other.owners(tags.cell, tags.term))
        row_n, tag_n = np.zeros(m, np.int64), np.zeros(m, np.int64)
        group_tags(tags.off, tags.worker, m, row_n, tag_n)
        row_at, tag_at = starts(row_n), starts(tag_n)
        row, size = np.empty(row_at[-1], np.int64), np.empty(row_at[-1], np.int64)
        cell, term = np.empty(tag_at[-1], np.uint32), np.empty(tag_at[-1], np.uint64)
        split_tags((*tags,), row_at[:-1].copy(), tag_at[:-1].copy(), (row, size, cell, term))
        shares = []
        for w in range(m):
            a, b = row_at[w : w + 2]
            c, d = tag_at[w : w + 2]
            shares.append(TagShare(row[a:b], starts(size[a:b]), cell[c:d], term[c:d]))
        return shares


def starts(sizes: I64) -> I64:
    """Returns the offsets of a ragged column whose rows have these sizes."""
    out = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=out[1:])
    return out
