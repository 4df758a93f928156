"""Inserting into the radix GI2: slots, what a posting holds of its query, and lists of tags."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER, ExpressionForm, RegionShape, UpdateKind
from ps2stream.workers.radix.ahead_kernels import GROUP, ask_for_rows
from ps2stream.workers.radix.band_kernels import BUCKETS, describe_posting
from ps2stream.workers.radix.cell_kernels import count_tags
from ps2stream.workers.radix.check_kernels import bound_row, describe_rest
from ps2stream.workers.radix.conjunction_kernels import store_conjunction
from ps2stream.workers.radix.division_kernels import choose_list, open_tree
from ps2stream.workers.radix.holder_kernels import (
    CHUNK_ENTRIES,
    detach_holder,
    share_slot,
    slot_of_ref,
)
from ps2stream.workers.radix.layout import (
    BLOCK,
    BLOCK_WORDS,
    BOTH,
    CELLS_SIZE,
    CELLS_USED,
    CONJUNCTION,
    DIRECTORY_SIZE,
    DIRECTORY_USED,
    EITHER,
    ENTRIES,
    FIRST,
    HANDLE,
    HOLDER_SIZE,
    HOLDER_TOP,
    KEPT,
    KIND_MASK,
    LEVEL_SHIFT,
    LINE,
    LIVE,
    LOW,
    NO_WORD,
    NODE_ROOM,
    NODE_TOP,
    ONE,
    POOL_SIZE,
    POOL_TOP,
    POSTINGS,
    REST_SHIFT,
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
    X_BOX,
    X_GEOM,
    X_LIST,
    X_LISTED,
    take_words,
)
from ps2stream.workers.radix.place_kernels import (
    HOLDER,
    add_place,
    find_ref,
    slot_ref,
)
from ps2stream.workers.radix.pointers import (
    advance,
    point_rows,
    point_tags,
    point_update_addresses,
    pointer_at,
    prefetch,
)
from ps2stream.workers.radix.raster_kernels import draw_raster
from ps2stream.workers.radix.tag_kernels import (
    add_extras,
    count_ones,
    count_slot_tags,
    deleted_at,
    free_list,
    free_slot,
    has_all_tags,
    measure_query,
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
from ps2stream.workers.radix.twin_kernels import find_twin
from ps2stream.workers.radix.vectors import lowest_bit

_INSERT = int(UpdateKind.INSERT)
_FORM_ALL, _FORM_ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_RECT = int(RegionShape.RECT)  # or WORLD, if less
_POLYGON = int(RegionShape.POLYGON)
_ONE_BIT = np.uint64(1)
TREE_WORDS = LEAVES_OF_A_TREE * (int(BLOCK_WORDS.max()) + LINE)
"""Words that a posting may take in one tree, splits aside."""
DIRECTORY_FULL = 0.6
DONE, GROW_DIRECTORY, GROW_NODES, GROW_POOL, GROW_CELLS, GROW_SCRATCH = 0, 1, 2, 3, 4, 5
GROW_HOLDERS = 6


@njit(cache=True, nogil=True)
def place_posting(index, scratch, slot, key, mode, prints):
    """Puts the posting of a slot under a term into the trees of its root cells. The directory and
    the nodes have room."""
    directory, state = index.directory, index.state
    roots = list_roots(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, scratch.roots)
    word = np.uint32(mode << SLOT_BITS | slot)
    for k in range(roots):
        root = scratch.roots[k]
        if root == WIDE:
            key = choose_list(index, slot, key)
        at = open_tree(index, key, root)
        place = place_root(root)
        bounds = bound_region(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, *place)
        ref = add_to_tree(
            index.nodes, index.n32, index.n16, index.node_free, index.slots_f, index.slots_i,
            index.pool, index.pool_f, state, scratch.trail, np.int64(directory[at] & LOW),
            place, bounds, word, np.uint16(prints),
        )  # fmt: skip
        areas = directory[at] >> np.uint64(40) | mark_areas(root, bounds)
        directory[at] = np.uint64(ref) | np.uint64(root) << np.uint64(32) | areas << np.uint64(40)


@njit(inline="always")
def _take_slot(index):
    state = index.state
    slot = state[SLOT_FREE]
    if slot >= 0:
        state[SLOT_FREE] = -2 - index.slots_i[8 * slot + HANDLE]
        prefetch(index.slots_i, 8 * state[SLOT_FREE])
    else:
        slot = state[SLOT_TOP]
        state[SLOT_TOP] = slot + 1
    return slot


@njit(cache=True, nogil=True)
def _store_query(rows, r, level, bounds, stack, index):
    """Fills a slot with row r, whose tags are of this level; returns it. bounds, stack: of its
    program, as `bound_row` has just left them."""
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
    elif exact and n == 2 and form == _FORM_ALL and count_ones(post) == 1:
        key = g0 if post == _ONE_BIT else g0 + 1
        kind, first, second = BOTH, np.int64(rows.term[key]), np.int64(rows.term[2 * g0 + 1 - key])
    else:
        program, words = bounds.size, bounds.words
        if words != 0:
            form, program = CONJUNCTION, words
        at = store_expression(pool, pool_free, state, form, post, n, program)
        first = describe_rest(rows, r, bounds) << REST_SHIFT | at
        for i in range(n):
            pool[at + 1 + i] = rows.term[g0 + i]
        if words != 0:
            p = rows.prog_off[r]
            store_conjunction(pool, at + 1 + n, rows.prog, p, bounds.size, stack, words)
        else:
            for i in range(program):
                pool[at + 1 + n + i] = np.uint64(np.int64(rows.prog[rows.prog_off[r] + i]))
        if not exact:
            m0 = rows.geom_off[r]
            geometry = rows.geom_off[r + 1] - m0
            second = store_extras(pool, pool_free, state, shape, boxes, geometry)
            if boxes > 1:
                for i in range(4):
                    pool_f[second + X_BOX + i] = rows.box[b0 + 4 + i]
            for i in range(geometry):
                pool_f[second + X_GEOM + i] = rows.geom[m0 + i]
            if shape == _POLYGON and boxes == 1:
                draw_raster(pool, pool_f, second, advance(slots_f, 8 * slot))
    slots_i[8 * slot + HANDLE] = rows.handle[r]
    slots_i[8 * slot + SESSION] = rows.session[r] << SESSION_SHIFT | level << LEVEL_SHIFT | kind
    slots_i[8 * slot + FIRST], slots_i[8 * slot + SECOND] = first, second
    return slot


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


@njit(cache=True, nogil=True)
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
def insert_rows(row_fields, tag_fields, grid, addresses, extend):
    """Inserts rows from state[ROW] on; returns DONE, or what must grow first.

    row_fields, tag_fields: plain tuples of the fields of StoredRowColumns and TagColumns; grid: the
    address of its lines; addresses: of the arrays of RadixArrays and UpdateScratch, whose sizes are
    noted. extend: a query that is stored gets the tags of the row; otherwise the
    row is passed over. `slots` and `places` have room for all rows, the rest may not.
    """
    rows, tags = point_rows(row_fields), point_tags(tag_fields)
    index, scratch = point_update_addresses(addresses)
    lines, state = pointer_at(grid, np.float64), index.state
    end = row_fields[0].shape[0]
    asked = state[ROW]
    while state[ROW] < end:
        r = state[ROW]
        if r == asked:
            asked = min(r + GROUP, end)
            ask_for_rows(rows, tags, r, asked, index, scratch)
        t0, t1 = tags.off[r], tags.off[r + 1]
        ref = find_ref(index, rows.handle[r])
        if rows.kind[r] != _INSERT or t0 == t1 or (ref != 0 and not extend):
            state[ROW] = r + 1
            continue
        g0, n = rows.term_off[r], rows.term_off[r + 1] - rows.term_off[r]
        post = rows.post[r]
        held = np.int64(0)
        if ref != 0:
            held = count_slot_tags(index, slot_of_ref(index, ref), lines)
        trees = KEPT * count_ones(post)
        if (
            state[DIRECTORY_USED] + trees + BUCKETS
            >= DIRECTORY_FULL * ENTRIES * state[DIRECTORY_SIZE]
        ):
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
        if state[HOLDER_TOP] + 2 * CHUNK_ENTRIES > state[HOLDER_SIZE]:
            return GROW_HOLDERS
        _store_row(rows, r, tags, t0, t1, g0, n, post, ref, lines, index, scratch)
        state[ROW] = r + 1
    return DONE


@njit(inline="always")
def _list_placed(slots_i, pool, slot, post):
    """Returns the terms under which a slot has tags, and how many of these are listed."""
    extras = np.int64(0)
    if slots_i[8 * slot + SESSION] & KIND_MASK == BLOCK:
        extras = slots_i[8 * slot + SECOND]
    if extras == 0 or pool[extras + X_LIST] == NO_WORD:
        return post, np.int64(0)
    at, n = np.int64(pool[extras + X_LIST]), np.int64(pool[extras + X_LISTED]) & 0xFFFFFFFF
    placed = NO_WORD
    for k in range(n):
        placed |= _ONE_BIT << np.uint64(np.int64(pool[at + k]) & 255)
    return placed, n


@njit(inline="always")
def _number_terms(tags, t0, t1, term, g0, number):
    """Fills in the number of each tag's term in its query; returns a bit for each number."""
    bits = NO_WORD
    for k in range(t0, t1):
        i = 0
        while term[g0 + i] != tags.term[k]:
            i += 1
        number[k - t0] = np.uint64(i)
        bits |= _ONE_BIT << np.uint64(i)
    return bits


