"""Asking for the memory that the next updates need, so that their cache misses overlap."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers.radix.layout import (
    BLOCK,
    BUCKET,
    CELL_BITS,
    DIRECTORY_SIZE,
    FIRST,
    INNER,
    KIND_MASK,
    LOW,
    NO_WORD,
    REF_MASK,
    SECOND,
    SESSION,
    STEP_BITS,
    find_entry,
    home,
    root_at,
    step_x,
    step_y,
)
from ps2stream.workers.radix.pointers import prefetch
from ps2stream.workers.radix.tag_kernels import list_posting_terms
from ps2stream.workers.radix.vectors import lowest_bit

_FORM_ALL = int(ExpressionForm.ALL)
_ONE_BIT = np.uint64(1)


@njit(inline="always")
def _ask_for_entry(index, term, x, y):
    at = home(term, root_at(x, y), index.state[DIRECTORY_SIZE])
    prefetch(index.directory, BUCKET * at)


@njit(inline="always")
def _ask_for_leaf(index, term, x, y):
    at = find_entry(index.directory, index.state[DIRECTORY_SIZE], term, root_at(x, y))
    ref = np.int64(index.directory[at] & LOW)
    if ref & INNER:
        ref &= REF_MASK
        below, last = STEP_BITS - CELL_BITS[2], (1 << (CELL_BITS[2] - CELL_BITS[1])) - 1
        prefetch(index.nodes, ref)
        child = ((y >> below) & last) << (CELL_BITS[2] - CELL_BITS[1])
        prefetch(index.nodes, ref + 1 + child + ((x >> below) & last))
    elif ref != 0:
        prefetch(index.nodes, ref)
        prefetch(index.nodes, ref + 8)
        prefetch(index.nodes, ref + 16)


@njit(inline="always")
def ask_for_row(rows, r, index, leaves):
    """Asks for the entries of the directory under which row r will be stored, at the corner of its
    first box; or if these are there, `leaves`, for what they refer to."""
    box = rows.box_off[r]
    x, y = step_x(rows.box[box]), step_y(rows.box[box + 1])
    posting = rows.post[r]
    if np.int64(rows.form[r]) == _FORM_ALL:
        posting &= ~posting + _ONE_BIT
    while posting != NO_WORD:
        term = rows.term[rows.term_off[r] + lowest_bit(posting)]
        posting &= posting - _ONE_BIT
        if leaves:
            _ask_for_leaf(index, term, x, y)
        else:
            _ask_for_entry(index, term, x, y)


@njit(inline="always")
def ask_for_blocks(index, slot):
    """Asks for the blocks of a slot, whose line is there."""
    slots_i = index.slots_i
    if slots_i[8 * slot + SESSION] & KIND_MASK == BLOCK:
        prefetch(index.pool, slots_i[8 * slot + FIRST])
        prefetch(index.pool, slots_i[8 * slot + SECOND])


@njit(inline="always")
def ask_for_trees(index, slot, term, leaves):
    """Asks for the entries of the directory that a slot is under, like `ask_for_row`; `term` has
    room for its posting terms."""
    x, y = step_x(index.slots_f[8 * slot]), step_y(index.slots_f[8 * slot + 1])
    for i in range(list_posting_terms(index.slots_i, index.pool, slot, term)):
        if leaves:
            _ask_for_leaf(index, term[i], x, y)
        else:
            _ask_for_entry(index, term[i], x, y)
