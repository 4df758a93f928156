"""Kernels of the ring of consistent hashing (algorithms.md 5.3)."""

# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from ps2stream.keyed.compiling import inline_kernel, kernel
from ps2stream.keyed.key_kernels import murmur

_HALF = np.uint64(32)


@inline_kernel
def hash_to_ring(key, seed):
    """Returns the place of a key on the ring, 0 to 2^32 - 1."""
    return np.uint32(murmur(key, seed) >> _HALF)


@kernel
def find_node(places, key, seed):
    """Returns the first node at or clockwise of a key. places uint32[nodes], ascending."""
    place = hash_to_ring(key, seed)
    low, high = np.int64(0), np.int64(places.shape[0])
    while low < high:
        middle = (low + high) >> 1
        if places[middle] < place:
            low = middle + 1
        else:
            high = middle
    return low if low < places.shape[0] else np.int64(0)


@kernel
def list_distinct(owner, front, order):
    """Writes for each node the first distinct workers from it clockwise, order uint16[nodes, d]; d
    at most n. owner uint16[nodes]: the worker of each node; front uint16[n]: all workers, in any
    order, which it changes.

    The list of a node is that of the next one with its own worker moved to the front; the lists of
    the last nodes are right after a turn around the ring.
    """
    n, depth, nodes = front.shape[0], order.shape[1], owner.shape[0]
    for turn in range(2):
        for node in range(nodes - 1, -1, -1):
            worker = owner[node]
            held = worker
            for i in range(n):
                held, front[i] = front[i], held
                if held == worker:
                    break
            if turn == 1:
                for i in range(depth):
                    order[node, i] = front[i]


@kernel
def list_candidates(places, order, seed, keys, off, out):
    """Writes the candidates of each key, off[i+1] - off[i] of them, into out[off[i]:off[i+1]]."""
    for i in range(keys.shape[0]):
        node = find_node(places, keys[i], seed)
        for j in range(off[i + 1] - off[i]):
            out[off[i] + j] = order[node, j]
