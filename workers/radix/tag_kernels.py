"""The tags of a query in the radix GI2: computed, or listed where they are not all; and counted by
cell."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER, ExpressionForm
from ps2stream.routing.shard_kernels import hash_corner
from ps2stream.space.space_kernels import LEVEL_SHIFT as TAG_SHIFT
from ps2stream.space.space_kernels import span_box
from ps2stream.workers.radix.cell_kernels import count_tags
from ps2stream.workers.radix.layout import (
    BLOCK,
    BOTH,
    EITHER,
    FIRST,
    HANDLE,
    KIND_MASK,
    LEVEL_MASK,
    LEVEL_SHIFT,
    NO_WORD,
    ONE,
    SECOND,
    SESSION,
    SHORT_POST,
    SLOT_FREE,
    SLOT_TOP,
    X_BOX,
    X_DELETED,
    X_GEOM,
    X_HEAD,
    X_LIST,
    X_LISTED,
    expression_of,
    free_words,
    posted_terms,
    take_words,
)
from ps2stream.workers.radix.pointers import (
    advance,
    point_index,
    point_update_scratch,
    point_updated,
    pointer_at,
    pointer_to,
)
from ps2stream.workers.radix.tree_kernels import count_boxes

_ALL, _ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_ONE_BIT = np.uint64(1)
QUERY_BYTES, _WORD_BYTES = 64 + 16, 8


@njit(inline="always")
def count_ones(bits):
    """Returns the number of bits that are set."""
    n = np.int64(0)
    while bits != NO_WORD:
        bits &= bits - _ONE_BIT
        n += 1
    return n


@njit(cache=True, nogil=True)
def store_expression(pool, pool_free, state, form, post, n, program):
    """Takes a block for an expression of n terms and this many words of program, and fills in its
    head; returns its offset."""
    words = 1 + n + program + (n > SHORT_POST)
    at, cls = take_words(pool, pool_free, state, words)
    head = np.uint64(form | n << 8 | program << 16 | cls << 32)
    if n > SHORT_POST:
        pool[at + 1 + n + program] = post
    else:
        head |= post << np.uint64(40)
    pool[at] = head
    return at


@njit(cache=True, nogil=True)
def store_extras(pool, pool_free, state, shape, boxes, geometry):
    """Takes a block for what else there is to check of a live query without a list, with room for
    a second box and a geometry of this many words, if it has either; returns its offset."""
    words = X_GEOM + geometry if boxes > 1 or geometry > 0 else X_BOX
    at, cls = take_words(pool, pool_free, state, words)
    pool[at + X_DELETED] = np.uint64(NEVER)
    pool[at + X_HEAD] = np.uint64(shape | boxes << 8 | cls << 16 | geometry << 32)
    pool[at + X_LIST] = pool[at + X_LISTED] = np.uint64(0)
    return at


@njit(inline="always")
def name_terms(slots_i, slot):
    """Returns form, number of terms, posted terms and the terms of a slot without a block, as a
    block would have them."""
    kind = slots_i[8 * slot + SESSION] & KIND_MASK
    a, b = np.uint64(slots_i[8 * slot + FIRST]), np.uint64(slots_i[8 * slot + SECOND])
    n = 1 if kind == ONE else 2
    post = np.uint64(3) if kind == EITHER else np.uint64(1)
    if kind == BOTH and b < a:
        a, b, post = b, a, np.uint64(2)
    return (_ANY if kind == EITHER else _ALL), n, post, a, b


@njit(cache=True, nogil=True)
def add_extras(slots_i, pool, pool_free, state, slot):
    """Gives a slot extras, and so an expression of its own, unless it has them; returns their
    offset. The pool has room for both."""
    if slots_i[8 * slot + SESSION] & KIND_MASK != BLOCK:
        form, n, post, a, b = name_terms(slots_i, slot)
        at = store_expression(pool, pool_free, state, form, post, n, np.int64(0))
        pool[at + 1] = a
        if n == 2:
            pool[at + 2] = b
        slots_i[8 * slot + FIRST], slots_i[8 * slot + SECOND] = at, 0
        slots_i[8 * slot + SESSION] |= BLOCK
    if slots_i[8 * slot + SECOND] == 0:
        one = np.int64(1)
        slots_i[8 * slot + SECOND] = store_extras(pool, pool_free, state, one, one, one - 1)
    return slots_i[8 * slot + SECOND]


@njit(inline="always")
def free_list(pool, pool_free, extras):
    """Gives back the list of tags, if there is one."""
    at = np.int64(pool[extras + X_LIST])
    if at != 0:
        free_words(pool, pool_free, at, np.int64(pool[extras + X_LISTED] >> np.uint64(32)))
        pool[extras + X_LIST] = pool[extras + X_LISTED] = np.uint64(0)


@njit(cache=True, nogil=True)
def free_blocks(slots_i, pool, pool_free, slot):
    """Gives back the blocks of a slot."""
    if slots_i[8 * slot + SESSION] & KIND_MASK != BLOCK:
        return
    at, extras = expression_of(slots_i, slot), slots_i[8 * slot + SECOND]
    free_words(pool, pool_free, at, np.int64(pool[at] >> np.uint64(32)) & 255)
    if extras != 0:
        free_list(pool, pool_free, extras)
        free_words(pool, pool_free, extras, np.int64(pool[extras + X_HEAD] >> np.uint64(16)) & 255)


@njit(inline="always")
def deleted_at(slots_i, pool, slot):
    """Returns the LSN at which the query of a slot was deleted, or NEVER, as for a shared one."""
    if slots_i[8 * slot + SESSION] & KIND_MASK != BLOCK or slots_i[8 * slot + SECOND] == 0:
        return np.int64(NEVER)
    lsn = np.int64(pool[slots_i[8 * slot + SECOND] + X_DELETED])
    return lsn if lsn >= 0 else np.int64(NEVER)


@njit(cache=True, nogil=True)
def free_slot(slots_i, pool, pool_free, state, slot):
    """Frees a slot, and its blocks in the pool, that no tree refers to any more."""
    free_blocks(slots_i, pool, pool_free, slot)
    slots_i[8 * slot + HANDLE] = -2 - state[SLOT_FREE]
    slots_i[8 * slot + SESSION] = slots_i[8 * slot + FIRST] = slots_i[8 * slot + SECOND] = 0
    state[SLOT_FREE] = slot


@njit(inline="always")
def list_posting_terms(slots_i, pool, slot, term):
    """Fills in the posting terms of a slot, ascending; returns their number."""
    kind = slots_i[8 * slot + SESSION] & KIND_MASK
    if kind != BLOCK:
        term[0] = np.uint64(slots_i[8 * slot + FIRST])
        if kind != EITHER:
            return 1
        term[1] = np.uint64(slots_i[8 * slot + SECOND])
        return 2
    at, n = expression_of(slots_i, slot), 0
    post = posted_terms(pool, at)
    for i in range(np.int64(pool[at]) >> 8 & 255):
        if post >> np.uint64(i) & _ONE_BIT != 0:
            term[n] = pool[at + 1 + i]
            n += 1
    return n


@njit(inline="always")
def _span_box(x0, y0, x1, y1, lines, level):
    """Returns the first and last columns and rows that a closed box touches on a level."""
    c0, c1, r0, r1 = span_box(x0, y0, x1, y1, lines)
    lon_shift = min(2 * level, np.int64(lines[0]))
    lat_shift = min(2 * level, np.int64(lines[1]))
    return c0 >> lon_shift, c1 >> lon_shift, r0 >> lat_shift, r1 >> lat_shift


@njit(inline="always")
def span_slot(index, slot, lines, level):
    """Returns the spans of a slot's two boxes on a level, the span of a single box twice, that of
    the lower columns first."""
    slots_f, pool_f = index.slots_f, index.pool_f
    boxes, extras = count_boxes(index.slots_i, index.pool, slot)
    s = 8 * slot
    a = _span_box(slots_f[s], slots_f[s + 1], slots_f[s + 2], slots_f[s + 3], lines, level)
    if boxes == 1:
        return a, a
    s = extras + X_BOX
    b = _span_box(pool_f[s], pool_f[s + 1], pool_f[s + 2], pool_f[s + 3], lines, level)
    if b[0] < a[0]:
        return b, a
    return a, b


@njit(inline="always")
def count_cover(spans):
    """Returns the number of cells in two spans, each counted once."""
    a, b = spans
    n = max(a[1] - a[0] + 1, 0) * max(a[3] - a[2] + 1, 0)
    n += max(b[1] - b[0] + 1, 0) * max(b[3] - b[2] + 1, 0)
    wide = max(min(a[1], b[1]) - max(a[0], b[0]) + 1, 0)
    return n - wide * max(min(a[3], b[3]) - max(a[2], b[2]) + 1, 0)


@njit(inline="always")
def list_cover(spans, lon_bits, level, cell):
    """Fills in the tag cells of two spans, ascending, each once."""
    a, b = spans
    left = max(lon_bits - 2 * level, 0)
    at = 0
    for row in range(min(a[2], b[2]), max(a[3], b[3]) + 1):
        base = level << TAG_SHIFT | row << left
        following = np.int64(0)
        if a[2] <= row <= a[3]:
            for column in range(a[0], a[1] + 1):
                cell[at] = np.uint32(base | column)
                at += 1
            following = a[1] + 1
        if b[2] <= row <= b[3]:
            for column in range(max(b[0], following), b[1] + 1):
                cell[at] = np.uint32(base | column)
                at += 1


@njit(cache=True, nogil=True)
def count_slot_tags(index, slot, lines):
    """Returns the number of tags of a slot."""
    slots_i, pool = index.slots_i, index.pool
    posting = np.int64(1)
    kind = slots_i[8 * slot + SESSION] & KIND_MASK
    if kind == EITHER:
        posting = 2
    elif kind == BLOCK:
        extras = slots_i[8 * slot + SECOND]
        if extras != 0 and pool[extras + X_LIST] != NO_WORD:
            return np.int64(pool[extras + X_LISTED]) & 0xFFFFFFFF
        posting = count_ones(posted_terms(pool, expression_of(slots_i, slot)))
    level = slots_i[8 * slot + SESSION] >> LEVEL_SHIFT & LEVEL_MASK
    return posting * count_cover(span_slot(index, slot, lines, level))


@njit(cache=True, nogil=True)
def has_all_tags(post, n, g0, term, tags, t0, t1, index, scratch, lines, slot):
    """Returns whether these are all tags of a slot: all cells that it touches on its level times
    all posting terms, in that order."""
    level = index.slots_i[8 * slot + SESSION] >> LEVEL_SHIFT & LEVEL_MASK
    spans = span_slot(index, slot, lines, level)
    cells = count_cover(spans)
    posting = count_ones(post)
    if cells * posting != t1 - t0:
        return False
    list_cover(spans, np.int64(lines[0]), level, scratch.cell)
    k = t0
    for c in range(cells):
        for i in range(n):
            if post >> np.uint64(i) & _ONE_BIT != 0:
                if tags.cell[k] != scratch.cell[c] or tags.term[k] != term[g0 + i]:
                    return False
                k += 1
    return True


@njit(cache=True, nogil=True)
def bound_tags(first, most, grid, fields):
    """Returns the slot behind those from `first` on, one or more, that have at most this many
    tags, and the number of these; grid: the address of its lines; fields: a plain tuple of those of
    RadixArrays."""
    index, lines = point_index(fields), pointer_at(grid, np.float64)
    slot, n = first, np.int64(0)
    while slot < index.state[SLOT_TOP]:
        if index.slots_i[8 * slot + HANDLE] >= 0:
            tags = count_slot_tags(index, slot, lines)
            if n + tags > most and n != 0:
                break
            n += tags
        slot += 1
    return slot, n


@njit(cache=True, nogil=True)
def expand_slot(index, scratch, lines, slot, cell, term):
    """Fills in the tags of a slot, cells ascending; returns their number."""
    slots_i, pool = index.slots_i, index.pool
    if slots_i[8 * slot + SESSION] & KIND_MASK == BLOCK and slots_i[8 * slot + SECOND] != 0:
        extras = slots_i[8 * slot + SECOND]
        at = np.int64(pool[extras + X_LIST])
        if at != 0:
            n = np.int64(pool[extras + X_LISTED]) & 0xFFFFFFFF
            for k in range(n):
                cell[k] = np.uint32(pool[at + k] >> np.uint64(8))
                term[k] = pool[expression_of(slots_i, slot) + 1 + (np.int64(pool[at + k]) & 255)]
            return n
    posting = list_posting_terms(slots_i, pool, slot, scratch.term)
    level = slots_i[8 * slot + SESSION] >> LEVEL_SHIFT & LEVEL_MASK
    spans = span_slot(index, slot, lines, level)
    cells = count_cover(spans)
    list_cover(spans, np.int64(lines[0]), level, scratch.cell)
    n = 0
    for i in range(cells):
        for k in range(posting):
            cell[n] = scratch.cell[i]
            term[n] = scratch.term[k]
            n += 1
    return n


@njit(cache=True, nogil=True)
def measure_query(slots_i, pool, slot):
    """Returns the bytes of a query with one posting, by what it holds and not by how."""
    if slots_i[8 * slot + SESSION] & KIND_MASK != BLOCK:
        return QUERY_BYTES
    out = np.int64(QUERY_BYTES)
    head = np.int64(pool[expression_of(slots_i, slot)])
    n, program = head >> 8 & 255, head >> 16 & 0xFFFF
    if n > 2 or program > 0:
        out += _WORD_BYTES * (1 + n + program)
    extras = slots_i[8 * slot + SECOND]
    if extras != 0:
        out += _WORD_BYTES * np.int64(pool[extras + X_HEAD] >> np.uint64(32))
    return out


@njit(inline="always")
def recount_slot(index, scratch, lines, slot, sign):
    """Counts all tags of a slot, or takes them off again."""
    n = expand_slot(index, scratch, lines, slot, scratch.tag_cell, scratch.tag_term)
    size = measure_query(index.slots_i, index.pool, slot)
    count_tags(index.cells, index.counts, index.state, scratch.tag_cell, n, sign, size)


@njit(cache=True, nogil=True)
def list_tags(first, last, fields, scratch_fields, grid, cell, term):
    """Fills in the tags of the slots first..last - 1, in their order; returns their number. fields,
    scratch_fields: plain tuples of those of RadixArrays and UpdateScratch; grid: as above."""
    index, lines = point_updated(fields), pointer_at(grid, np.float64)
    scratch = point_update_scratch(scratch_fields, index.state)
    cells, terms = pointer_to(cell), pointer_to(term)
    n = 0
    for slot in range(first, last):
        if index.slots_i[8 * slot + HANDLE] >= 0:
            out = advance(cells, n), advance(terms, n)
            n += expand_slot(index, scratch, lines, slot, out[0], out[1])
    return n


@njit(cache=True, nogil=True)
def list_places(first, last, grid, fields, place):
    """Fills in the place of the query, by which sharded units divide queries, of each tag that
    `list_tags` lists of these slots."""
    index, lines = point_index(fields), pointer_at(grid, np.float64)
    n = 0
    for slot in range(first, last):
        if index.slots_i[8 * slot + HANDLE] >= 0:
            found = NO_WORD
            for i in range(4):
                found = hash_corner(found, np.uint64(index.slots_i[8 * slot + i]))
            for _ in range(count_slot_tags(index, slot, lines)):
                place[n] = found
                n += 1
