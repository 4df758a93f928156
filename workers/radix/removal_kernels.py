"""Removing postings from the trees of the radix GI2, and the nodes that are empty then."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    CELL_BITS,
    INNER,
    LAST_CLASS,
    LOW,
    NO_WORD,
    REF_MASK,
    ROOT_BITS,
    STEP_BITS,
)
from ps2stream.workers.radix.leaf_kernels import (
    EVERYTHING,
    free_node,
    is_walked,
    note_walk,
    remove_posting,
)
from ps2stream.workers.radix.tree_kernels import find_children

_COUNT = np.uint64(1) << np.uint64(32)
_WALK = 8
"""Blocks behind the first: so long is a leaf out of which a walk removes all that is dead."""


@njit(cache=True, nogil=True)
def _remove_from_leaf(nodes, n32, n16, node_free, state, dead, ref, slot, most):
    """Removes the posting of a slot from a leaf, unless a walk that is noted has, as the slot is
    dead; returns the same as `remove_posting`."""
    is_swept = most != EVERYTHING
    if is_swept and is_walked(state, ref):
        return ref, np.int64(0), False
    is_walk = np.int64(nodes[ref] >> np.uint64(48)) >= _WALK
    new, blocks, stopped = remove_posting(nodes, n32, n16, node_free, state, dead, ref, slot, most)
    if is_swept and is_walk and new != 0 and not stopped:
        note_walk(state, new)
    return new, blocks, stopped


@njit(cache=True, nogil=True)
def remove_from_tree(
    nodes, n32, n16, node_free, state, dead, trail, ref, place, bounds, slot, most
):
    """Removes the postings of a slot with these bounds from a tree, and the nodes that are empty
    then, until it stops in a leaf; returns its new ref, the number of blocks that were searched,
    and whether it stopped. A tree without such postings stays as it is. The slot is dead, unless
    `most` is EVERYTHING."""
    searched = np.int64(0)
    if ref == 0:
        return ref, searched, False
    if ref & INNER == 0:
        return _remove_from_leaf(nodes, n32, n16, node_free, state, dead, ref, slot, most)
    trail[0], trail[1], trail[2] = -1, -1, ref & REF_MASK
    trail[3], trail[4], trail[5] = place
    n, k = 1, 0
    stopped = False
    while k < n and not stopped:
        inner, depth, x, y = trail[6 * k + 2], trail[6 * k + 3], trail[6 * k + 4], trail[6 * k + 5]
        k += 1
        i0, i1, j0, j1, kept = find_children(bounds, depth, x, y)
        size = STEP_BITS - CELL_BITS[depth + 1]
        fan = 1 << (CELL_BITS[depth + 1] - CELL_BITS[depth])
        if kept:
            i0, i1, j0, j1 = 0, 0, 0, 0
        for j in range(j0, j1 + 1):
            for i in range(i0, i1 + 1):
                link = inner if kept else inner + 1 + j * fan + i
                at = np.int64(nodes[link] & LOW)
                if stopped:
                    continue
                if at & INNER != 0:
                    trail[6 * n], trail[6 * n + 1], trail[6 * n + 2] = link, inner, at & REF_MASK
                    trail[6 * n + 3] = depth + 1
                    trail[6 * n + 4], trail[6 * n + 5] = x + (i << size), y + (j << size)
                    n += 1
                elif at != 0:
                    new, blocks, stopped = _remove_from_leaf(
                        nodes, n32, n16, node_free, state, dead, at, slot, most
                    )
                    searched += blocks
                    if new == 0:
                        nodes[inner] -= _COUNT
                        nodes[link] = NO_WORD if not kept else nodes[link] & ~LOW
                    else:
                        nodes[link] = (nodes[link] & ~LOW) | np.uint64(new)
    while n:
        n -= 1
        link, above, inner, depth = (
            trail[6 * n],
            trail[6 * n + 1],
            trail[6 * n + 2],
            trail[6 * n + 3],
        )
        if nodes[inner] >> np.uint64(32) != NO_WORD:
            continue
        wide = CELL_BITS[depth + 1] - CELL_BITS[depth] == ROOT_BITS
        free_node(nodes, node_free, inner, LAST_CLASS + (1 if wide else 2))
        if link < 0:
            ref = 0
        else:
            nodes[link] = NO_WORD
            nodes[above] -= _COUNT
    return ref, searched, stopped
