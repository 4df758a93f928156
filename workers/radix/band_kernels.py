"""Bands: what a posting of the radix GI2 says of its query's comparisons, and an object of its
values, in a byte for each comparison.

A band stands for the comparisons of one attribute with values of one type, in one direction: < or
>. Bounds split it into BUCKETS of about as many comparisons each, for they are those of the first
ones that were inserted. The code of a comparison is the number of its band and of its bucket.
An object has two bits for each code: whether a comparison with that code may hold, and whether it
surely does. The buckets on one side of its value do; those on the other do not; and what compares
in the bucket of the value itself, a sixteenth, is left to be checked. So the values of an object
are compared once, with all predicates at the same time, and a posting is judged by bits, sixteen
postings at once.

`bands` uint64[17, ROW]. In the first row are the number of bands in use, how many comparisons are a
sample, 1 or from BUCKETS to SAMPLE, and what `division_kernels` counts; from COMPARED on the term
of each band's attribute, from KIND on its type << 1 | direction, 1 being >. The two last rows are
of sets of equalities (see `set_kernels`). The row of a band has its bounds, and the least and
greatest of all values compared since; before there are any the values seen, ascending; and the
number of these. Bounds stay what they are, as postings have codes by them.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.programs import (
    COMPARISON,
    OPERATOR_MASK,
    OPERATOR_SHIFT,
    TYPE_SHIFT,
    VALUE_TYPE_SHIFT,
    compared_term,
    comparison_size,
    join_halves,
)
from ps2stream.protocol.rows import PROG_COMPARE
from ps2stream.workers.radix.check_kernels import describe_check
from ps2stream.workers.radix.conjunction_kernels import SPLIT
from ps2stream.workers.radix.layout import (
    BAND_ROW,
    BANDS,
    FREE,
    GENERAL,
    NO_WORD,
    PRINT_WORDS,
    SAMPLE,
)
from ps2stream.workers.radix.set_kernels import describe_set

_COMPARE = PROG_COMPARE
BUCKETS = 16
BOUNDS = BUCKETS - 1
USED, SAMPLED, COMPARED, KIND = 0, 1, 16, 32  # in the first row
COUNT = SAMPLE  # in the others
LEAST, MOST = BOUNDS, BOUNDS + 1  # behind the bounds
UNEQUAL = 4  # an operator without a direction
_BITS = 2  # words of a conjunction without comparisons
_ONE_BIT = np.uint64(1)
MAY, _SURE = 16, 32  # of the masks of an object
_ALL_BUCKETS = (1 << BUCKETS) - 1
NO_SHARE = np.int64(BUCKETS + 1)


@njit(inline="always")
def _find_bucket(bands, band, word):
    """Returns the bucket of a value in a band that has bounds."""
    n = np.int64(0)
    for i in range(BOUNDS):
        n += bands[BAND_ROW * band + i] <= word
    return n


@njit(inline="always")
def _find_band(bands, term, kind):
    """Returns the band of an attribute and a kind, which is taken if there is none; or 0 if all
    are taken."""
    used = np.int64(bands[USED])
    for band in range(1, used + 1):
        if bands[COMPARED + band] == term and np.int64(bands[KIND + band]) == kind:
            return band
    if used == BANDS - 1:
        return 0
    bands[USED] = np.uint64(used + 1)
    bands[COMPARED + used + 1], bands[KIND + used + 1] = term, np.uint64(kind)
    return used + 1


@njit(inline="always")
def _code_value(bands, band, word):
    """Returns the code of a comparison with this value in a band that has bounds, and notes it."""
    row = BAND_ROW * band
    bands[row + LEAST] = min(bands[row + LEAST], word)
    bands[row + MOST] = max(bands[row + MOST], word)
    return BUCKETS * band + _find_bucket(bands, band, word)


@njit(cache=True, nogil=True)
def find_known_code(bands, term, about, key):
    """Returns the code of a comparison of the attribute with this term, if it has one by now, or 0.
    about: operator and type, as a program has them; key: the first word of the value."""
    operator = about >> OPERATOR_SHIFT & OPERATOR_MASK
    kind = (about >> TYPE_SHIFT) << 1 | operator >> 1
    for band in range(1, np.int64(bands[USED]) + 1):
        if bands[COMPARED + band] == term and np.int64(bands[KIND + band]) == kind:
            if bands[BAND_ROW * band + COUNT] < bands[SAMPLED]:
                return np.int64(0)
            return _code_value(bands, band, key)
    return np.int64(0)


@njit(inline="always")
def _learn_value(bands, band, word):
    """Adds a value to the sample of a band; with the last one the band gets its bounds."""
    row = BAND_ROW * band
    n = np.int64(bands[row + COUNT])
    at = n
    while at > 0 and bands[row + at - 1] > word:
        bands[row + at] = bands[row + at - 1]
        at -= 1
    bands[row + at] = word
    bands[row + COUNT] = np.uint64(n + 1)
    sampled = np.int64(bands[SAMPLED])
    if n + 1 == sampled:
        least, most = bands[row], bands[row + n]
        for i in range(BOUNDS):
            bands[row + i] = bands[row + sampled * (i + 1) // BUCKETS]
        bands[row + LEAST], bands[row + MOST] = least, most


@njit(cache=True, nogil=True)
def code_comparisons(prog, first, size, term, g0, bands):
    """Returns the CodePair of the comparisons of the program prog[first : first + size], of which
    all must hold; and how many comparisons have no code here, or have none yet: bands
    learn from these. If there are more than two it is those of the smallest shares of their bands.
    term[g0:]: of the query."""
    without, found = np.int64(0), CodePair(np.int64(0), np.int64(0), NO_SHARE, NO_SHARE)
    p, end = first, first + size
    while p < end:
        if prog[p] != _COMPARE:
            p += 1
            continue
        head, at = np.int64(prog[p + 1]), p
        operator = head >> OPERATOR_SHIFT & OPERATOR_MASK
        compared = term[g0 + compared_term(prog, p)]
        p += comparison_size(prog, p)
        without += 1
        if operator == UNEQUAL:
            continue
        band = _find_band(bands, compared, (head >> TYPE_SHIFT) << 1 | operator >> 1)
        if band == 0:
            continue
        key = NO_WORD
        if prog[at + 2] > 0:
            key = join_halves(prog, at + COMPARISON)
        if bands[BAND_ROW * band + COUNT] < bands[SAMPLED]:
            _learn_value(bands, band, key)
            continue
        if found.other == 0:
            without -= 1
        found = add_code(found, _code_value(bands, band, key), operator)
    return found, without


class CodePair(NamedTuple):
    """The codes of two comparisons, 0 being none, and the buckets that their bands share with them:
    those of the smallest shares that were added."""

    one: Any
    other: Any
    least: Any
    less: Any


@njit(inline="always")
def add_code(found, code, operator):
    """Returns the CodePair with the code of another comparison, or 0, and its operator."""
    bucket = code % BUCKETS
    share = BUCKETS - bucket if operator >> 1 else bucket + 1
    share = share if code != 0 else NO_SHARE
    is_least, is_less = share < found.least, share < found.less
    return CodePair(
        code if is_least else found.one,
        found.one if is_least else (code if is_less else found.other),
        min(share, found.least),
        found.least if is_least else min(share, found.less),
    )


@njit(inline="always")
def pair_codes(found, holds, is_smallest):
    """Returns the mode and the codes of a posting. holds: where its codes hold, its query does, but
    for a smaller posting term of its own; is_smallest: it has none."""
    one, other = found.one, found.other
    high, low = max(one, other), 0 if one == other else min(one, other)
    if not holds:
        return np.int64(GENERAL), low | high << 8
    return np.int64(FREE if is_smallest else GENERAL), high | low << 8


@njit(inline="always")
def _compared_terms(prog, first, size):
    """Returns the bits of the terms of all comparisons in prog[first : first + size]."""
    bits = NO_WORD
    p = first
    while p < first + size:
        if prog[p] == _COMPARE:
            bits |= _ONE_BIT << np.uint64(compared_term(prog, p))
            p += comparison_size(prog, p)
        else:
            p += 1
    return bits


@njit(cache=True, nogil=True)
def describe_posting(rows, r, bounds, i, stack, bands):
    """Returns what is left to check for a posting, like `describe_check`, with the code of a set
    of equalities where `describe_set` has one. If the query compares and needs no other term, it
    has the codes of two comparisons instead of fingerprints: FREE, if it matches where these hold,
    or GENERAL. The lesser code of GENERAL comes second if, where these hold, only a smaller posting
    term is left to check, and else first."""
    mode, prints = describe_check(rows, r, bounds, i, stack)
    if bounds.words <= _BITS:
        return describe_set(rows, r, bounds, i, stack, bands, mode, prints)
    first, own = rows.prog_off[r], _ONE_BIT << np.uint64(i)
    if bounds.needed & ~own & ~_compared_terms(rows.prog, first, bounds.size) != NO_WORD:
        return mode, prints
    found, without = code_comparisons(
        rows.prog, first, bounds.size, rows.term, rows.term_off[r], bands
    )
    if found.one == 0:
        return mode, prints
    holds = (without == 0) & (stack[SPLIT] & ~own == NO_WORD) & (stack[SPLIT + 1] == NO_WORD)
    for c in range(stack[SPLIT + 2] & np.uint64(0xFFFF)):
        holds &= stack[SPLIT + _BITS + 1 + np.int64(c)] & own != NO_WORD
    return pair_codes(found, holds, rows.post[r] & (own - _ONE_BIT) == NO_WORD)


@njit(cache=True, nogil=True)
def mark_bands(o0, o1, objects, index, scratch):
    """Fills in the bits of the codes of the objects, behind their fingerprints."""
    bands, masks, value = index.bands, scratch.masks, objects.value
    used = np.int64(bands[USED])
    for o in range(o0, o1):
        own = 4 * PRINT_WORDS * (o - o0)
        for band in range(1, BANDS):
            masks[own + MAY + band] = masks[own + _SURE + band] = 0
        at, last = objects.value_off[o], objects.value_off[o + 1]
        while at < last:
            about, key = np.int64(value[at + 1]), NO_WORD
            size, kind = about & 0xFFFFFFFF, about >> VALUE_TYPE_SHIFT << 1
            if size > 0:
                key = value[at + 2]
            for band in range(1, used + 1):
                above = np.int64(bands[KIND + band]) ^ kind
                if bands[COMPARED + band] == value[at] and above <= 1:
                    bucket = _find_bucket(bands, band, key)
                    below, to = (1 << bucket) - 1, (2 << bucket) - 1
                    may = to if above else _ALL_BUCKETS ^ below
                    sure = below if above else _ALL_BUCKETS ^ to
                    is_less = key < bands[BAND_ROW * band + LEAST]
                    is_more = key > bands[BAND_ROW * band + MOST]
                    if is_less | is_more:  # as seldom values are compared: of nearly all objects
                        may = sure = _ALL_BUCKETS * np.int64(is_more == (above != 0))
                    masks[own + MAY + band], masks[own + _SURE + band] = may, sure
            at += 2 + ((size + 7) >> 3)
