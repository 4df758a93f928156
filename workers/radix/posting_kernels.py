"""Inserting into the radix GI2: slots, what a posting holds of its query, and lists of tags."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER, ExpressionForm, RegionShape, UpdateKind
from ps2stream.workers.radix.layout import (
    ALL,
    ANY,
    BLOCK,
    BOTH,
    CELLS_SIZE,
    CELLS_USED,
    DIRECTORY_SIZE,
    DIRECTORY_USED,
    EITHER,
    FIRST,
    FREE,
    GENERAL,
    HANDLE,
    KEPT,
    KIND_MASK,
    LEVEL_MASK,
    LEVEL_SHIFT,
    LIVE,
    LOW,
    NO_WORD,
    NODE_ROOM,
    NODE_TOP,
    ONE,
    PLACES_SIZE,
    POOL_SIZE,
    POOL_TOP,
    POSTINGS,
    ROW,
    SECOND,
    SESSION,
    SESSION_SHIFT,
    SLOT_BITS,
    SLOT_FREE,
    SLOT_TOP,
    TAGS_SIZE,
    WANTED,
    WIDE,
    WIDE_USED,
    X_BOX,
    X_GEOM,
    X_LIST,
    X_LISTED,
    find_entry,
    find_place,
    fingerprint,
    take_words,
    wide_bit,
)
from ps2stream.workers.radix.pointers import (
    advance,
    point_rows,
    point_tags,
    point_update_scratch,
    point_updated,
)
from ps2stream.workers.radix.tag_kernels import (
    add_extras,
    count_cover,
    count_tags,
    deleted_at,
    free_list,
    list_cover,
    measure_query,
    span_slot,
    store_expression,
    store_extras,
)
from ps2stream.workers.radix.tree_kernels import (
    LEAVES_OF_A_TREE,
    add_to_tree,
    bound_region,
    list_roots,
    mark_areas,
    place_root,
)

_INSERT = int(UpdateKind.INSERT)
_FORM_ALL, _FORM_ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_RECT = int(RegionShape.RECT)  # or WORLD, if less
_ONE_BIT = np.uint64(1)
TREE_WORDS = LEAVES_OF_A_TREE * 82
"""Words that a posting may take in one tree, splits aside."""
DIRECTORY_FULL = 0.6
DONE, GROW_DIRECTORY, GROW_NODES, GROW_POOL, GROW_CELLS, GROW_SCRATCH = 0, 1, 2, 3, 4, 5


@njit(inline="always")
def _count_ones(bits):
    n = 0
    while bits != NO_WORD:
        bits &= bits - _ONE_BIT
        n += 1
    return n


@njit(inline="always")
def _describe_check(form, post, n, term, first, i):
    """Returns what is left to check for a posting under term i of a query, and two fingerprints,
    0 being none: of a conjunction the other terms, of a disjunction the smaller ones, without
    which this posting is the one that emits."""
    every = post == (~NO_WORD >> np.uint64(64 - n))
    if form == _FORM_ALL:
        if n == 1:
            return FREE, 0
        a = 0 if i != 0 else 1
        b = a
        for j in range(n - 1, a, -1):
            if j != i:
                b = j
        prints = fingerprint(term[first + a])
        return ALL, prints | (fingerprint(term[first + b]) << 8 if b != a else 0)
    if form == _FORM_ANY and every and i <= 2:
        if i == 0:
            return FREE, 0
        prints = fingerprint(term[first])
        return ANY, prints | (fingerprint(term[first + 1]) << 8 if i == 2 else 0)
    return GENERAL, 0


@njit(inline="always")
def place_posting(index, scratch, slot, key, mode, prints):
    """Puts the posting of a slot under a term into the trees of its root cells. The directory and
    the nodes have room."""
    directory, state = index.directory, index.state
    roots = list_roots(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, scratch.roots)
    word = np.uint32(mode << SLOT_BITS | slot)
    for k in range(roots):
        root = scratch.roots[k]
        at = find_entry(directory, state[DIRECTORY_SIZE], key, root)
        if directory[2 * at + 1] == NO_WORD:
            directory[2 * at] = key
            state[DIRECTORY_USED] += 1
            if root == WIDE:
                bit = wide_bit(key)
                index.wide[bit >> 6] |= _ONE_BIT << np.uint64(bit & 63)
                state[WIDE_USED] += 1
        place = place_root(root)
        bounds = bound_region(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, *place)
        ref = add_to_tree(
            index.nodes, index.n32, index.n16, index.node_free, index.slots_f, index.slots_i,
            index.pool, index.pool_f, state, scratch.trail, np.int64(directory[2 * at + 1] & LOW),
            place, bounds, word, np.uint16(prints),
        )  # fmt: skip
        areas = directory[2 * at + 1] >> np.uint64(40) | mark_areas(root, bounds)
        directory[2 * at + 1] = (
            np.uint64(ref) | np.uint64(root) << np.uint64(32) | areas << np.uint64(40)
        )


@njit(inline="always")
def _take_slot(index):
    state = index.state
    slot = state[SLOT_FREE]
    if slot >= 0:
        state[SLOT_FREE] = index.slots_i[8 * slot + HANDLE]
    else:
        slot = state[SLOT_TOP]
        state[SLOT_TOP] = slot + 1
    return slot


@njit(inline="always")
def _store_query(rows, r, level, index):
    """Fills a slot with row r, whose tags are of this level; returns it."""
    pool, pool_f, pool_free = index.pool, index.pool_f, index.pool_free
    slots_f, slots_i, state = index.slots_f, index.slots_i, index.state
    g0, n = rows.term_off[r], rows.term_off[r + 1] - rows.term_off[r]
    b0 = rows.box_off[r]
    boxes = rows.box_off[r + 1] - b0 >> 2
    form, post, shape = np.int64(rows.form[r]), rows.post[r], np.int64(rows.shape[r])
    slot = _take_slot(index)
    for i in range(4):
        slots_f[8 * slot + i] = rows.box[b0 + i]
    exact = boxes == 1 and shape <= _RECT
    kind = BLOCK
    first = second = np.int64(0)
    if exact and n == 1 and form <= _FORM_ANY and post == _ONE_BIT:
        kind, first = ONE, np.int64(rows.term[g0])
    elif exact and n == 2 and form == _FORM_ANY and post == np.uint64(3):
        kind, first, second = EITHER, np.int64(rows.term[g0]), np.int64(rows.term[g0 + 1])
    elif exact and n == 2 and form == _FORM_ALL and _count_ones(post) == 1:
        key = g0 if post == _ONE_BIT else g0 + 1
        kind, first, second = BOTH, np.int64(rows.term[key]), np.int64(rows.term[2 * g0 + 1 - key])
    else:
        p0 = rows.prog_off[r]
        program = rows.prog_off[r + 1] - p0
        first = store_expression(pool, pool_free, state, form, post, n, program)
        for i in range(n):
            pool[first + 1 + i] = rows.term[g0 + i]
        for i in range(program):
            pool[first + 1 + n + i] = np.uint64(np.int64(rows.prog[p0 + i]))
        if not exact:
            m0 = rows.geom_off[r]
            geometry = rows.geom_off[r + 1] - m0
            second = store_extras(pool, pool_free, state, shape, boxes, geometry)
            if boxes > 1:
                for i in range(4):
                    pool_f[second + X_BOX + i] = rows.box[b0 + 4 + i]
            for i in range(geometry):
                pool_f[second + X_GEOM + i] = rows.geom[m0 + i]
    slots_i[8 * slot + HANDLE] = rows.handle[r]
    slots_i[8 * slot + SESSION] = rows.session[r] << SESSION_SHIFT | level << LEVEL_SHIFT | kind
    slots_i[8 * slot + FIRST], slots_i[8 * slot + SECOND] = first, second
    index.left[slot] = 0
    return slot


@njit(inline="always")
def _has_all_tags(post, n, g0, term, tags, t0, t1, index, scratch, bits, slot):
    """Returns whether these are all tags of a slot: all cells that it touches on its level times
    all posting terms, in that order."""
    level = index.slots_i[8 * slot + SESSION] >> LEVEL_SHIFT & LEVEL_MASK
    spans = span_slot(index, slot, bits, level)
    cells = count_cover(spans)
    posting = _count_ones(post)
    if cells * posting != t1 - t0:
        return False
    list_cover(spans, bits[0], level, scratch.cell)
    k = t0
    for c in range(cells):
        for i in range(n):
            if post >> np.uint64(i) & _ONE_BIT != 0:
                if tags.cell[k] != scratch.cell[c] or tags.term[k] != term[g0 + i]:
                    return False
                k += 1
    return True


@njit(inline="always")
def _sort_words(pool, at, n):
    """Sorts pool[at : at + n], of which long parts are sorted."""
    for i in range(at + 1, at + n):
        word = pool[i]
        j = i
        while j > at and pool[j - 1] > word:
            pool[j] = pool[j - 1]
            j -= 1
        pool[j] = word


@njit(inline="always")
def extend_list(index, slot, old, cell, number, t0, t1):
    """Lists the tags of a slot: the first `old` of its list, and cell[t0:t1] with the numbers of
    their terms, number[: t1 - t0]."""
    pool, pool_free, state = index.pool, index.pool_free, index.state
    extras = add_extras(index.slots_i, pool, pool_free, state, slot)
    n = old + t1 - t0
    at, cls = take_words(pool, pool_free, state, n)
    before = np.int64(pool[extras + X_LIST])
    for i in range(old):
        pool[at + i] = pool[before + i]
    for k in range(t0, t1):
        pool[at + old + k - t0] = np.uint64(cell[k]) << np.uint64(8) | np.uint64(number[k - t0])
    _sort_words(pool, at, n)
    free_list(pool, pool_free, extras)
    pool[extras + X_LIST] = np.uint64(at)
    pool[extras + X_LISTED] = np.uint64(n | cls << 32)


@njit(cache=True, nogil=True)
def insert_rows(row_fields, tag_fields, bits, fields, scratch_fields, extend):
    """Inserts rows from state[ROW] on; returns DONE, or what must grow first.

    row_fields, tag_fields, fields, scratch_fields: plain tuples of the fields of StoredRowColumns,
    TagColumns, RadixArrays and UpdateScratch; bits: of the columns and rows of level 0. extend: a
    query that is stored gets the tags of the row; otherwise the row is passed over. `slots` and
    `places` have room for all rows, the rest may not.
    """
    rows, tags, index = point_rows(row_fields), point_tags(tag_fields), point_updated(fields)
    scratch = point_update_scratch(scratch_fields, index.state)
    state, slots_i = index.state, index.slots_i
    end = row_fields[0].shape[0]
    while state[ROW] < end:
        r = state[ROW]
        t0, t1 = tags.off[r], tags.off[r + 1]
        where = find_place(index.places, state[PLACES_SIZE], slots_i, rows.handle[r])
        slot = np.int64(index.places[where]) - 1
        if rows.kind[r] != _INSERT or t0 == t1 or (slot >= 0 and not extend):
            state[ROW] = r + 1
            continue
        g0, n = rows.term_off[r], rows.term_off[r + 1] - rows.term_off[r]
        post = rows.post[r]
        held = np.int64(index.left[slot]) if slot >= 0 else np.int64(0)
        trees = KEPT * _count_ones(post)
        if state[DIRECTORY_USED] + trees >= DIRECTORY_FULL * state[DIRECTORY_SIZE]:
            return GROW_DIRECTORY
        if state[NODE_TOP] + trees * TREE_WORDS + state[WANTED] > state[NODE_ROOM]:
            return GROW_NODES
        state[WANTED] = 0
        words = 64 + 2 * (n + rows.prog_off[r + 1] - rows.prog_off[r])
        words += 2 * (rows.geom_off[r + 1] - rows.geom_off[r] + 2 * (held + t1 - t0))
        if state[POOL_TOP] + words > state[POOL_SIZE]:
            return GROW_POOL
        if 2 * (state[CELLS_USED] + t1 - t0) >= state[CELLS_SIZE]:
            return GROW_CELLS
        if held + t1 - t0 > state[TAGS_SIZE]:
            return GROW_SCRATCH
        _store_row(rows, r, tags, t0, t1, g0, n, post, slot, where, bits, index, scratch)
        state[ROW] = r + 1
    return DONE


@njit(inline="always")
def _store_row(rows, r, tags, t0, t1, g0, n, post, slot, where, bits, index, scratch):
    state, pool, slots_i = index.state, index.pool, index.slots_i
    form = np.int64(rows.form[r])
    term = rows.term
    level = np.int64(tags.cell[t0]) >> 28
    new = slot < 0
    if new:
        slot = _store_query(rows, r, level, index)
        index.places[where] = np.uint32(slot + 1)
        state[LIVE] += 1
    listed = not new
    placed = NO_WORD  # terms that have their postings
    fresh = NO_WORD  # terms that are to get them
    if new:
        listed = not _has_all_tags(post, n, g0, term, tags, t0, t1, index, scratch, bits, slot)
        if not listed:
            fresh = post
    if listed:
        # A slot without a list has all its tags; then nothing new is to come.
        old = np.int64(0)
        if (
            not new
            and slots_i[8 * slot + SESSION] & KIND_MASK == BLOCK
            and slots_i[8 * slot + SECOND] != 0
        ):
            extras = slots_i[8 * slot + SECOND]
            old = np.int64(pool[extras + X_LISTED]) & 0xFFFFFFFF
            at = np.int64(pool[extras + X_LIST])
            for k in range(old):
                placed |= _ONE_BIT << np.uint64(np.int64(pool[at + k]) & 255)
        number = scratch.term
        for k in range(t0, t1):
            i = 0
            while term[g0 + i] != tags.term[k]:
                i += 1
            number[k - t0] = np.uint64(i)
            fresh |= _ONE_BIT << np.uint64(i)
        fresh &= ~placed
        if new or old != 0:
            extend_list(index, slot, old, tags.cell, number, t0, t1)
    index.left[slot] += np.uint32(t1 - t0)
    state[POSTINGS] += t1 - t0
    if deleted_at(slots_i, pool, slot) == NEVER:
        size = measure_query(slots_i, pool, slot)
        count_tags(index.cells, index.counts, state, advance(tags.cell, t0), t1 - t0, 1, size)
    first = post & (~post + _ONE_BIT)
    for i in range(n):
        bit = _ONE_BIT << np.uint64(i)
        # Of a conjunction, an object that matches has all terms: only the smallest one emits.
        if fresh & bit != NO_WORD and (form != _FORM_ALL or bit == first):
            mode, prints = _describe_check(form, post, n, term, g0, i)
            place_posting(index, scratch, slot, term[g0 + i], mode, prints)
