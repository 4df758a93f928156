"""Leaves of the radix GI2: chains of blocks to which postings are added and from which they go."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    ALIGNED_CLASS,
    ALL,
    BLOCK_WORDS,
    CAPACITY,
    CELL_BITS,
    EVEN,
    LANES,
    LAST_CLASS,
    LINE,
    LOW,
    NO_WORD,
    NODE_GAPS,
    NODE_ROOM,
    NODE_TOP,
    SLOT_BITS,
    SLOT_MASK,
    STEP_BITS,
    SWEPT_BLOCK,
    SWEPT_LEAF,
    WALK_SETS,
    WALK_WAYS,
    WALKED,
    block_class,
    block_length,
    is_dead,
    pack_rect,
)
from ps2stream.workers.radix.vectors import find_equal, lowest_bit

_NORTH = (1 << STEP_BITS - 1) - 1  # the last step
_LONG = 4  # blocks, from which on a walk removes all that is dead
_REMOVALS = 4  # that take as long as it does to search a block
EVERYTHING = 1 << 62  # instead of the number of blocks after which a walk stops
MOST_BLOCKS = (1 << 16) - 1  # that a head can count
_ONE_MORE = np.uint64(1) << np.uint64(32)


@njit(inline="always")
def _notes_of(ref):
    """Returns where in the state a leaf is noted, if it is."""
    return WALKED + WALK_WAYS * ((ref >> 3) & (WALK_SETS - 1))


@njit(inline="always")
def is_walked(state, ref):
    """Returns whether a sweep has removed from a leaf all slots that are dead. It is noted by its
    first block, until that is freed or more slots are dead."""
    at = _notes_of(ref)
    found = False
    for i in range(WALK_WAYS):
        found |= state[at + i] == ref
    return found


@njit(inline="always")
def note_walk(state, ref):
    """Notes that all dead slots are out of a leaf; an older note may make room."""
    at = _notes_of(ref)
    for i in range(WALK_WAYS - 1, 0, -1):
        state[at + i] = state[at + i - 1]
    state[at] = ref


@njit(inline="always")
def _carry_walk(state, ref, new):
    """Notes of a leaf by its new first block what is noted by the one before: what is appended is
    not dead."""
    if is_walked(state, ref):
        note_walk(state, new)


@njit(inline="always")
def forget_walk(state, block):
    """Forgets what is noted of a block that is freed."""
    at = _notes_of(block)
    for i in range(WALK_WAYS):
        if state[at + i] == block:
            state[at + i] = 0


@njit(inline="always")
def forget_walks(state):
    """Forgets all walks, as more slots are dead."""
    for i in range(WALK_SETS * WALK_WAYS):
        state[WALKED + i] = 0


@njit(inline="always")
def take_node(nodes, node_free, state, cls):
    """Takes a block of this class from the nodes, which have room for it; returns its offset."""
    at = node_free[cls]
    if at != 0:
        node_free[cls] = np.int64(nodes[at])
        return at
    at = state[NODE_TOP]
    if ALIGNED_CLASS <= cls <= LAST_CLASS:
        gap = (LINE - 1 - at) & (LINE - 1)
        state[NODE_GAPS] += gap
        at += gap
    state[NODE_TOP] = at + BLOCK_WORDS[cls]
    return at


@njit(inline="always")
def free_node(nodes, node_free, at, cls):
    """Gives back a block of this class."""
    nodes[at] = np.uint64(node_free[cls])
    node_free[cls] = at


@njit(inline="always")
def make_head(behind, length, cls, blocks, even):
    """Returns the head of a block: the next block, and how many there are behind this one. even:
    EVEN, which may be other bits of a head too, if it is."""
    return np.uint64(
        np.uint64(behind)
        | even & EVEN
        | np.uint64(length) << np.uint64(32)
        | np.uint64(cls) << np.uint64(40)
        | np.uint64(min(blocks, MOST_BLOCKS)) << np.uint64(48)
    )


@njit(inline="always")
def locate_posting(at, cap, i):
    """Returns where posting i of a block with this capacity has its rectangle and slot in n32 and
    its fingerprints in n16."""
    first = 2 * (at + 1)
    return first + i, first + cap + i, 2 * (first + 2 * cap) + i


@njit(inline="always")
def copy_posting(n32, n16, source, source_cap, i, target, target_cap, j):
    """Copies posting i of a block to place j of one, with their capacities."""
    a, b, c = locate_posting(source, source_cap, i)
    d, e, f = locate_posting(target, target_cap, j)
    n32[d] = n32[a]
    n32[e] = n32[b]
    n16[f] = n16[c]


@njit(inline="always")
def _move_last(nodes, n32, n16, ref, block, i):
    """Copies the last posting of the first block of the leaf `ref` to place i of a block."""
    head = nodes[ref]
    source, target = CAPACITY[block_class(head)], CAPACITY[block_class(nodes[block])]
    copy_posting(n32, n16, ref, source, block_length(head) - 1, block, target, i)
    nodes[block] &= head | ~EVEN


@njit(inline="always")
def pack_bounds(bounds, depth, x, y):
    """Returns bounds in steps relative to the cell at (x, y) of this depth, as a posting holds
    them. What reaches the north pole reaches the end of its cell, also of that of WIDE trees, of
    which the world is the lower half."""
    shift = STEP_BITS - CELL_BITS[depth] - 8
    last = (1 << (STEP_BITS - CELL_BITS[depth])) - 1
    high = max(bounds[3] - y, last * np.int64(bounds[3] == _NORTH))
    return pack_rect(
        max(bounds[0] - x, 0) >> shift,
        max(bounds[1] - y, 0) >> shift,
        min(bounds[2] - x, last) >> shift,
        min(high, last) >> shift,
    )


@njit(cache=True, nogil=True)
def append_posting(nodes, n32, n16, node_free, state, ref, rect, word, prints):
    """Appends a posting to the leaf `ref`, 0 being an empty one; returns its new ref."""
    if ref == 0:
        ref = take_node(nodes, node_free, state, 0)
        nodes[ref] = make_head(0, 0, 0, 0, EVEN)
    head = nodes[ref]
    cls = block_class(head)
    length = block_length(head)
    if length == CAPACITY[cls]:
        if cls == LAST_CLASS:
            new = take_node(nodes, node_free, state, LAST_CLASS)
            blocks = np.int64(head >> np.uint64(48)) + 1
            nodes[new] = make_head(ref, 0, LAST_CLASS, blocks, EVEN)
            _carry_walk(state, ref, new)
            if state[SWEPT_LEAF] == ref:
                state[SWEPT_LEAF] = new
            ref, length = new, 0
        else:
            new = take_node(nodes, node_free, state, cls + 1)
            for i in range(length):
                copy_posting(n32, n16, ref, CAPACITY[cls], i, new, CAPACITY[cls + 1], i)
            free_node(nodes, node_free, ref, cls)
            _carry_walk(state, ref, new)
            forget_walk(state, ref)
            cls += 1
            nodes[new] = make_head(0, length, cls, 0, head)
            ref = new
    a, b, c = locate_posting(ref, CAPACITY[cls], length)
    n32[a] = rect
    n32[b] = word
    n16[c] = prints
    is_odd = (rect != 0) | (np.int64(word) >> SLOT_BITS != ALL)
    nodes[ref] = nodes[ref] + _ONE_MORE & ~(EVEN * np.uint64(is_odd))
    return ref


@njit(inline="always")
def _remove_last(nodes, n32, n16, node_free, state, ref):
    """Removes the last posting of the first block of a leaf; returns its new ref."""
    nodes[ref] -= _ONE_MORE
    head = nodes[ref]
    cls, length = block_class(head), block_length(head)
    if length == 0:
        behind = np.int64(head & LOW)
        free_node(nodes, node_free, ref, cls)
        forget_walk(state, ref)
        if state[SWEPT_LEAF] == ref:
            state[SWEPT_LEAF] = behind
            if state[SWEPT_BLOCK] == ref:
                state[SWEPT_BLOCK] = behind
        return behind
    return ref


@njit(inline="always")
def forget_stop(state):
    """Forgets where a sweep stopped in a leaf: the next one searches it from its start."""
    state[SWEPT_LEAF] = state[SWEPT_BLOCK] = 0


@njit(inline="always")
def _shrink_leaf(nodes, n32, n16, node_free, state, ref):
    """Moves a leaf of one block that is far from full to a smaller one; returns its new ref."""
    if ref == 0:
        return ref
    head = nodes[ref]
    cls, length = block_class(head), block_length(head)
    if head & LOW != NO_WORD or cls < 2 or length > CAPACITY[cls - 2]:
        return ref
    need = BLOCK_WORDS[cls - 1] + LINE
    if node_free[cls - 1] == 0 and state[NODE_TOP] + need > state[NODE_ROOM]:
        return ref
    new = take_node(nodes, node_free, state, cls - 1)
    for i in range(length):
        copy_posting(n32, n16, ref, CAPACITY[cls], i, new, CAPACITY[cls - 1], i)
    free_node(nodes, node_free, ref, cls)
    forget_walk(state, ref)
    if state[SWEPT_LEAF] == ref:
        forget_stop(state)
    nodes[new] = make_head(0, length, cls - 1, 0, head)
    return new


@njit(cache=True, nogil=True)
def _remove_dead(nodes, n32, n16, node_free, state, dead, ref, slot, most):
    """Removes the posting of a slot and all dead ones from a long leaf. It may stop after `most`
    blocks, a removal being counted as a part of one, and notes where, unless `most` is EVERYTHING.
    Returns the new ref of the leaf, the blocks, and whether it stopped."""
    block, blocks, removed = ref, np.int64(0), np.int64(0)
    bounded = most != EVERYTHING
    if bounded and state[SWEPT_BLOCK] != 0:
        if state[SWEPT_LEAF] == ref:
            block = state[SWEPT_BLOCK]
            forget_stop(state)
        else:
            bounded = False  # done before, until the sweep stopped in another leaf of the slot
    while block != 0:
        if bounded and blocks + removed // _REMOVALS >= most:
            state[SWEPT_LEAF], state[SWEPT_BLOCK] = ref, block
            return ref, blocks + removed // _REMOVALS, True
        blocks += 1
        cap, i, is_gone = CAPACITY[block_class(nodes[block])], 0, False
        while not is_gone and i < block_length(nodes[block]):
            other = np.int64(n32[locate_posting(block, cap, i)[1]]) & SLOT_MASK
            if not (other == slot or is_dead(dead, other)):
                i += 1
                continue
            _move_last(nodes, n32, n16, ref, block, i)
            removed += 1
            new = _remove_last(nodes, n32, n16, node_free, state, ref)
            is_gone = new != ref and block == ref
            ref = new
        block = ref if is_gone else np.int64(nodes[block] & LOW)
    return ref, blocks + removed // _REMOVALS, False


@njit(cache=True, nogil=True)
def remove_posting(nodes, n32, n16, node_free, state, dead, ref, slot, most):
    """Removes the posting of a slot from a leaf, and all dead ones from a long leaf, in which it
    may stop after `most` blocks; see `_remove_dead`. Returns the new ref of the leaf, the blocks
    that were searched, and whether it stopped."""
    if np.int64(nodes[ref] >> np.uint64(48)) >= _LONG:
        new, blocks, stopped = _remove_dead(
            nodes, n32, n16, node_free, state, dead, ref, slot, most
        )
        if not stopped:
            new = _shrink_leaf(nodes, n32, n16, node_free, state, new)
        return new, blocks, stopped
    if most != EVERYTHING and state[SWEPT_LEAF] == ref:
        forget_stop(state)  # which was long when the sweep stopped in it
    block, blocks = ref, np.int64(0)
    while block != 0:
        blocks += 1
        cap, length = CAPACITY[block_class(nodes[block])], block_length(nodes[block])
        for first in range(0, length, LANES):
            _, at, _ = locate_posting(block, cap, first)
            found = find_equal(n32, at, np.uint32(slot), np.uint32(SLOT_MASK))
            found &= (np.uint64(1) << np.uint64(min(length - first, LANES))) - np.uint64(1)
            if found != NO_WORD:
                _move_last(nodes, n32, n16, ref, block, first + lowest_bit(found))
                new = _remove_last(nodes, n32, n16, node_free, state, ref)
                return _shrink_leaf(nodes, n32, n16, node_free, state, new), blocks, False
        block = np.int64(nodes[block] & LOW)
    return ref, blocks, False
