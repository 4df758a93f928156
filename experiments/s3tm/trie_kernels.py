"""Kernels of the nodes' tries, all in one hash table from (trie node, word) to its child."""

# mypy: allow-untyped-defs, allow-untyped-decorators, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def find_slot(key, keys):
    """Returns the slot of a key, or the empty one where it belongs. keys uint64[2^k], 0 empty."""
    mask = np.uint64(len(keys) - 1)
    at = ((key * _ODD) >> _HALF) & mask
    while keys[at] != 0 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    return at


@njit(cache=True, nogil=True)
def insert_subscriptions(off, word, start, node, words, keys, child, inner, ends, used):
    """Inserts each subscription, its words ascending, into the tries of its nodes. Trie node i < N
    is the root of node i. inner uint8[t]: 1 if it has children; ends int32[t]: subscriptions that
    end there. Returns the trie nodes in use."""
    for s in range(len(off) - 1):
        for k in range(start[s], start[s + 1]):
            at = node[k]
            for j in range(off[s], off[s + 1]):
                key = np.uint64(at) * np.uint64(words) + np.uint64(word[j]) + np.uint64(1)
                slot = find_slot(key, keys)
                if keys[slot] == 0:
                    keys[slot] = key
                    child[slot] = used
                    inner[at] = 1
                    used += 1
                at = np.int64(child[slot])
            ends[at] += 1
    return used


@njit(cache=True, nogil=True)
def match_publications(
    off, word, row, node, words, keys, child, inner, ends, tree, after, probes, found
):  # fmt: skip
    """Matches publication row[i], its words ascending, on node[i]. Writes the lookups that this
    takes into probes, and the subscriptions that match into found, int64[i]. tree, after: room for
    a path, int64[longest publication + 1]."""
    for i in range(len(row)):
        begin, end = off[row[i]], off[row[i] + 1]
        looked = np.int64(0)
        matched = np.int64(0)
        depth = np.int64(0)
        tree[0] = node[i]
        after[0] = begin
        while depth >= 0:
            at = tree[depth]
            j = after[depth]
            if j == end or inner[at] == 0:
                depth -= 1
                continue
            after[depth] = j + 1
            looked += 1
            key = np.uint64(at) * np.uint64(words) + np.uint64(word[j]) + np.uint64(1)
            slot = find_slot(key, keys)
            if keys[slot] != 0:
                depth += 1
                tree[depth] = child[slot]
                after[depth] = j + 1
                matched += ends[child[slot]]
        probes[i] = looked
        found[i] = matched
