"""Finding the query that is like a new one, by the place where the new one's posting would go."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER
from ps2stream.workers.radix.division_kernels import other_list
from ps2stream.workers.radix.layout import (
    BLOCK,
    CAPACITY,
    CELL_BITS,
    DIRECTORY_SIZE,
    FIRST,
    INNER,
    KIND_MASK,
    LANES,
    LEVEL_MASK,
    LEVEL_SHIFT,
    LOW,
    NO_WORD,
    REF_MASK,
    SECOND,
    SESSION,
    SLOT_BITS,
    SLOT_MASK,
    STEP_BITS,
    WIDE,
    X_BOX,
    X_GEOM,
    X_HEAD,
    X_LIST,
    X_LISTED,
    block_class,
    block_length,
    expression_of,
    find_entry,
    posted_terms,
)
from ps2stream.workers.radix.leaf_kernels import locate_posting, pack_bounds
from ps2stream.workers.radix.tag_kernels import deleted_at, name_terms
from ps2stream.workers.radix.tree_kernels import (
    bound_region,
    find_children,
    list_roots,
    place_root,
)
from ps2stream.workers.radix.vectors import find_equal, lowest_bit

_BLOCKS = 4  # of a leaf, that are searched: adversaries get no more
_CANDIDATES = 8  # whose records are read
_ALL_BITS = np.uint32(0xFFFFFFFF)
_COUNTS = 0xFFFFFF  # form, terms and program in the head of an expression
_SHAPE = ~(255 << 16)  # the head of extras but for its class
_TRIVIAL = 1 | 1 << 8  # a rectangle of one box


@njit(inline="always")
def _equal_words(pool, a, b, n):
    same = True
    for i in range(n):
        same &= pool[a + i] == pool[b + i]
    return same


@njit(inline="always")
def _is_same_expression(slots_i, pool, slot, other):
    kind, kind_b = slots_i[8 * slot + SESSION] & KIND_MASK, slots_i[8 * other + SESSION] & KIND_MASK
    if kind_b != BLOCK:
        first = slots_i[8 * slot + FIRST] == slots_i[8 * other + FIRST]
        second = slots_i[8 * slot + SECOND] == slots_i[8 * other + SECOND]
        return kind == kind_b and first and second
    a, b = expression_of(slots_i, slot), expression_of(slots_i, other)
    head = np.int64(pool[b])
    if kind != BLOCK:  # the other one got its blocks when it was shared
        form, n, post, first, second = name_terms(slots_i, slot)
        same = head & 0xFFFFFFFF == form | n << 8 and posted_terms(pool, b) == post
        return same and pool[b + 1] == first and (n == 1 or pool[b + 2] == second)
    if (np.int64(pool[a]) ^ head) & 0xFFFFFFFF != 0:
        return False
    words = (head >> 8 & 255) + (head >> 16 & 0xFFFF)
    return posted_terms(pool, a) == posted_terms(pool, b) and _equal_words(
        pool, a + 1, b + 1, words
    )


@njit(inline="always")
def _has_same_extras(slots_i, pool, slot, other):
    a = b = np.int64(0)
    if slots_i[8 * slot + SESSION] & KIND_MASK == BLOCK:
        a = slots_i[8 * slot + SECOND]
    if slots_i[8 * other + SESSION] & KIND_MASK == BLOCK:
        b = slots_i[8 * other + SECOND]
    if b == 0:
        return a == 0
    head = np.int64(pool[b + X_HEAD]) & _SHAPE
    listed = np.int64(pool[b + X_LISTED]) & 0xFFFFFFFF
    if a == 0:
        return head == _TRIVIAL and pool[b + X_LIST] == NO_WORD
    if np.int64(pool[a + X_HEAD]) & _SHAPE != head:
        return False
    if head >> 8 & 255 > 1 and not _equal_words(pool, a + X_BOX, b + X_BOX, 4):
        return False
    if not _equal_words(pool, a + X_GEOM, b + X_GEOM, head >> 32):
        return False
    if (pool[a + X_LIST] == NO_WORD) != (pool[b + X_LIST] == NO_WORD):
        return False
    if np.int64(pool[a + X_LISTED]) & 0xFFFFFFFF != listed:
        return False
    return _equal_words(pool, np.int64(pool[a + X_LIST]), np.int64(pool[b + X_LIST]), listed)


@njit(cache=True, nogil=True)
def is_twin(slots_i, pool, slot, other):
    """Returns whether the query of `other` is live and differs from that of `slot`, a new one, in
    handle and session alone."""
    for i in range(4):
        if slots_i[8 * slot + i] != slots_i[8 * other + i]:
            return False
    word = slots_i[8 * slot + SESSION] ^ slots_i[8 * other + SESSION]
    return (
        word >> LEVEL_SHIFT & LEVEL_MASK == 0
        and deleted_at(slots_i, pool, other) == NEVER
        and _is_same_expression(slots_i, pool, slot, other)
        and _has_same_extras(slots_i, pool, slot, other)
    )


@njit(cache=True, nogil=True)
def find_twin(index, scratch, slot, key, mode, prints):
    """Returns the slot of a query like that of `slot`, whose posting under the term `key` is still
    to be placed with this mode and these fingerprints; or -1 if there is none, or none near the
    start of the leaf where the posting would go."""
    nodes, n32, n16 = index.nodes, index.n32, index.n16
    slots_f, slots_i, pool, pool_f = index.slots_f, index.slots_i, index.pool, index.pool_f
    list_roots(slots_f, slots_i, pool, pool_f, slot, scratch.roots)
    root = scratch.roots[0]
    if root == WIDE:
        key = other_list(index, slot, key)
    at = find_entry(index.directory, index.state[DIRECTORY_SIZE], key, root)
    ref = np.int64(index.directory[at] & LOW)
    depth, x, y = place_root(root)
    bounds = bound_region(slots_f, slots_i, pool, pool_f, slot, depth, x, y)
    while ref & INNER != 0:
        ref &= REF_MASK
        i0, _, j0, _, kept = find_children(bounds, depth, x, y)
        if not kept:
            size, fan = STEP_BITS - CELL_BITS[depth + 1], CELL_BITS[depth + 1] - CELL_BITS[depth]
            ref += 1 + (j0 << fan) + i0
            depth, x, y = depth + 1, x + (i0 << size), y + (j0 << size)
        ref = np.int64(nodes[ref] & LOW)
    rect, blocks, read = pack_bounds(bounds, depth, x, y), 0, 0
    while ref != 0 and blocks < _BLOCKS:
        head = nodes[ref]
        cap, length = CAPACITY[block_class(head)], block_length(head)
        for i in range(0, length, LANES):
            place, word_at, prints_at = locate_posting(ref, cap, i)
            found = find_equal(n32, place, rect, _ALL_BITS)
            found &= (np.uint64(1) << np.uint64(min(length - i, LANES))) - np.uint64(1)
            while found != NO_WORD:
                k = lowest_bit(found)
                found &= found - np.uint64(1)
                word = np.int64(n32[word_at + k])
                if word >> SLOT_BITS != mode or np.int64(n16[prints_at + k]) != prints:
                    continue
                if is_twin(slots_i, pool, slot, word & SLOT_MASK):
                    return word & SLOT_MASK
                read += 1
                if read == _CANDIDATES:
                    return np.int64(-1)
        ref = np.int64(head & LOW)
        blocks += 1
    return np.int64(-1)
