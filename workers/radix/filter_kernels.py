"""The middle stages of a match: leaves are scanned by rectangle, and what holds the object filtered
by fingerprints (see `match_kernels`)."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    CAPACITY,
    GENERAL,
    LANES,
    LINE,
    LOW,
    NO_WORD,
    PRINT_WORDS,
    SLOT_BITS,
    SLOT_MASK,
    block_class,
    block_length,
    is_even_block,
)
from ps2stream.workers.radix.pointers import prefetch
from ps2stream.workers.radix.set_kernels import has_codes
from ps2stream.workers.radix.vectors import (
    count_bits,
    find_holding,
    find_printed,
    judge_comparisons,
    judge_postings,
    lowest_bit,
    pack_words,
    repeat_word,
)
from ps2stream.workers.radix.verify_kernels import C_SLOT, C_TERM, FULL_CANDIDATES

GROUPS = 1024  # of sixteen postings
_AHEAD = 12  # leaves
_GROUPS_AHEAD = 16
_SLOTS_A_GROUP = 3
_PRINTS_AT = 1 + int(CAPACITY[-1])  # words behind the start of a block of the last class
_BLOCK_POSTINGS = int(CAPACITY[-1])
_ALL_BITS = np.uint64((1 << 64) - 1)
_LANE_BITS = np.uint64((1 << LANES) - 1)
_ONE_BIT = np.uint64(1)


@njit(inline="always")
def _scan_block(pair, point, ref, index, groups, n):
    """Appends the groups of a block of a leaf in which a rectangle holds the point to `groups`
    (pair, place of the slots in n32 | postings that do << 32 | distance << 48, which is added to
    twice the place to get that of the fingerprints in n16) at n; returns the new end.

    How many groups a block has cannot be foreseen, so there are always four: what is behind the
    last one is the last one again, without a posting.
    """
    n32 = index.n32
    head = index.nodes[ref]
    cap, length = CAPACITY[block_class(head)], block_length(head)
    first, last = 2 * (ref + 1), (length - 1) & -LANES
    valid = _ALL_BITS >> np.uint64(_BLOCK_POSTINGS - length)
    for i in range(0, _BLOCK_POSTINGS, LANES):
        j = min(i, last)
        held = find_holding(n32, first + j, point) & valid >> np.uint64(i) & _LANE_BITS
        place = np.uint64(first + cap + j | 2 * cap - j << 48)
        groups[2 * n], groups[2 * n + 1] = pair, place | held << np.uint64(32)
        n += held != NO_WORD
    return n


@njit(inline="always")
def _scan_even_block(pair, own, ref, index, scratch, n):
    """Appends the groups of an even block in which fingerprints are those of the object, like
    `_scan_block`: so most of its lines are never read. own: where the bits of the object are."""
    n16, bits, groups = index.n16, scratch.bits, scratch.groups
    length, first = block_length(index.nodes[ref]), 2 * (ref + 1)
    cap = _BLOCK_POSTINGS
    valid = _ALL_BITS >> np.uint64(cap - length)
    for j in range(0, _BLOCK_POSTINGS, LANES):
        held = find_printed(n16, 2 * (first + 2 * cap) + j, bits, own)
        held &= valid >> np.uint64(j) & _LANE_BITS
        place = np.uint64(first + cap + j | 2 * cap - j << 48)
        groups[2 * n], groups[2 * n + 1] = pair, place | held << np.uint64(32)
        n += held != NO_WORD
    return n


@njit(inline="always")
def _ask_for_even(nodes, ref):
    """Prefetches the fingerprints of an even block."""
    prefetch(nodes, ref + _PRINTS_AT)
    prefetch(nodes, ref + _PRINTS_AT + LINE)


@njit(cache=True, nogil=True)
def scan_leaves(leaf, last, on, o0, index, scratch):
    """Scans a block of each of `leaves` from number `leaf` to `last`, till `groups` has no room for
    another one. Those that have a block behind are scanned again when the others are done: by then
    it is there. They are kept at the beginning of `leaves`, `on` of them so far. Returns where it
    stopped, like these arguments, and the number of groups. o0: first object of the block."""
    nodes, leaves, groups = index.nodes, scratch.leaves, scratch.groups
    filled = 0
    while leaf < last and filled <= GROUPS - _BLOCK_POSTINGS // LANES:
        pair, found = leaves[2 * leaf], leaves[2 * leaf + 1]
        ahead = np.int64(leaves[2 * min(leaf + _AHEAD, last - 1) + 1] & LOW)
        ref = np.int64(found & LOW)
        head = nodes[ref]
        behind = head & LOW
        if is_even_block(head):
            own = 2 * PRINT_WORDS * (np.int64(pair & LOW) - o0)
            filled = _scan_even_block(pair, own, ref, index, scratch, filled)
            prefetch(nodes, np.int64(behind))
            _ask_for_even(nodes, np.int64(behind))  # which is even too, in all likelihood
        else:
            words = (block_length(nodes[ahead]) + 1) >> 1
            for i in range(16, 40, 8):  # the lines of its rectangles
                prefetch(nodes, ahead + min(i, words))
            point = np.uint32(found >> np.uint64(32))
            filled = _scan_block(pair, point, ref, index, groups, filled)
            if behind != NO_WORD:
                for i in range(0, 40, 8):
                    prefetch(nodes, np.int64(behind) + i)
        if behind != NO_WORD:
            leaves[2 * on], leaves[2 * on + 1] = pair, found & ~LOW | behind
            on += 1
        leaf += 1
        if leaf == last:
            leaf, last, on = 0, on, 0
    return leaf, last, on, filled


@njit(inline="always")
def _ask_for_group(group, index, groups):
    """Prefetches what a group is judged by."""
    rest = groups[2 * group + 1]
    place = np.int64(rest & LOW)
    prefetch(index.n32, place)
    prefetch(index.n16, 2 * place + np.int64(rest >> np.uint64(48)))


@njit(inline="always")
def _ask_for_slot(c, index, cands):
    """Prefetches the line of a candidate's slot; there need not be such a candidate."""
    prefetch(index.slots_i, 8 * (np.int64(cands[C_SLOT + c]) & SLOT_MASK))


