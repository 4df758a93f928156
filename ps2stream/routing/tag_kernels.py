"""Kernels of tags: they expand queries into tags and divide tags among workers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U32, U64
from ps2stream.routing.unit_kernels import U16

_ONE = np.uint64(1)


class SplitTags(NamedTuple):
    """The tags of all workers, one worker's behind the other's: row int64[k] and the number of
    its tags, size int64[k]; cell uint32[], term uint64[]. C-contiguous, writable."""

    row: I64
    size: I64
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
def group_tags(tag_off: I64, tag_worker: U16, workers: int, row_n: I64, tag_n: I64) -> None:
    """Adds to row_n[w] the number of rows with a tag of worker w, and to tag_n[w] the number of
    these tags."""
    seen = np.full(workers, -1, np.int64)
    for r in range(len(tag_off) - 1):
        for k in range(tag_off[r], tag_off[r + 1]):
            w = tag_worker[k]
            tag_n[w] += 1
            if seen[w] != r:
                seen[w] = r
                row_n[w] += 1


@njit(cache=True, nogil=True)
def split_tags(
    tags: tuple[I64, U32, U64, U16],
    row_at: I64,
    tag_at: I64,
    shares: tuple[I64, I64, U32, U64],
) -> None:
    """Groups tags by worker and keeps the order of rows and tags. Worker w's rows and sizes go to
    the columns of `shares` from row_at[w] on, and its tags from tag_at[w] on; row_at and tag_at
    are advanced. tags, shares: plain tuples of the fields of QueryTags and SplitTags, which a
    kernel takes faster from Python than the classes themselves."""
    tag_off, tag_cell, tag_term, tag_worker = tags
    out = SplitTags(*shares)
    out_row, out_size, out_cell, out_term = out.row, out.size, out.cell, out.term
    seen = np.full(len(row_at), -1, np.int64)
    for r in range(len(tag_off) - 1):
        for k in range(tag_off[r], tag_off[r + 1]):
            w = tag_worker[k]
            if seen[w] != r:
                seen[w] = r
                out_row[row_at[w]] = r
                out_size[row_at[w]] = 0
                row_at[w] += 1
            out_size[row_at[w] - 1] += 1
            out_cell[tag_at[w]] = tag_cell[k]
            out_term[tag_at[w]] = tag_term[k]
            tag_at[w] += 1
