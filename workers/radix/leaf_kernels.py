"""Leaves of the radix GI2: chains of blocks to which postings are added and from which they go."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    ALIGNED_CLASS,
    BLOCK_WORDS,
    CAPACITY,
    CELL_BITS,
    LANES,
    LAST_CLASS,
    LINE,
    LOW,
    NO_WORD,
    NODE_GAPS,
    NODE_ROOM,
    NODE_TOP,
    SLOT_MASK,
    STEP_BITS,
    block_class,
    block_length,
    is_dead,
    pack_rect,
)
from ps2stream.workers.radix.vectors import find_equal, lowest_bit

_LONG = 4  # blocks, from which on a walk removes all that is dead
_MOST = (1 << 16) - 1
_ONE_MORE = np.uint64(1) << np.uint64(32)


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
def make_head(behind, length, cls, blocks):
    """Returns the head of a block: the next block, and how many there are behind this one."""
    return np.uint64(
        np.uint64(behind)
        | np.uint64(length) << np.uint64(32)
        | np.uint64(cls) << np.uint64(40)
        | np.uint64(min(blocks, _MOST)) << np.uint64(48)
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
def pack_bounds(bounds, depth, x, y):
    """Returns bounds in steps relative to the cell at (x, y) of this depth, as a posting holds
    them."""
    shift = STEP_BITS - CELL_BITS[depth] - 8
    last = (1 << (STEP_BITS - CELL_BITS[depth])) - 1
    return pack_rect(
        max(bounds[0] - x, 0) >> shift,
        max(bounds[1] - y, 0) >> shift,
        min(bounds[2] - x, last) >> shift,
        min(bounds[3] - y, last) >> shift,
    )


@njit(cache=True, nogil=True)
def append_posting(nodes, n32, n16, node_free, state, ref, rect, word, prints):
    """Appends a posting to the leaf `ref`, 0 being an empty one; returns its new ref."""
    if ref == 0:
        ref = take_node(nodes, node_free, state, 0)
        nodes[ref] = make_head(0, 0, 0, 0)
    head = nodes[ref]
    cls = block_class(head)
    length = block_length(head)
    if length == CAPACITY[cls]:
        if cls == LAST_CLASS:
            new = take_node(nodes, node_free, state, LAST_CLASS)
            blocks = np.int64(head >> np.uint64(48)) + 1
            nodes[new] = make_head(ref, 0, LAST_CLASS, blocks)
            ref, length = new, 0
        else:
            new = take_node(nodes, node_free, state, cls + 1)
            for i in range(length):
                copy_posting(n32, n16, ref, CAPACITY[cls], i, new, CAPACITY[cls + 1], i)
            free_node(nodes, node_free, ref, cls)
            cls += 1
            nodes[new] = make_head(0, length, cls, 0)
            ref = new
    a, b, c = locate_posting(ref, CAPACITY[cls], length)
    n32[a] = rect
    n32[b] = word
    n16[c] = prints
    nodes[ref] += _ONE_MORE
    return ref


@njit(inline="always")
def _remove_last(nodes, n32, n16, node_free, ref):
    """Removes the last posting of the first block of a leaf; returns its new ref."""
    nodes[ref] -= _ONE_MORE
    head = nodes[ref]
    cls, length = block_class(head), block_length(head)
    if length == 0:
        behind = np.int64(head & LOW)
        free_node(nodes, node_free, ref, cls)
        return behind
    return ref


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
    nodes[new] = make_head(0, length, cls - 1, 0)
    return new


@njit(cache=True, nogil=True)
def remove_posting(nodes, n32, n16, node_free, state, dead, ref, slot):
    """Removes the posting of a slot from a leaf, and all dead ones from a long leaf; returns its
    new ref and the number of blocks that were searched."""
    long = np.int64(nodes[ref] >> np.uint64(48)) >= _LONG
    block, searched = ref, 0
    while block != 0:
        searched += 1
        cap = CAPACITY[block_class(nodes[block])]
        i = 0
        while i < block_length(nodes[block]):
            _, at, _ = locate_posting(block, cap, i)
            length = block_length(nodes[block])
            if long:
                other = np.int64(n32[at]) & SLOT_MASK
                if not (other == slot or is_dead(dead, other)):
                    i += 1
                    continue
            else:
                found = find_equal(n32, at, np.uint32(slot), np.uint32(SLOT_MASK))
                found &= (np.uint64(1) << np.uint64(min(length - i, LANES))) - np.uint64(1)
                if found == NO_WORD:
                    i += LANES
                    continue
                i += lowest_bit(found)
            last = block_length(nodes[ref]) - 1
            copy_posting(n32, n16, ref, CAPACITY[block_class(nodes[ref])], last, block, cap, i)
            new = _remove_last(nodes, n32, n16, node_free, ref)
            if not long:
                return _shrink_leaf(nodes, n32, n16, node_free, state, new), searched
            if new != ref:
                if block == ref:
                    block = new
                    i = 0
                ref = new
                if block == 0:
                    return ref, searched
        block = np.int64(nodes[block] & LOW)
    return _shrink_leaf(nodes, n32, n16, node_free, state, ref), searched
