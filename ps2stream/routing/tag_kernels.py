"""Kernels of tags: they expand queries into tags and divide tags among workers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import F64, I64, U8, U32, U64
from ps2stream.routing.shard_kernels import choose_shard
from ps2stream.routing.unit_kernels import FIRST_GROUP, U16, owners
from ps2stream.space.space_kernels import cover_cells, cover_sizes

_ONE = np.uint64(1)


class SplitTags(NamedTuple):
    """The tags of all workers, one worker's behind the other's. Worker w has the rows row_at[w] to
    row_at[w + 1] of `row` int64[], the tags tag_at[w] to tag_at[w + 1] of cell uint32[] and term
    uint64[], and the offsets from row_at[w] + w on in `off` int64[], one more than rows."""

    row_at: I64
    tag_at: I64
    row: I64
    off: I64
    cell: U32
    term: U64


@njit(cache=True, nogil=True)
def tag_sizes(cell_off: I64, post: U64, tag_off: I64) -> None:
    """Sets tag_off[r + 1] to the number of tags of rows 0..r, each cells times posting terms."""
    for r in range(len(post)):
        n = 0
        bits = post[r]
        while bits:
            bits &= bits - _ONE
            n += 1
        tag_off[r + 1] = tag_off[r] + n * (cell_off[r + 1] - cell_off[r])


@njit(cache=True, nogil=True)
def expand_tags(
    cell_off: I64, cell: U32, post: U64, term_off: I64, term: U64, tag_cell: U32, tag_term: U64
) -> None:
    """Fills in the tags of each row: its cells times its terms whose `post` bit is set, with the
    cells as the outer loop."""
    k = 0
    for r in range(len(post)):
        for c in range(cell_off[r], cell_off[r + 1]):
            for t in range(term_off[r], term_off[r + 1]):
                if (post[r] >> np.uint64(t - term_off[r])) & _ONE:
                    tag_cell[k] = cell[c]
                    tag_term[k] = term[t]
                    k += 1


@njit(cache=True, nogil=True)
def measure_tags(
    boxes: tuple[I64, F64], grid: tuple[F64, int], post: U64, level: U8, off: I64
) -> None:
    """Fills level uint8[n] and off int64[2, n + 1]: the offsets of the cells and of the tags of
    each row. boxes: offsets and boxes as in QueryRows; grid: `lines` and `max_cells` of a Grid."""
    lines, max_cells = grid
    box_off, box = boxes
    cover_sizes(box_off, box, lines, max_cells, level, off[0])
    tag_sizes(off[0], post, off[1])


@njit(cache=True, nogil=True)
def list_tags(
    boxes: tuple[I64, F64],
    grid: tuple[F64, int],
    terms: tuple[U64, I64, U64],
    level: U8,
    off: I64,
    h1: tuple[U32, U8, I64, U16, U32, I64, U16, U64, U64, U64],
    workers: int,
    tags: tuple[U32, U64, U16],
) -> None:
    """Fills in the tags of rows that `measure_tags` has measured: cells, terms and owners by H1.
    terms: the columns `post`, `term_off` and `term` of QueryRows; h1: as in `owners`."""
    lines, _ = grid
    box_off, box = boxes
    post, term_off, term = terms
    tag_cell, tag_term, tag_worker = tags
    cell = np.empty(off[0, len(post)], np.uint32)
    cover_cells(box_off, box, lines, level, off[0], cell)
    expand_tags(off[0], cell, post, term_off, term, tag_cell, tag_term)
    owners(tag_cell, tag_term, h1, workers, tag_worker)


@njit(cache=True, nogil=True)
def find_only_owner(tag_off: I64, tag_worker: U16) -> int:
    """Returns the worker that owns all tags, if there is one and each row has a tag; else -1."""
    for r in range(len(tag_off) - 1):
        if tag_off[r + 1] == tag_off[r]:
            return -1
    for k in range(len(tag_worker)):
        if tag_worker[k] != tag_worker[0]:
            return -1
    return int(tag_worker[0]) if len(tag_worker) else -1


@njit(cache=True, nogil=True)
def hold_tags(
    tags: tuple[I64, U32, U64, U16, U64],
    groups: tuple[I64, U16, U8],
    other: U16,
    others: tuple[I64, U16, U8],
) -> tuple[I64, U32, U64, U16, U64]:
    """Returns tags in which each appears once for each worker that holds it: its owner, or of its
    group all, or the one that has its shard, and those of its owner in `other`, if that is not
    empty. tags: a plain tuple of the fields of QueryTags; groups, others: of WorkerGroups, by which
    the owners and `other` are numbered."""
    tag_off, tag_cell, tag_term, owner, place = tags
    most = 1
    for g in range(len(groups[0]) - 1):
        most = max(most, groups[0][g + 1] - groups[0][g])
    for g in range(len(others[0]) - 1):
        most = max(most, others[0][g + 1] - others[0][g])
    held = np.empty(2 * most, np.uint16)
    none: Any = np.int64(0)  # a constant would be a type of its own
    off = np.zeros(len(tag_off), np.int64)
    n = 0
    for r in range(len(tag_off) - 1):
        for k in range(tag_off[r], tag_off[r + 1]):
            found = _list_holders(owner[k], tag_term[k], place[r], groups, held, none)
            if len(other):
                found = _list_holders(other[k], tag_term[k], place[r], others, held, found)
            n += found
        off[r + 1] = n
    cell, term = np.empty(n, np.uint32), np.empty(n, np.uint64)
    worker = np.empty(n, np.uint16)
    at = 0
    for r in range(len(tag_off) - 1):
        for k in range(tag_off[r], tag_off[r + 1]):
            found = _list_holders(owner[k], tag_term[k], place[r], groups, held, none)
            if len(other):
                found = _list_holders(other[k], tag_term[k], place[r], others, held, found)
            for j in range(found):
                cell[at], term[at], worker[at] = tag_cell[k], tag_term[k], held[j]
                at += 1
    return off, cell, term, worker, place


@njit(cache=True, nogil=True)
def _list_holders(
    owner: int, term: np.uint64, place: np.uint64, groups: tuple[I64, U16, U8], held: U16,
    found: int,
) -> int:  # fmt: skip
    """Writes the workers of an owner that hold this posting, and are not among the first `found` of
    `held`, behind them; returns how many there are then."""
    off, worker, sharded = groups
    first, last = 0, 1
    alone = np.uint16(owner)
    if owner >= FIRST_GROUP and sharded[owner - FIRST_GROUP]:
        alone = choose_shard(owner - FIRST_GROUP, term, place, groups)
    elif owner >= FIRST_GROUP:
        first, last = off[owner - FIRST_GROUP], off[owner - FIRST_GROUP + 1]
    n = found
    for i in range(first, last):
        new = worker[i] if last - first > 1 else alone
        is_new = True
        for j in range(found):
            is_new &= held[j] != new
        if is_new:
            held[n] = new
            n += 1
    return n


@njit(cache=True, nogil=True)
def split_tags(
    tags: tuple[I64, U32, U64, U16, U64], workers: int
) -> tuple[I64, I64, I64, I64, U32, U64]:
    """Groups tags by worker and keeps the order of rows and tags; returns the fields of SplitTags.
    tags: a plain tuple of the fields of QueryTags, which a kernel takes faster from Python than
    the class itself."""
    tag_off, tag_cell, tag_term, tag_worker, _ = tags
    row_at, tag_at = np.zeros(workers + 1, np.int64), np.zeros(workers + 1, np.int64)
    seen = np.full(workers, -1, np.int64)
    for r in range(len(tag_off) - 1):
        for k in range(tag_off[r], tag_off[r + 1]):
            w = tag_worker[k]
            tag_at[w + 1] += 1
            if seen[w] != r:
                seen[w] = r
                row_at[w + 1] += 1
    for w in range(workers):
        row_at[w + 1] += row_at[w]
        tag_at[w + 1] += tag_at[w]
    row = np.empty(row_at[workers], np.int64)
    off = np.empty(row_at[workers] + workers, np.int64)
    cell = np.empty(tag_at[workers], np.uint32)
    term = np.empty(tag_at[workers], np.uint64)
    to_row, to_tag = row_at.copy(), tag_at.copy()
    for w in range(workers):
        seen[w] = -1
        off[row_at[w] + w] = 0
    for r in range(len(tag_off) - 1):
        for k in range(tag_off[r], tag_off[r + 1]):
            w = np.int64(tag_worker[k])
            if seen[w] != r:
                seen[w] = r
                row[to_row[w]] = r
                to_row[w] += 1
            cell[to_tag[w]] = tag_cell[k]
            term[to_tag[w]] = tag_term[k]
            to_tag[w] += 1
            off[to_row[w] + w] = to_tag[w] - tag_at[w]
    return row_at, tag_at, row, off, cell, term
