"""The first stages of a match: the directory for all (object, term) of a block, then the trees,
level by level, to the leaves at the place of the object (see `match_kernels`).

What is between the stages is packed in words of 64 bits, as each of these loops is bound by the
number of its instructions. A pair is object | term << 32. A spot is what the directory is asked for
an object: point relative to the root cell | shift of its area << 32 | its child in a root << 40 |
root << 48; the second one of an object is for WIDE trees.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.division_kernels import CODE_SHIFT, divide_term
from ps2stream.workers.radix.layout import (
    BUCKET,
    CELL_BITS,
    DEEPEST,
    ENTRIES,
    LINE,
    LOW,
    NO_WORD,
    PRINT_WORDS,
    REF_MASK,
    ROOT_BITS,
    STEP_BITS,
    WIDE,
    WIDE_USED,
    area_at,
    fingerprint,
    home,
    look_further,
    pack_point,
    root_at,
    step_x,
    step_y,
    wide_bit,
)
from ps2stream.workers.radix.pointers import prefetch
from ps2stream.workers.radix.vectors import find_term, lowest_bit

_ONE_BIT = np.uint64(1)
_SPOT = np.uint64((1 << CODE_SHIFT - 32) - 1)
_LAST_ENTRY = np.uint64(1 << ENTRIES - 1)
_AREA_BYTE = 40  # bit where the areas of a word of the directory begin


@njit(inline="always")
def _pack_spot(point, area, child, root):
    """Returns a spot; `area` is that of the directory."""
    rest = np.uint64(_AREA_BYTE + area | child << 8 | root << 16)
    return np.uint64(point) | rest << np.uint64(32)


@njit(cache=True, nogil=True)
def place_objects(o0, o1, objects, scratch):
    """Fills the places and spots of the objects. A loop of its own, which becomes one over
    vectors."""
    lon, lat, at, spots = objects.lon, objects.lat, scratch.at, scratch.spots
    points = scratch.points
    below = STEP_BITS - CELL_BITS[2]
    for b in range(o1 - o0):
        x, y = step_x(lon[o0 + b]), step_y(lat[o0 + b])
        points[2 * b], points[2 * b + 1] = lon[o0 + b], lat[o0 + b]
        at[2 * b], at[2 * b + 1] = np.uint32(x), np.uint32(y)
        child = 1 + (((y >> below) & 7) << ROOT_BITS) + ((x >> below) & 7)
        point = pack_point(x, y, STEP_BITS - CELL_BITS[1] - 8)
        spots[2 * b] = _pack_spot(point, area_at(x, y), child, root_at(x, y))
        spots[2 * b + 1] = _pack_spot(pack_point(x, y, STEP_BITS - 8), 0, LINE, WIDE)


@njit(cache=True, nogil=True)
def list_keys(o0, o1, any_term, size, objects, index, scratch):
    """Fills keys (pair, bucket | number of the spot << 32) and the fingerprints of the objects,
    which `place_objects` has placed; returns the number of keys."""
    term_off, term, chosen = objects.term_off, objects.term, objects.chosen
    directory, wide = index.directory, index.wide
    keys, prints, spots = scratch.keys, scratch.prints, scratch.spots
    any_wide = index.state[WIDE_USED] != 0
    n = 0
    for o in range(o0, o1):
        b = o - o0
        root = spots[2 * b] >> np.uint64(48)
        p = PRINT_WORDS * b
        prints[p] = prints[p + 1] = prints[p + 2] = prints[p + 3] = NO_WORD
        for t in range(term_off[o], term_off[o + 1]):
            print_ = fingerprint(term[t])
            prints[p + (print_ >> 6)] |= _ONE_BIT << np.uint64(print_ & 63)
            if not (any_term or chosen[t >> 3] >> np.uint8(t & 7) & np.uint8(1)):
                continue
            pair = np.uint64(o | t << 32)
            where = home(term[t], root, size)
            prefetch(directory, BUCKET * where)
            keys[2 * n], keys[2 * n + 1] = pair, np.uint64(where | b << 33)
            n += 1
            if any_wide:
                bit = wide_bit(term[t])
                if wide[bit >> 6] >> np.uint64(bit & 63) & _ONE_BIT != NO_WORD:
                    where = home(term[t], WIDE, size)
                    prefetch(directory, BUCKET * where)
                    keys[2 * n], keys[2 * n + 1] = pair, np.uint64(where | 2 * b + 1 << 32)
                    n += 1
    return n


@njit(cache=True, nogil=True)
def probe_keys(n, size, objects, index, scratch):
    """Looks up the n keys; fills leaves (pair, ref | point << 32) with the trees that are leaves,
    and inner (pair, ref) with the others; returns their numbers."""
    term, directory, nodes = objects.term, index.directory, index.nodes
    keys, leaves, inner, spots = scratch.keys, scratch.leaves, scratch.inner, scratch.spots
    found = deep = 0
    for k in range(n):
        pair, key = keys[2 * k], keys[2 * k + 1]
        spot = spots[np.int64(key >> np.uint64(32) & _SPOT)]
        root = spot >> np.uint64(48)
        wanted = divide_term(term[np.int64(pair >> np.uint64(32))], key >> np.uint64(CODE_SHIFT))
        where = BUCKET * np.int64(key & LOW)
        held = find_term(directory, where, wanted)
        word = directory[where + ENTRIES + lowest_bit(held | _LAST_ENTRY)]
        is_held = (held != NO_WORD) & (word >> np.uint64(32) & np.uint64(255) == root)
        if not is_held and (held != NO_WORD or directory[where + BUCKET - 1] != NO_WORD):
            # Another root was first, or the bucket is full: its postings may be in the next one.
            word = look_further(directory, size, where // BUCKET, wanted, root)
            is_held = word != NO_WORD
        ref = np.int64(word & LOW)
        here = np.int64(word >> (spot >> np.uint64(32) & np.uint64(255)) & _ONE_BIT)
        here &= np.int64(is_held) & np.int64(ref != 0)
        branches = ref >> 31
        ref &= REF_MASK & -here  # of others nothing is fetched
        prefetch(nodes, ref)
        prefetch(nodes, ref + (np.int64(spot >> np.uint64(40)) & 255 if branches else LINE))
        # What is no leaf, or nothing, is written and not counted: that cannot be foreseen.
        found_at = np.uint64(ref) | spot << np.uint64(32)
        leaves[2 * found], leaves[2 * found + 1] = pair, found_at
        found += here & (branches ^ 1)
        inner[2 * deep], inner[2 * deep + 1] = pair, found_at & LOW
        deep += here & branches
    return found, deep


@njit(cache=True, nogil=True)
def descend_trees(found, deep, o0, index, scratch):
    """Goes down the trees of the first `deep` of `inner`; adds the leaves at the place of their
    objects to the `found` ones in `leaves`, and returns their number. o0: first object."""
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
            pair, ref = inner[2 * k], np.int64(inner[2 * k + 1])
            b = np.int64(pair & LOW) - o0
            x, y = np.int64(at[2 * b]), np.int64(at[2 * b + 1])
            kept = nodes[ref] & LOW
            prefetch(nodes, np.int64(kept))
            point = np.uint64(pack_point(x, y, STEP_BITS - 8 - own))
            leaves[2 * found], leaves[2 * found + 1] = pair, kept | point << np.uint64(32)
            found += kept != NO_WORD
            child = ref + 1 + (((y >> shift) & mask) << line) + ((x >> shift) & mask)
            word = nodes[child]
            area = ((x >> (shift - 3)) & 7) + 8 * ((y >> (shift - 2)) & 3)
            ref = np.int64(word & LOW)
            here = np.int64(word >> np.uint64(32 + area) & _ONE_BIT) & np.int64(ref != 0)
            branches = ref >> 31
            ref &= REF_MASK & -here
            child = 1 + (((y >> below) & last) << fan) + ((x >> below) & last)
            prefetch(nodes, ref)
            prefetch(nodes, ref + (child if branches else LINE))
            point = np.uint64(pack_point(x, y, shift - 8))
            leaves[2 * found] = pair
            leaves[2 * found + 1] = np.uint64(ref) | point << np.uint64(32)
            found += here & (branches ^ 1)
            # Not before what is at k was read: deep is k at most.
            inner[2 * deep], inner[2 * deep + 1] = pair, np.uint64(ref)
            deep += here & branches
    return found
