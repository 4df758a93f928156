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
from ps2stream.routing.shard_kernels import hash_places
from ps2stream.routing.tag_kernels import (
    SplitTags,
    find_only_owner,
    hold_tags,
    list_tags,
    measure_tags,
    split_tags,
)
from ps2stream.routing.unit_kernels import U16
from ps2stream.space.grid import Grid


class QueryTags(NamedTuple):
    """The postings of query rows. Row i has the tags off[i]..off[i + 1]. cell: level << 28 |
    cell on that level; worker: the owner by H1, which may be a group (H1.holders). place uint64[n]:
    of each row, a hash of its first box, by which sharded units divide queries."""

    off: I64
    cell: U32
    term: U64
    worker: U16
    place: U64

    def of(self, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> QueryTags:
        """Returns the tags of the rows where the mask is true."""
        size = np.diff(self.off)
        kept = np.repeat(rows, size)
        off = np.r_[0, np.cumsum(size[rows])]
        return QueryTags(off, self.cell[kept], self.term[kept], self.worker[kept], self.place[rows])

    @property
    def tag_place(self) -> U64:
        """The place of the query of each tag, uint64[tags]."""
        return np.repeat(self.place, np.diff(self.off))


class TagShare(NamedTuple):
    """The share of one worker in some Tags: row numbers, and their tags, ragged."""

    row: I64
    off: I64
    cell: U32
    term: U64


ROW_TAG_BYTES, TAG_BYTES = 8, 12
"""The bytes that a row of tags takes, an offset, and those of a tag: its cell and its term."""

_NO_HOLDERS = np.zeros(0, np.uint16)
_NO_SHARE = TagShare(
    np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.uint64)
)


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
        self._lines = grid.lines, grid.max_cells

    def expand(self, rows: QueryRows) -> QueryTags:
        """Returns the tags of inserts or deletes: cells of the bounding boxes times posting
        terms."""
        n = len(rows)
        boxes, post = (sealed(rows.box_off), sealed(rows.box)), sealed(rows.post)
        level, offsets = np.empty(n, np.uint8), np.zeros((2, n + 1), np.int64)
        measure_tags(boxes, self._lines, post, level, offsets)
        off = offsets[1]
        tags = int(off[n])
        tag_cell, tag_term = np.empty(tags, np.uint32), np.empty(tags, np.uint64)
        worker, place = np.empty(tags, np.uint16), np.empty(n, np.uint64)
        terms = post, sealed(rows.term_off), sealed(rows.term)
        list_tags(
            boxes, self._lines, terms, level, offsets,
            self.h1.arrays, self.h1.workers, (tag_cell, tag_term, worker),
        )  # fmt: skip
        hash_places(boxes[0], boxes[1].view(np.uint64), place)
        if self.young is not None:
            new = np.repeat(rows.handle > self.apart, np.diff(off))
            worker[new] = self.young.owners(tag_cell[new], tag_term[new])  # it has no replicas
        return QueryTags(off, tag_cell, tag_term, worker, place)

    def list_holders(self, tags: QueryTags) -> QueryTags:
        """Returns the tags with all workers that hold them, which are more than their owners where
        units are replicated, and during a migration. Of a sharded unit each tag has one."""
        other = self.other
        if other is None and not len(self.h1.groups):
            return tags
        holder = _NO_HOLDERS if other is None else other.holders(tags.cell, tags.term)
        groups = self.h1.groups if other is None else other.groups
        return QueryTags(*hold_tags((*tags,), (*self.h1.groups,), holder, (*groups,)))

    def split(self, tags: QueryTags) -> list[TagShare]:
        """Returns the tags of each worker, by worker number; a share may be empty."""
        m = max(h1.workers for h1 in (self.h1, self.other, self.young) if h1 is not None)
        tags = self.list_holders(tags)
        if (only := find_only_owner(tags.off, tags.worker)) >= 0:
            shares = [_NO_SHARE] * m
            shares[only] = TagShare(np.arange(len(tags.off) - 1), *tags[:3])
            return shares
        split = SplitTags(*split_tags((*tags,), m))
        row_at, tag_at = split.row_at.tolist(), split.tag_at.tolist()
        return [
            TagShare(
                split.row[row_at[w] : row_at[w + 1]],
                split.off[row_at[w] + w : row_at[w + 1] + w + 1],
                split.cell[tag_at[w] : tag_at[w + 1]],
                split.term[tag_at[w] : tag_at[w + 1]],
            )
            for w in range(m)
        ]


def starts(sizes: I64) -> I64:
    """Returns the offsets of a ragged column whose rows have these sizes."""
    out = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def measure_gain(row_bytes: I64, tags: I64) -> I64:
    """Returns the bytes that a worker gains with each row, int64[n]: those of the row
    (QueryRows.measure_rows) and of the tags of it that it gains, of which there is at least one.
    They do not depend on the chunks in which the rows come, so that they can be predicted."""
    return row_bytes + ROW_TAG_BYTES + TAG_BYTES * tags
