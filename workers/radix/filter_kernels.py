"""The middle stages of a match: leaves are scanned by rectangle, and what holds the object filtered
by fingerprints (see `match_kernels`)."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    ALL,
    ANY,
    CAPACITY,
    LANES,
    LOW,
    NO_WORD,
    SLOT_BITS,
    SLOT_MASK,
    block_class,
    block_length,
)
from ps2stream.workers.radix.pointers import prefetch
from ps2stream.workers.radix.vectors import (
    count_bits,
    find_below,
    find_holding,
    lowest_bit,
    pack_words,
    repeat_word,
)
from ps2stream.workers.radix.verify_kernels import C_SLOT, C_TERM, FULL_CANDIDATES

GROUPS = 1024  # of sixteen postings
_AHEAD = 12  # leaves
_ONE_BIT = np.uint64(1)


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
        prefetch(n32, first + cap + i)
        prefetch(n16, 2 * (first + 2 * cap) + i)
        n += held != NO_WORD
    return n


@njit(cache=True, nogil=True)
def scan_leaves(leaf, last, ref, index, scratch):
    """Scans `leaves` from number `leaf`, block `ref` or its first if that is 0, to `last`, or till
    `groups` has no room for another block; returns where it stopped, and the number of groups."""
    nodes, leaves, groups = index.nodes, scratch.leaves, scratch.groups
    filled = 0
    while leaf < last and filled <= GROUPS - 64 // LANES:
        if ref == 0:
            ref = np.int64(leaves[4 * leaf + 2])
            ahead = np.int64(leaves[4 * min(leaf + _AHEAD, last - 1) + 2])
            words = (block_length(nodes[ahead]) + 1) >> 1
            for i in range(16, 40, 8):  # the lines of its rectangles
                prefetch(nodes, ahead + min(i, words))
        behind = np.int64(nodes[ref] & LOW)
        if behind != 0:
            for i in range(0, 40, 8):
                prefetch(nodes, behind + i)
        o, t, point = leaves[4 * leaf], leaves[4 * leaf + 1], leaves[4 * leaf + 3]
        filled = _scan_block(o, t, point, ref, index, groups, filled)
        ref = behind
        leaf += ref == 0
    return leaf, ref, filled


@njit(inline="always")
def _has_print(prints, b, print_):
    return np.int64(prints[4 * b + (print_ >> 6)] >> np.uint64(print_ & 63) & _ONE_BIT)


@njit(inline="always")
def _list_candidates(group, o0, index, scratch, n, m):
    """Appends the candidates of a group to the columns of `cands` at n, or where the expression is
    still to be checked, to `checks` (object, term, mode << 30 | slot) at m; returns the new ends.
    """
    n32, n16, slots_i = index.n32, index.n16, index.slots_i
    groups, cands, checks, prints = scratch.groups, scratch.cands, scratch.checks, scratch.prints
    o, t, place = groups[4 * group], groups[4 * group + 1], np.int64(groups[4 * group + 2])
    last = np.int64(groups[4 * group + 3])
    held, cap, i = np.uint64(last & 0xFFFF), last >> LANES & 127, last >> 24
    slot_at = place + cap
    free = held & find_below(n32, slot_at, np.uint32(1 << SLOT_BITS))
    held ^= free
    repeat_word(cands, n, o)
    repeat_word(cands, n + C_TERM, t)
    pack_words(n32, slot_at, free, cands, n + C_SLOT)
    n += count_bits(free)
    b, print_at = np.int64(o) - o0, 2 * (place - i + 2 * cap) + i
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
        free = np.int64(mode == ANY) & ((has_first | has_second) ^ 1)
        # Written to both and counted in one, or in none: that cannot be foreseen.
        cands[n], cands[n + C_TERM], cands[n + C_SLOT] = o, t, word
        n += free
        checks[3 * m], checks[3 * m + 1], checks[3 * m + 2] = o, t, word
        prefetch(slots_i, 8 * (np.int64(word) & SLOT_MASK))
        m += (free ^ 1) & (every | np.int64(mode != ALL))
    return n, m


@njit(cache=True, nogil=True)
def filter_groups(group, filled, o0, index, scratch, n, m):
    """Lists the candidates of the groups from `group` to `filled`, or till there is no room for
    those of another, behind the n and m in `cands` and `checks`; returns where it stopped, and the
    new ends. o0: first object of the block."""
    slots_i, cands = index.slots_i, scratch.cands
    while group < filled and n <= FULL_CANDIDATES and m <= FULL_CANDIDATES:
        before = n
        n, m = _list_candidates(group, o0, index, scratch, n, m)
        group += 1
        for c in range(before, n):
            prefetch(slots_i, 8 * (np.int64(cands[c + C_SLOT]) & SLOT_MASK))
    return group, n, m
