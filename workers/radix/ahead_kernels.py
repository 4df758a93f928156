"""Asking for the memory that the next updates need, so that their cache misses overlap.

It is done for a group of rows or slots at a time, in stages: for all of them the directory, then
the trees level by level, then the leaves, then what of these is read and written. A stage asks for
lines and the next one reads them. Nothing is changed.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers.radix.arrays import WALKS_AHEAD
from ps2stream.workers.radix.cell_kernels import prefetch_cells
from ps2stream.workers.radix.layout import (
    BLOCK,
    BUCKET,
    CAPACITY,
    CELL_BITS,
    DIRECTORY_SIZE,
    INNER,
    KEPT,
    KIND_MASK,
    LANES,
    LOW,
    NO_WORD,
    REF_MASK,
    ROOT_BITS,
    SECOND,
    SESSION,
    STEP_BITS,
    WIDE,
    block_class,
    block_length,
    expression_of,
    find_entry,
    home,
    step_x,
    step_y,
)
from ps2stream.workers.radix.leaf_kernels import locate_posting
from ps2stream.workers.radix.place_kernels import prefetch_place
from ps2stream.workers.radix.pointers import prefetch
from ps2stream.workers.radix.tag_kernels import list_posting_terms
from ps2stream.workers.radix.tree_kernels import find_children, place_root
from ps2stream.workers.radix.vectors import lowest_bit

GROUP = 32  # rows or slots
_FORM_ALL = int(ExpressionForm.ALL)
_ONE_BIT = np.uint64(1)
_WORDS = 8  # of a walk: term and root cell, or ref, depth and corner of the cell; box in steps


@njit(inline="always")
def _box_of(boxes, at):
    """Returns the box at boxes[at] in steps."""
    return step_x(boxes[at]), step_y(boxes[at + 1]), step_x(boxes[at + 2]), step_y(boxes[at + 3])


@njit(inline="always")
def _start_walks(index, walks, n, term, box):
    """Appends walks through the trees of a term that a box touches to the n of `walks`, and asks
    for their entries of the directory; returns the new number."""
    shift = STEP_BITS - ROOT_BITS
    c0, c1, r0, r1 = box[0] >> shift, box[2] >> shift, box[1] >> shift, box[3] >> shift
    wide = (c1 - c0 + 1) * (r1 - r0 + 1) > KEPT
    if wide:
        c1, r1 = c0, r0
    for row in range(r0, r1 + 1):
        for column in range(c0, c1 + 1):
            if n == WALKS_AHEAD:
                return n
            root = WIDE if wide else 1 + row * (1 << ROOT_BITS) + column
            prefetch(index.directory, BUCKET * home(term, root, index.state[DIRECTORY_SIZE]))
            w = _WORDS * n
            walks[w], walks[w + 1] = np.int64(term), root
            walks[w + 4], walks[w + 5], walks[w + 6], walks[w + 7] = box
            n += 1
    return n


@njit(inline="always")
def _set_walk(walks, k, ref, depth, x, y, box):
    w = _WORDS * k
    walks[w], walks[w + 1], walks[w + 2], walks[w + 3] = ref, depth, x, y
    walks[w + 4], walks[w + 5], walks[w + 6], walks[w + 7] = box


@njit(inline="always")
def _ask_for_inner(nodes, ref, depth, x, y, box):
    """Asks for the lines of an inner node that lead to a box."""
    i0, _, j0, j1, _ = find_children(box, depth, x, y)
    line = CELL_BITS[depth + 1] - CELL_BITS[depth]
    prefetch(nodes, ref)
    prefetch(nodes, ref + 1 + (j0 << line) + i0)
    prefetch(nodes, ref + 1 + (j1 << line) + i0)


@njit(cache=True, nogil=True)
def _follow_walks(index, walks, n, leaves):
    """Walks to the leaves that the first n of `walks` lead to, as far as there is room, and asks
    for their heads; fills in `leaves`, and returns their number."""
    nodes, directory, found, started = index.nodes, index.directory, 0, n
    n = 0
    for k in range(started):
        w = _WORDS * k
        root, box = walks[w + 1], (walks[w + 4], walks[w + 5], walks[w + 6], walks[w + 7])
        at = find_entry(directory, index.state[DIRECTORY_SIZE], np.uint64(walks[w]), root)
        ref = np.int64(directory[at] & LOW)
        if ref & INNER != 0:
            depth, x, y = place_root(root)
            _ask_for_inner(nodes, ref & REF_MASK, depth, x, y, box)
            _set_walk(walks, n, ref & REF_MASK, depth, x, y, box)
            n += 1
        elif ref != 0:
            prefetch(nodes, ref)
            leaves[found] = ref
            found += 1
    k = 0
    while k < n:
        w = _WORDS * k
        inner, depth, x, y = walks[w], walks[w + 1], walks[w + 2], walks[w + 3]
        box = walks[w + 4], walks[w + 5], walks[w + 6], walks[w + 7]
        k += 1
        i0, i1, j0, j1, kept = find_children(box, depth, x, y)
        line = CELL_BITS[depth + 1] - CELL_BITS[depth]
        size = STEP_BITS - CELL_BITS[depth + 1]
        if kept:
            i0, i1, j0, j1 = 0, 0, 0, 0
        for j in range(j0, j1 + 1):
            for i in range(i0, i1 + 1):
                ref = np.int64(nodes[inner if kept else inner + 1 + (j << line) + i] & LOW)
                if ref & INNER != 0:
                    if n == WALKS_AHEAD:
                        continue
                    ref &= REF_MASK
                    cx, cy = x + (i << size), y + (j << size)
                    _ask_for_inner(nodes, ref, depth + 1, cx, cy, box)
                    _set_walk(walks, n, ref, depth + 1, cx, cy, box)
                    n += 1
                elif ref != 0 and found < WALKS_AHEAD:
                    prefetch(nodes, ref)
                    leaves[found] = ref
                    found += 1
    return found


@njit(inline="always")
def _measure_leaf(index, ref):
    head = index.nodes[ref]
    return CAPACITY[block_class(head)], block_length(head)


@njit(cache=True, nogil=True)
def ask_for_rows(rows, tags, first, end, index, scratch):
    """Asks for what it takes to store the rows first..end - 1, at most GROUP: where their handles
    go and their tags are counted, and the leaves that their first boxes touch. Returns the number
    of these, which are in the scratch."""
    walks, leaves, n = scratch.walks, scratch.leaves, np.int64(0)
    for r in range(first, end):
        prefetch_place(index, rows.handle[r])
        prefetch_cells(index, tags.cell, tags.off[r], tags.off[r + 1])
        box = _box_of(rows.box, rows.box_off[r])
        posting = rows.post[r]
        if np.int64(rows.form[r]) == _FORM_ALL:
            posting &= ~posting + _ONE_BIT
        while posting != NO_WORD:
            term = rows.term[rows.term_off[r] + lowest_bit(posting)]
            posting &= posting - _ONE_BIT
            n = _start_walks(index, walks, n, term, box)
    found = _follow_walks(index, walks, n, leaves)
    for k in range(found):
        cap, length = _measure_leaf(index, leaves[k])
        rect, word, prints = locate_posting(leaves[k], cap, length)
        prefetch(index.n32, word)
        prefetch(index.n16, prints)
        for i in range(0, length + 1, LANES):  # all rectangles, as a twin is looked for
            prefetch(index.n32, rect - i)
    return found


@njit(inline="always")
def ask_for_blocks(index, slot):
    """Asks for the blocks of a slot, whose line is there."""
    slots_i = index.slots_i
    if slots_i[8 * slot + SESSION] & KIND_MASK == BLOCK:
        prefetch(index.pool, expression_of(slots_i, slot))
        prefetch(index.pool, slots_i[8 * slot + SECOND])


@njit(cache=True, nogil=True)
def ask_for_slots(slots, first, end, index, scratch):
    """Asks for what it takes to remove the postings of slots[first:end], at most GROUP; returns the
    number of leaves, like `ask_for_rows`."""
    walks, leaves, term, n = scratch.walks, scratch.leaves, scratch.tag_term, np.int64(0)
    for k in range(first, end):
        prefetch(index.slots_i, 8 * slots[k])
    for k in range(first, end):
        ask_for_blocks(index, slots[k])
    for k in range(first, end):
        box = _box_of(index.slots_f, 8 * slots[k])
        for i in range(list_posting_terms(index.slots_i, index.pool, slots[k], term)):
            n = _start_walks(index, walks, n, term[i], box)
    found = _follow_walks(index, walks, n, leaves)
    for k in range(found):
        cap, length = _measure_leaf(index, leaves[k])
        rect, word, prints = locate_posting(leaves[k], cap, length - 1)
        prefetch(index.n32, rect)
        prefetch(index.n16, prints)
        for i in range(0, length, LANES):  # all slots, as that of the posting is looked for
            prefetch(index.n32, word - i)
    return found