@njit(cache=True, nogil=True)
def _store_row(rows, r, tags, t0, t1, g0, n, post, ref, lines, index, scratch):
    state, pool, slots_i = index.state, index.pool, index.slots_i
    form, term, number = np.int64(rows.form[r]), rows.term, scratch.term
    fresh = post  # terms that are to get their postings
    bounds = bound_row(rows, r, scratch.stack)
    if ref == 0:
        slot = _store_query(rows, r, np.int64(tags.cell[t0]) >> 28, bounds, scratch.stack, index)
        if not has_all_tags(post, n, g0, term, tags, t0, t1, index, scratch, lines, slot):
            fresh = _number_terms(tags, t0, t1, term, g0, number)
            extend_list(index, slot, np.int64(0), tags.cell, number, t0, t1)
    else:
        slot = slot_of_ref(index, ref)
        placed, old = _list_placed(slots_i, pool, slot, post)
        if old == 0:
            return  # it has all its tags: nothing new is to come
        fresh = _number_terms(tags, t0, t1, term, g0, number)
        if ref & HOLDER:  # its tags will not be those of the others any more
            slot = _take_slot(index)
            detach_holder(index, ref >> 1, slot)
            fresh |= placed
        else:
            fresh &= ~placed
        extend_list(index, slot, old, tags.cell, number, t0, t1)
    first = post & (~post + _ONE_BIT)
    if form == _FORM_ALL:
        # An object that matches has all terms: only the smallest one emits.
        fresh &= first
    is_described, mode, prints = False, np.int64(0), np.int64(0)
    if ref == 0:
        twin = np.int64(-1)
        if fresh != NO_WORD:
            i = lowest_bit(fresh)
            mode, prints = describe_posting(rows, r, bounds, i, scratch.stack, index.bands)
            is_described = True
            twin = find_twin(index, scratch, slot, term[g0 + i], mode, prints)
        if twin >= 0:
            free_slot(slots_i, pool, index.pool_free, state, slot)
            slot, fresh = twin, NO_WORD
            share_slot(index, slot, rows.handle[r], rows.session[r])
        else:
            add_place(index, rows.handle[r], slot_ref(slot))
        state[LIVE] += 1
    state[POSTINGS] += t1 - t0
    if ref == 0 or deleted_at(slots_i, pool, slot) == NEVER:
        size = measure_query(slots_i, pool, slot)
        count_tags(
            index.cells, index.counts, state, advance(tags.cell, t0), t1 - t0, np.int64(1), size
        )
    while fresh != NO_WORD:
        i = lowest_bit(fresh)
        fresh &= fresh - _ONE_BIT
        if not is_described:  # by which bands and sets learn from it
            mode, prints = describe_posting(rows, r, bounds, i, scratch.stack, index.bands)
        is_described = False
        place_posting(index, scratch, slot, term[g0 + i], mode, prints)