@njit(cache=True, nogil=True)
def filter_groups(group, filled, o0, index, scratch, met, n, m):
    """Lists the candidates of the groups from `group` to `filled`, or till there is no room for
    those of another: at n in the columns of `cands`, or where the expression is still to be
    checked, at m in `checks` (object, term, mode << 30 | slot; FREE: all of it holds, unless the
    object has a smaller posting term). Returns where it stopped, and the
    new ends. o0: first object of the block. Counts the candidates by object.

    Slots are asked for with each group, as many as a group has candidates and some more, so that
    no loop ends where it cannot be foreseen.
    """
    n32, n16 = index.n32, index.n16
    groups, cands, checks, bits = scratch.groups, scratch.cands, scratch.checks, scratch.bits
    compares, asked = has_codes(index.bands), n
    for k in range(group, min(group + _GROUPS_AHEAD, filled)):
        _ask_for_group(k, index, groups)
    while group < filled and n <= FULL_CANDIDATES and m <= FULL_CANDIDATES:
        _ask_for_group(min(group + _GROUPS_AHEAD, filled - 1), index, groups)
        pair, rest = groups[2 * group], groups[2 * group + 1]
        group += 1
        o, t, at = np.uint32(pair), np.uint32(pair >> np.uint64(32)), np.int64(rest & LOW)
        held = rest >> np.uint64(32) & _LANE_BITS
        print_at = 2 * at + np.int64(rest >> np.uint64(48))
        own = 2 * PRINT_WORDS * (np.int64(o) - o0)
        if compares:
            judged = judge_comparisons(n32, at, n16, print_at, bits, own)
        else:
            judged = judge_postings(n32, at, n16, print_at, bits, own)
        kept, left = judged & held, judged >> np.uint64(LANES) & held
        repeat_word(cands, n, o)
        repeat_word(cands, n + C_TERM, t)
        pack_words(n32, at, kept, cands, n + C_SLOT)
        n += count_bits(kept)
        for c in range(_SLOTS_A_GROUP):
            _ask_for_slot(min(asked + c, n - 1), index, cands)
        asked = min(asked + _SLOTS_A_GROUP, n)
        met.base[np.int64(o)] += count_bits(kept | left)
        while left != NO_WORD:
            i = lowest_bit(left)
            word = n32[at + i]
            left &= left - _ONE_BIT
            if judged >> np.uint64(2 * LANES + i) & _ONE_BIT != NO_WORD:
                word &= np.uint32(SLOT_MASK)
            elif word <= SLOT_MASK:  # it is FREE where its comparisons hold
                word |= np.uint32(GENERAL << SLOT_BITS)
            prefetch(index.slots_i, 8 * (np.int64(word) & SLOT_MASK))
            checks[3 * m], checks[3 * m + 1], checks[3 * m + 2] = o, t, word
            m += 1
    for c in range(asked, n):
        _ask_for_slot(c, index, cands)
    return group, n, m
