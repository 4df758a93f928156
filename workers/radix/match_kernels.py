"""Matching in the radix GI2, in stages over blocks of objects (speed.md 3).

probe   the directory for all (object, term) of a block: lines are prefetched in one pass and
        read in the next; a hit prefetches its tree.
descend the trees, level by level, to the leaves at the place of the object.
scan    the leaves: sixteen rectangles at once. A group in which one holds the object prefetches
        its slots and fingerprints.
filter  the groups by fingerprints. A survivor is a candidate and prefetches its slot's line.
verify  the candidates: exact region, LSNs, whole terms or the expression, canonical emitter
        (algorithms.md 6.6).

The cache misses of a stage do not depend on each other, so they overlap. Nothing is changed.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    ALL,
    ANY,
    CAPACITY,
    CELL_BITS,
    FREE,
    INNER,
    LANES,
    LOW,
    NO_WORD,
    REF_MASK,
    SLOT_BITS,
    SLOT_MASK,
    STEP_BITS,
    WIDE,
    WIDE_USED,
    area_at,
    block_class,
    block_length,
    fingerprint,
    home,
    pack_point,
    root_at,
    step_x,
    step_y,
    wide_bit,
)
from ps2stream.workers.radix.pointers import (
    point_addresses,
    point_met,
    point_objects,
    pointer_to,
    prefetch,
)
from ps2stream.workers.radix.vectors import find_holding, lowest_bit
from ps2stream.workers.radix.verify_kernels import verify_candidates

BATCH = 64  # objects a block: what is between its stages stays in the second-level cache
GROUPS = 1024  # of sixteen postings
CANDIDATES = 512
LEAVES_A_KEY = 7  # one on each level of a tree
_AHEAD = 6  # leaves
MATCHED, MORE_MATCHES = 0, 1

# resume vector (int64): next object, next leaf, leaves of the block, block in the leaf, next group,
# groups, candidates of which all is known, others, matches so far, those whose shape is not
R_OBJECT, R_LEAF, R_LEAVES, R_BLOCK, R_GROUP, R_GROUPS = 0, 1, 2, 3, 4, 5
R_CANDS, R_CHECKS, R_OUT, R_SHAPED = 6, 7, 8, 9
RESUME = 10

_ONE_BIT = np.uint64(1)


@njit(inline="always")
def _add_leaf(leaves, n, nodes, o, t, ref, point):
    prefetch(nodes, ref)
    prefetch(nodes, ref + 8)
    leaves[4 * n] = np.uint32(o)
    leaves[4 * n + 1] = np.uint32(t)
    leaves[4 * n + 2] = np.uint32(ref)
    leaves[4 * n + 3] = point
    return n + 1


@njit(inline="always")
def _probe_block(o0, o1, any_term, size, objects, index, scratch):
    """Fills leaves (object, term, ref, point) with the leaves at the place of the objects; returns
    their number."""
    lon, lat, term_off, term = objects.lon, objects.lat, objects.term_off, objects.term
    chosen = objects.chosen
    directory, nodes, wide = index.directory, index.nodes, index.wide
    keys, leaves, inner, at, prints = (
        scratch.keys, scratch.leaves, scratch.inner, scratch.at, scratch.prints
    )  # fmt: skip
    any_wide = index.state[WIDE_USED] != 0
    n = 0
    for o in range(o0, o1):
        b = o - o0
        x, y = step_x(lon[o]), step_y(lat[o])
        root = root_at(x, y)
        p = 4 * b
        prints[p] = prints[p + 1] = prints[p + 2] = prints[p + 3] = NO_WORD
        for t in range(term_off[o], term_off[o + 1]):
            print_ = fingerprint(term[t])
            prints[p + (print_ >> 6)] |= _ONE_BIT << np.uint64(print_ & 63)
            if not (any_term or chosen[t >> 3] >> np.uint8(t & 7) & np.uint8(1)):
                continue
            where = home(term[t], root, size)
            prefetch(directory, 2 * where)
            keys[2 * n], keys[2 * n + 1] = np.uint32(t), np.uint32(where)
            n += 1
            if any_wide:
                bit = wide_bit(term[t])
                if wide[bit >> 6] >> np.uint64(bit & 63) & _ONE_BIT != NO_WORD:
                    where = home(term[t], WIDE, size)
                    prefetch(directory, 2 * where)
                    keys[2 * n] = np.uint32(t) | np.uint32(INNER)
                    keys[2 * n + 1] = np.uint32(where)
                    n += 1
        at[3 * b], at[3 * b + 1], at[3 * b + 2] = x, y, n
    found = deep = k = 0
    top, below = STEP_BITS - CELL_BITS[1] - 8, STEP_BITS - CELL_BITS[2]
    for o in range(o0, o1):
        x, y, end = at[3 * (o - o0)], at[3 * (o - o0) + 1], at[3 * (o - o0) + 2]
        near, far = pack_point(x, y, top), pack_point(x, y, STEP_BITS - 8)
        area = np.uint64(40 + area_at(x, y))
        child = 1 + ((y >> below) & 7) * 8 + ((x >> below) & 7)
        here = np.uint64(root_at(x, y))
        while k < end:
            t = np.int64(keys[2 * k]) & REF_MASK
            is_wide = keys[2 * k] >> np.uint32(31) != 0
            where = np.int64(keys[2 * k + 1])
            k += 1
            root = np.uint64(WIDE) if is_wide else here
            word = directory[2 * where + 1]
            while (word != NO_WORD) & (
                (directory[2 * where] != term[t])
                | ((word >> np.uint64(32)) & np.uint64(255) != root)
            ):
                where = where + 1 if where + 1 < size else 0
                word = directory[2 * where + 1]
            ref = np.int64(word & LOW)
            hit = np.int64(word >> area & _ONE_BIT) & np.int64(ref != 0)
            branches = ref >> 31
            ref &= REF_MASK
            prefetch(nodes, ref)
            prefetch(nodes, ref + (child if branches else 8))
            # What is no leaf, or nothing, is written and not counted: that cannot be foreseen.
            leaves[4 * found], leaves[4 * found + 1] = np.uint32(o), np.uint32(t)
            leaves[4 * found + 2] = np.uint32(ref)
            leaves[4 * found + 3] = far if is_wide else near
            found += hit & (branches ^ 1)
            inner[3 * deep], inner[3 * deep + 1] = np.uint32(o), np.uint32(t)
            inner[3 * deep + 2] = np.uint32(ref)
            deep += hit & branches
    depth = 1
    while deep:
        n, deep = deep, 0
        own, next_bits = CELL_BITS[depth], CELL_BITS[depth + 1]
        shift = STEP_BITS - next_bits
        mask, line = (1 << (next_bits - own)) - 1, next_bits - own
        depth += 1
        for k in range(n):
            o, t, ref = (
                np.int64(inner[3 * k]),
                np.int64(inner[3 * k + 1]),
                np.int64(inner[3 * k + 2]),
            )
            x, y = at[3 * (o - o0)], at[3 * (o - o0) + 1]
            kept = np.int64(nodes[ref] & LOW)
            if kept != 0:
                point = pack_point(x, y, STEP_BITS - 8 - own)
                found = _add_leaf(leaves, found, nodes, o, t, kept, point)
            child = ref + 1 + (((y >> shift) & mask) << line) + ((x >> shift) & mask)
            word = nodes[child]
            area = ((x >> (shift - 3)) & 7) + 8 * ((y >> (shift - 2)) & 3)
            if word >> np.uint64(32 + area) & _ONE_BIT == NO_WORD:
                continue
            ref = np.int64(word & LOW)
            if ref == 0:
                continue
            if ref & INNER != 0:
                ref &= REF_MASK
                bits = CELL_BITS[depth + 1]
                below = STEP_BITS - bits
                fan = bits - next_bits
                last = (1 << fan) - 1
                prefetch(nodes, ref)
                prefetch(nodes, ref + 1 + (((y >> below) & last) << fan) + ((x >> below) & last))
                inner[3 * deep], inner[3 * deep + 1] = np.uint32(o), np.uint32(t)
                inner[3 * deep + 2] = np.uint32(ref)
                deep += 1
                continue
            point = pack_point(x, y, shift - 8)
            found = _add_leaf(leaves, found, nodes, o, t, ref, point)
    return found


@njit(inline="always")
def _has_print(prints, b, print_):
    return np.int64(prints[4 * b + (print_ >> 6)] >> np.uint64(print_ & 63) & _ONE_BIT)


@njit(inline="always")
def _scan_block(o, t, point, ref, index, groups, n):
    """Appends the groups of a block of a leaf in which a rectangle holds the point to `groups`
    (object, term, place in n32, capacity << 16 | postings that do) at n; returns the new end."""
    n32, n16 = index.n32, index.n16
    head = index.nodes[ref]
    cap, length = CAPACITY[block_class(head)], block_length(head)
    first = 2 * (ref + 1)
    for i in range(0, length, LANES):
        held = find_holding(n32, first + i, point)
        held &= (_ONE_BIT << np.uint64(min(length - i, LANES))) - _ONE_BIT
        groups[4 * n], groups[4 * n + 1] = o, t
        groups[4 * n + 2] = np.uint32(first + i)
        groups[4 * n + 3] = np.uint32(cap << LANES | i << 24) | np.uint32(held)
        if cap > 12:
            prefetch(n32, first + cap + i)
            prefetch(n16, 2 * (first + 2 * cap) + i)
        n += held != NO_WORD
    return n


@njit(inline="always")
def _list_candidates(group, o0, index, scratch, n, m):
    """Appends the candidates of a group (object, term, mode << 30 | slot) to `cands` at n, or where
    the expression is still to be checked, to `checks` at m; returns the new ends."""
    n32, n16, slots_i = index.n32, index.n16, index.slots_i
    groups, cands, checks, prints = scratch.groups, scratch.cands, scratch.checks, scratch.prints
    o, t, place = groups[4 * group], groups[4 * group + 1], np.int64(groups[4 * group + 2])
    last = np.int64(groups[4 * group + 3])
    held, cap, i = np.uint64(last & 0xFFFF), last >> LANES & 127, last >> 24
    b = np.int64(o) - o0
    slot_at, print_at = place + cap, 2 * (place - i + 2 * cap) + i
    while held != NO_WORD:
        k = lowest_bit(held)
        held &= held - _ONE_BIT
        word = n32[slot_at + k]
        both = np.int64(n16[print_at + k])
        mode = np.int64(word) >> SLOT_BITS
        first, second = both & 255, both >> 8
        # The fingerprint 0 stands for none: of a conjunction it is there, of a disjunction not.
        has_first = _has_print(prints, b, first)
        has_second = _has_print(prints, b, second)
        every = has_first & (has_second | np.int64(second == 0))
        free = np.int64(mode == FREE) | (np.int64(mode == ANY) & ((has_first | has_second) ^ 1))
        prefetch(slots_i, 8 * (np.int64(word) & SLOT_MASK))
        # Written to both and counted in one, or in none: that cannot be foreseen.
        cands[3 * n], cands[3 * n + 1], cands[3 * n + 2] = o, t, word
        n += free
        checks[3 * m], checks[3 * m + 1], checks[3 * m + 2] = o, t, word
        m += (free ^ 1) & (every | np.int64(mode != ALL))
    return n, m


@njit(cache=True, nogil=True)
def match_block(lsn, resume, bits, objects, addresses, sizes, met):
    """Matches the objects from `resume` on; returns MATCHED, or MORE_MATCHES when there must be
    more room for matches first.

    bits: of the grid; objects, met: plain tuples of the fields of MatchedObjects and MetPostings;
    addresses: of the arrays of RadixArrays, RadixScratch and RadixMatches, int64[], and sizes: the
    entries of the directory and the room for matches. An argument takes Python some 80 ns.
    """
    any_term = objects[4].shape[0] == 0
    index, scratch, found = point_addresses(addresses)
    return _match_objects(
        lsn, objects[0].shape[0], sizes, any_term, pointer_to(resume), bits,
        point_objects(objects), index, scratch, found, point_met(met),
    )  # fmt: skip


@njit(inline="always")
def _match_objects(lsn, end, sizes, any_term, resume, bits, objects, index, scratch, found, met):
    leaves, nodes, groups = scratch.leaves, index.nodes, scratch.groups
    size, room = sizes
    leaf, last, ref = resume[R_LEAF], resume[R_LEAVES], resume[R_BLOCK]
    group, filled = resume[R_GROUP], resume[R_GROUPS]
    cands, checks, out = resume[R_CANDS], resume[R_CHECKS], resume[R_OUT]
    full = CANDIDATES - LANES
    while True:
        done = group == filled and leaf == last and resume[R_OBJECT] >= end
        if done or cands > full or checks > full:
            if room - out <= cands + checks:
                resume[R_LEAF], resume[R_LEAVES], resume[R_BLOCK] = leaf, last, ref
                resume[R_GROUP], resume[R_GROUPS] = group, filled
                resume[R_CANDS], resume[R_CHECKS], resume[R_OUT] = cands, checks, out
                return MORE_MATCHES
            ends = verify_candidates(
                cands, checks, lsn, bits, objects, index, scratch, out, resume[R_SHAPED], found,
                met,
            )  # fmt: skip
            out = ends[0]
            resume[R_SHAPED] = ends[1]
            cands = checks = 0
            if done:
                resume[R_OUT] = out
                return MATCHED
        if group < filled:
            o0 = (resume[R_OBJECT] - 1) // BATCH * BATCH
            while group < filled and cands <= full and checks <= full:
                cands, checks = _list_candidates(group, o0, index, scratch, cands, checks)
                group += 1
            continue
        if leaf == last:
            o0 = resume[R_OBJECT]
            o1 = min(o0 + BATCH, end)
            last = _probe_block(o0, o1, any_term, size, objects, index, scratch)
            leaf = ref = 0
            resume[R_OBJECT] = o1
        group = filled = 0
        while leaf < last and filled <= GROUPS - 64 // LANES:
            if ref == 0:
                ref = np.int64(leaves[4 * leaf + 2])
                if leaf + _AHEAD < last:
                    ahead = np.int64(leaves[4 * (leaf + _AHEAD) + 2])
                    if block_class(nodes[ahead]) > 6:
                        for i in range(16, 40, 8):
                            prefetch(nodes, ahead + i)
            behind = np.int64(nodes[ref] & LOW)
            if behind != 0:
                for i in range(0, 40, 8):
                    prefetch(nodes, behind + i)
            o, t, point = leaves[4 * leaf], leaves[4 * leaf + 1], leaves[4 * leaf + 3]
            filled = _scan_block(o, t, point, ref, index, groups, filled)
            ref = behind
            leaf += ref == 0
