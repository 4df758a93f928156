"""The first stages of a match: the directory for all (object, term) of a block, then the trees,
level by level, to the leaves at the place of the object (see `match_kernels`)."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    BUCKET,
    CELL_BITS,
    DEEPEST,
    ENTRIES,
    FULL,
    HELD,
    LOW,
    NO_WORD,
    REF_MASK,
    STEP_BITS,
    WIDE,
    WIDE_USED,
    area_at,
    fingerprint,
    follow_buckets,
    home,
    pack_point,
    root_at,
    step_x,
    step_y,
    wide_bit,
)
from ps2stream.workers.radix.pointers import prefetch
from ps2stream.workers.radix.vectors import find_in_bucket, lowest_bit

_ONE_BIT = np.uint64(1)
_LAST_ENTRY = np.uint64(1 << ENTRIES - 1)


@njit(cache=True, nogil=True)
def list_keys(o0, o1, any_term, size, objects, index, scratch):
    """Fills keys (object in the block, term, bucket, root) and the places and fingerprints of the
    objects; returns the number of keys."""
    lon, lat, term_off, term = objects.lon, objects.lat, objects.term_off, objects.term
    chosen = objects.chosen
    directory, wide = index.directory, index.wide
    keys, at, prints = scratch.keys, scratch.at, scratch.prints
    any_wide = index.state[WIDE_USED] != 0
    n = 0
    for o in range(o0, o1):
        b = o - o0
        x, y = step_x(lon[o]), step_y(lat[o])
        root = root_at(x, y)
        at[2 * b], at[2 * b + 1] = np.uint32(x), np.uint32(y)
        p = 4 * b
        prints[p] = prints[p + 1] = prints[p + 2] = prints[p + 3] = NO_WORD
        for t in range(term_off[o], term_off[o + 1]):
            print_ = fingerprint(term[t])
            prints[p + (print_ >> 6)] |= _ONE_BIT << np.uint64(print_ & 63)
            if not (any_term or chosen[t >> 3] >> np.uint8(t & 7) & np.uint8(1)):
                continue
            where = home(term[t], root, size)
            prefetch(directory, BUCKET * where)
            keys[4 * n], keys[4 * n + 1] = np.uint32(b), np.uint32(t)
            keys[4 * n + 2], keys[4 * n + 3] = np.uint32(where), np.uint32(root)
            n += 1
            if any_wide:
                bit = wide_bit(term[t])
                if wide[bit >> 6] >> np.uint64(bit & 63) & _ONE_BIT != NO_WORD:
                    where = home(term[t], WIDE, size)
                    prefetch(directory, BUCKET * where)
                    keys[4 * n], keys[4 * n + 1] = np.uint32(b), np.uint32(t)
                    keys[4 * n + 2], keys[4 * n + 3] = np.uint32(where), np.uint32(WIDE)
                    n += 1
    return n


@njit(cache=True, nogil=True)
def probe_keys(n, o0, size, objects, index, scratch):
    """Looks up the n keys; fills leaves (object, term, ref, point) with the trees that are leaves,
    and inner (object, term, ref) with the others; returns their numbers."""
    term, directory, nodes = objects.term, index.directory, index.nodes
    keys, leaves, inner, at = scratch.keys, scratch.leaves, scratch.inner, scratch.at
    found = deep = 0
    top, below = STEP_BITS - CELL_BITS[1] - 8, STEP_BITS - CELL_BITS[2]
    for k in range(n):
        b, t = np.int64(keys[4 * k]), np.int64(keys[4 * k + 1])
        where, root = np.int64(keys[4 * k + 2]), np.uint64(keys[4 * k + 3])
        o = np.uint32(b + o0)
        x, y = np.int64(at[2 * b]), np.int64(at[2 * b + 1])
        held = find_in_bucket(directory, BUCKET * where, term[t], root)
        if held == FULL:  # its postings may be in the next one
            held, where = follow_buckets(directory, size, where, term[t], root)
        word = directory[BUCKET * where + ENTRIES + (lowest_bit(held | _LAST_ENTRY))]
        ref = np.int64(word & LOW)
        here = np.int64(held & HELD != NO_WORD) & np.int64(ref != 0)
        here &= np.int64(word >> np.uint64(40 + area_at(x, y)) & _ONE_BIT)
        branches = ref >> 31
        ref = ref & REF_MASK if here else 0  # of others nothing is fetched
        child = 1 + ((y >> below) & 7) * 8 + ((x >> below) & 7)
        prefetch(nodes, ref)
        prefetch(nodes, ref + (child if branches else 8))
        # What is no leaf, or nothing, is written and not counted: that cannot be foreseen.
        leaves[4 * found], leaves[4 * found + 1] = o, np.uint32(t)
        leaves[4 * found + 2] = np.uint32(ref)
        leaves[4 * found + 3] = pack_point(x, y, STEP_BITS - 8 if root == WIDE else top)
        found += here & (branches ^ 1)
        inner[3 * deep], inner[3 * deep + 1] = o, np.uint32(t)
        inner[3 * deep + 2] = np.uint32(ref)
        deep += here & branches
    return found, deep


@njit(cache=True, nogil=True)
def descend_trees(found, deep, o0, index, scratch):
    """Goes down the trees of the first `deep` of `inner`; adds the leaves at the place of their
    objects to the `found` ones in `leaves`, and returns their number."""
    nodes = index.nodes
    leaves, inner, at = scratch.leaves, scratch.inner, scratch.at
    depth = 1
    while deep:
        n, deep = deep, 0
        own, next_bits = CELL_BITS[depth], CELL_BITS[depth + 1]
        shift = STEP_BITS - next_bits
        mask, line = (1 << (next_bits - own)) - 1, next_bits - own
        depth += 1
        bits = CELL_BITS[min(depth + 1, DEEPEST)]
        below, fan = STEP_BITS - bits, bits - next_bits
        last = (1 << fan) - 1
        for k in range(n):
            o, t = inner[3 * k], inner[3 * k + 1]
            ref, b = np.int64(inner[3 * k + 2]), np.int64(o) - o0
            x, y = np.int64(at[2 * b]), np.int64(at[2 * b + 1])
            kept = np.int64(nodes[ref] & LOW)
            prefetch(nodes, kept)
            leaves[4 * found], leaves[4 * found + 1] = o, t
            leaves[4 * found + 2] = np.uint32(kept)
            leaves[4 * found + 3] = pack_point(x, y, STEP_BITS - 8 - own)
            found += kept != 0
            child = ref + 1 + (((y >> shift) & mask) << line) + ((x >> shift) & mask)
            word = nodes[child]
            area = ((x >> (shift - 3)) & 7) + 8 * ((y >> (shift - 2)) & 3)
            ref = np.int64(word & LOW)
            here = np.int64(word >> np.uint64(32 + area) & _ONE_BIT) & np.int64(ref != 0)
            branches = ref >> 31
            ref = ref & REF_MASK if here else 0
            child = 1 + (((y >> below) & last) << fan) + ((x >> below) & last)
            prefetch(nodes, ref)
            prefetch(nodes, ref + (child if branches else 8))
            leaves[4 * found], leaves[4 * found + 1] = o, t
            leaves[4 * found + 2] = np.uint32(ref)
            leaves[4 * found + 3] = pack_point(x, y, shift - 8)
            found += here & (branches ^ 1)
            # Not before what is at k was read: deep is k at most.
            inner[3 * deep], inner[3 * deep + 1] = o, t
            inner[3 * deep + 2] = np.uint32(ref)
            deep += here & branches
    return found
