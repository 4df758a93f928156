"""Trees over space: where the postings of a term are, by region; and how leaves are split."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    ALL_AREAS,
    AREA_ROWS,
    AREA_SHIFT,
    BLOCK,
    BLOCK_WORDS,
    CAPACITY,
    CELL_BITS,
    DEEPEST,
    INNER,
    KEPT,
    KIND_MASK,
    LAST_CLASS,
    LOW,
    NO_WORD,
    NODE_ROOM,
    NODE_TOP,
    REF_MASK,
    ROOT_BITS,
    SECOND,
    SESSION,
    SLOT_MASK,
    STEP_BITS,
    SWEPT_LEAF,
    WANTED,
    WIDE,
    X_BOX,
    X_HEAD,
    block_class,
    block_length,
    step_x,
    step_y,
)
from ps2stream.workers.radix.leaf_kernels import (
    MOST_BLOCKS,
    append_posting,
    forget_stop,
    forget_walk,
    free_node,
    locate_posting,
    pack_bounds,
    take_node,
)

LEAVES_OF_A_TREE = 100  # more than one region reaches, as large parts of it are kept above
_WORTHWHILE = 0.7  # share of the postings that an object may still meet after a split
_ALIKE = 0.5  # what a split into one child counts like: a share of the copies
_COPIES, _COPIES_A_BLOCK, _MOST_COPIES = 1.0, 0.35, 2.5
"""Postings that a split may make of one: more where the leaf is longer, as objects gain more."""
_SPLIT_WORDS = 30  # new words, at most, for each posting of a leaf that is split
_COUNT = np.uint64(1) << np.uint64(32)


@njit(inline="always")
def _box_steps(slots_f, pool_f, slot, extras, i):
    """Returns the first or second box of a slot in steps."""
    if i == 0:
        return (
            step_x(slots_f[8 * slot]), step_y(slots_f[8 * slot + 1]),
            step_x(slots_f[8 * slot + 2]), step_y(slots_f[8 * slot + 3]),
        )  # fmt: skip
    b = extras + X_BOX
    return step_x(pool_f[b]), step_y(pool_f[b + 1]), step_x(pool_f[b + 2]), step_y(pool_f[b + 3])


@njit(inline="always")
def count_boxes(slots_i, pool, slot):
    """Returns the number of boxes of a slot, and its extras or 0."""
    extras = np.int64(0)
    if slots_i[8 * slot + SESSION] & KIND_MASK == BLOCK:
        extras = slots_i[8 * slot + SECOND]
    return (np.int64(pool[extras + X_HEAD]) >> 8 & 255 if extras != 0 else 1), extras


@njit(cache=True, nogil=True)
def list_roots(slots_f, slots_i, pool, pool_f, slot, roots):
    """Fills in the root cells, at most four, that the boxes of a slot touch, or else WIDE;
    returns their number."""
    boxes, extras = count_boxes(slots_i, pool, slot)
    shift, n = STEP_BITS - ROOT_BITS, 0
    a0 = a1 = b0 = b1 = np.int64(-1)
    for i in range(boxes):
        x0, y0, x1, y1 = _box_steps(slots_f, pool_f, slot, extras, i)
        for row in range(y0 >> shift, (y1 >> shift) + 1):
            for column in range(x0 >> shift, (x1 >> shift) + 1):
                if i == 1 and a0 <= column <= a1 and b0 <= row <= b1:
                    continue
                if n == KEPT:
                    roots[0] = WIDE
                    return 1
                roots[n] = 1 + row * (1 << ROOT_BITS) + column
                n += 1
        a0, a1, b0, b1 = x0 >> shift, x1 >> shift, y0 >> shift, y1 >> shift
    return n


@njit(inline="always")
def place_root(root):
    """Returns the depth of a root cell and its corner in steps."""
    if root == WIDE:
        return 0, 0, 0
    shift = STEP_BITS - ROOT_BITS
    return 1, ((root - 1) & ((1 << ROOT_BITS) - 1)) << shift, (root - 1 >> ROOT_BITS) << shift


@njit(cache=True, nogil=True)
def bound_region(slots_f, slots_i, pool, pool_f, slot, depth, x, y):
    """Returns the bounds of what the boxes of a slot have in the cell at (x, y) of this depth:
    first and last steps."""
    boxes, extras = count_boxes(slots_i, pool, slot)
    last = (1 << (STEP_BITS - CELL_BITS[depth])) - 1
    left, low, right, high = x + last, y + last, x, y
    for i in range(boxes):
        x0, y0, x1, y1 = _box_steps(slots_f, pool_f, slot, extras, i)
        if x0 <= x + last and x1 >= x and y0 <= y + last and y1 >= y:
            left, low = min(left, max(x0, x)), min(low, max(y0, y))
            right, high = max(right, min(x1, x + last)), max(high, min(y1, y + last))
    return left, low, right, high


@njit(cache=True, nogil=True)
def mark_areas(root, bounds):
    """Returns the areas of the directory that bounds within a root cell touch."""
    if root == WIDE:
        return np.uint64(ALL_AREAS)
    x0, y0, x1, y1 = (
        bounds[0] >> AREA_SHIFT, bounds[1] >> AREA_SHIFT,
        bounds[2] >> AREA_SHIFT, bounds[3] >> AREA_SHIFT,
    )  # fmt: skip
    out = np.uint64(0)
    for y in range(y0, min(y1, y0 + AREA_ROWS - 1) + 1):
        for x in range(x0, min(x1, x0 + 7) + 1):
            out |= np.uint64(1) << np.uint64((x & 7) + 8 * (y % AREA_ROWS))
    return out


@njit(inline="always")
def find_children(bounds, depth, x, y):
    """Returns the first and last columns and rows of the children that bounds touch, and whether
    the node itself keeps such a posting: it touches many, or reaches from side to side."""
    shift = STEP_BITS - CELL_BITS[depth + 1]
    last = (1 << (CELL_BITS[depth + 1] - CELL_BITS[depth])) - 1
    i0, j0 = max(bounds[0] - x, 0) >> shift, max(bounds[1] - y, 0) >> shift
    i1, j1 = min(bounds[2] - x >> shift, last), min(bounds[3] - y >> shift, last)
    kept = (i1 - i0 + 1) * (j1 - j0 + 1) > KEPT
    kept |= (i0 == 0) & (i1 == last)
    kept |= (j0 == 0) & (j1 == last)
    return i0, i1, j0, j1, kept


@njit(inline="always")
def _mark_child(bounds, depth, x, y):
    """Returns the areas of the child at (x, y), whose depth is given, that bounds touch, as a
    word is marked with them."""
    size = STEP_BITS - CELL_BITS[depth]
    last = (1 << size) - 1
    c0, c1 = max(bounds[0] - x, 0) >> (size - 3), min(bounds[2] - x, last) >> (size - 3)
    r0, r1 = max(bounds[1] - y, 0) >> (size - 2), min(bounds[3] - y, last) >> (size - 2)
    line = (np.uint64(2) << np.uint64(c1)) - (np.uint64(1) << np.uint64(c0))
    out = np.uint64(0)
    for row in range(r0, r1 + 1):
        out |= line << np.uint64(8 * row)
    return out << np.uint64(32)


@njit(cache=True, nogil=True)
def split_leaf(nodes, n32, n16, node_free, slots_f, slots_i, pool, pool_f, state, ref, place):
    """Makes an inner node of a leaf whose cell is given as (depth, x, y); returns its ref. Returns
    0 and changes nothing where objects would meet hardly fewer postings, or there is no room: then
    state[WANTED] says how much is wanted."""
    depth, x, y = place
    fan = 1 << (CELL_BITS[depth + 1] - CELL_BITS[depth])
    shift = STEP_BITS - ROOT_BITS
    root_x, root_y = x >> shift << shift, y >> shift << shift
    total = keeps = copies = squares = 0
    each = np.zeros((fan, fan), np.int64)
    block = ref
    while block != 0:
        cap = CAPACITY[block_class(nodes[block])]
        for k in range(block_length(nodes[block])):
            slot = np.int64(n32[locate_posting(block, cap, k)[1]]) & SLOT_MASK
            bounds = bound_region(slots_f, slots_i, pool, pool_f, slot, np.int64(1), root_x, root_y)
            total += 1
            i0, i1, j0, j1, kept = find_children(bounds, depth, x, y)
            if kept:
                keeps += 1
                continue
            for j in range(j0, j1 + 1):
                for i in range(i0, i1 + 1):
                    copies += 1
                    squares += 2 * each[j, i] + 1
                    each[j, i] += 1
        block = np.int64(nodes[block] & LOW)
    # An object that lies where the postings are meets those kept and those of a child. Where all go
    # to one child it meets as many, but their bytes say more, and that child can be split.
    blocks = total // CAPACITY[LAST_CLASS]
    if copies == 0 or copies > min(_COPIES + _COPIES_A_BLOCK * blocks, _MOST_COPIES) * total:
        return 0
    if keeps + min(squares / copies, _ALIKE * copies) > _WORTHWHILE * total:
        return 0
    if state[NODE_TOP] + _SPLIT_WORDS * total > state[NODE_ROOM]:
        state[WANTED] = max(state[WANTED], _SPLIT_WORDS * total)
        return 0
    if state[SWEPT_LEAF] == ref:
        forget_stop(state)
    cls = LAST_CLASS + (1 if fan == 8 else 2)
    inner = take_node(nodes, node_free, state, cls)
    for i in range(BLOCK_WORDS[cls]):
        nodes[inner + i] = NO_WORD
    size = STEP_BITS - CELL_BITS[depth + 1]
    block = ref
    while block != 0:
        cap = CAPACITY[block_class(nodes[block])]
        for k in range(block_length(nodes[block])):
            _, at, prints_at = locate_posting(block, cap, k)
            word, prints = n32[at], n16[prints_at]
            slot = np.int64(word) & SLOT_MASK
            bounds = bound_region(slots_f, slots_i, pool, pool_f, slot, np.int64(1), root_x, root_y)
            i0, i1, j0, j1, kept = find_children(bounds, depth, x, y)
            if kept:
                rect = pack_bounds(bounds, depth, x, y)
                _append_under(nodes, n32, n16, node_free, state, inner, inner, rect, word, prints)
                continue
            for j in range(j0, j1 + 1):
                for i in range(i0, i1 + 1):
                    cx, cy = x + (i << size), y + (j << size)
                    link = inner + 1 + j * fan + i
                    nodes[link] |= _mark_child(bounds, depth + 1, cx, cy)
                    rect = pack_bounds(bounds, depth + 1, cx, cy)
                    _append_under(
                        nodes, n32, n16, node_free, state, inner, link, rect, word, prints
                    )
        behind = np.int64(nodes[block] & LOW)
        free_node(nodes, node_free, block, block_class(nodes[block]))
        forget_walk(state, block)
        block = behind
    return inner | INNER


@njit(inline="always")
def _append_under(nodes, n32, n16, node_free, state, inner, link, rect, word, prints):
    """Appends a posting to the leaf that the word at `link`, of this inner node, refers to."""
    ref = np.int64(nodes[link] & LOW)
    if ref == 0:
        nodes[inner] += _COUNT
    new = append_posting(nodes, n32, n16, node_free, state, ref, rect, word, prints)
    nodes[link] = (nodes[link] & ~LOW) | np.uint64(new)


@njit(inline="always")
def _is_splittable(head, depth):
    """Returns whether it is time to split a leaf with this head: its blocks are full, and there
    are 1, 2, 4 ... of them; but not more than a head can count, or it would be with each block."""
    blocks = np.int64(head >> np.uint64(48)) + 1
    full = block_length(head) == CAPACITY[LAST_CLASS]
    counted = blocks <= MOST_BLOCKS and blocks & (blocks - 1) == 0
    return full and 1 <= depth < DEEPEST and counted


@njit(cache=True, nogil=True)
def add_to_tree(
    nodes, n32, n16, node_free, slots_f, slots_i, pool, pool_f, state, trail, ref, place, bounds,
    word, prints,
):  # fmt: skip
    """Adds a posting with these bounds, within the root cell given as (depth, x, y), to its tree;
    returns the new ref of the tree."""
    top = ref
    trail[0], trail[1], trail[2] = -1, -1, ref
    trail[3], trail[4], trail[5] = place
    n = 1
    while n:
        n -= 1
        link, above, at = trail[6 * n], trail[6 * n + 1], trail[6 * n + 2]
        depth, x, y = trail[6 * n + 3], trail[6 * n + 4], trail[6 * n + 5]
        if at & INNER == 0:
            new = np.int64(0)
            if at != 0 and _is_splittable(nodes[at], depth):
                new = split_leaf(
                    nodes, n32, n16, node_free, slots_f, slots_i, pool, pool_f, state, at,
                    (depth, x, y),
                )  # fmt: skip
            split = new != 0
            if not split:
                rect = pack_bounds(bounds, depth, x, y)
                new = append_posting(nodes, n32, n16, node_free, state, at, rect, word, prints)
            if link < 0:
                top = new
            else:
                nodes[link] = (nodes[link] & ~LOW) | np.uint64(new)
                if at == 0:
                    nodes[above] += _COUNT
            if not split:
                continue
            at = new
        inner = at & REF_MASK
        i0, i1, j0, j1, kept = find_children(bounds, depth, x, y)
        if kept:
            rect = pack_bounds(bounds, depth, x, y)
            _append_under(nodes, n32, n16, node_free, state, inner, inner, rect, word, prints)
            continue
        size = STEP_BITS - CELL_BITS[depth + 1]
        fan = 1 << (CELL_BITS[depth + 1] - CELL_BITS[depth])
        for j in range(j0, j1 + 1):
            for i in range(i0, i1 + 1):
                link = inner + 1 + j * fan + i
                cx, cy = x + (i << size), y + (j << size)
                nodes[link] |= _mark_child(bounds, depth + 1, cx, cy)
                trail[6 * n], trail[6 * n + 1], trail[6 * n + 2] = (
                    link,
                    inner,
                    np.int64(nodes[link] & LOW),
                )
                trail[6 * n + 3], trail[6 * n + 4], trail[6 * n + 5] = depth + 1, cx, cy
                n += 1
    return top
