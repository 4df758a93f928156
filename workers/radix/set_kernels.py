"""Sets: equalities that many queries need together, and which a posting says in one byte.

An index meets a query by a word, and its equalities, which many objects may satisfy, are left to be
checked in its record and its expression. So the equalities that a query needs beside the term of a
posting are a *set*, and the sets of most queries have codes: an object gets, beside the codes of
comparisons (see `band_kernels`), those of the sets of which it has all terms. They are exact: a
posting with a code is decided where it is.

A set gets its code once as many queries as are a sample had it, and others did not crowd it out:
it is counted among _COUNTED candidates, as Misra and Gries do. What was inserted before is checked
as before. Codes stay what they are, as postings have them.

The sets have the codes of the band behind the last one, from 255 downwards, so that nearly all
fingerprints are less than they: a posting of mode ANY has a code if its second byte is the greater
one. Their row of `bands` has the terms of each set, ascending and filled with zeros, and behind
them their number; the next row has the sums of the candidates and, behind them, how often each was
seen.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers.radix.arrays import LONG_PROGRAM
from ps2stream.workers.radix.check_kernels import holds_surely
from ps2stream.workers.radix.conjunction_kernels import contains_term
from ps2stream.workers.radix.layout import (
    ANY,
    BAND_ROW,
    BANDS,
    FREE,
    GENERAL,
    NO_WORD,
    PRINT_WORDS,
    SAMPLE,
    SETS,
    fingerprint,
)
from ps2stream.workers.radix.tag_kernels import count_ones
from ps2stream.workers.radix.vectors import lowest_bit

TERMS = SAMPLE // SETS
"""How many terms a set with a code has at most."""
LAST_CODE = 255
_SAMPLED = 1  # in the first row
_ROW = BAND_ROW * BANDS
_COUNT = _ROW + SAMPLE
_SUMS = _ROW + BAND_ROW
_COUNTED = SAMPLE // 2
_SEEN = _SUMS + _COUNTED
_MAY, _SURE = 16 + BANDS, 32 + BANDS  # of the masks of an object
_FORM_ALL, _FORM_ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_MIXED = np.uint64(0x9E3779B97F4A7C15)
_ONE_BIT = np.uint64(1)


@njit(inline="always")
def count_sets(bands):
    """Returns how many sets have codes, a uint64."""
    return bands[_COUNT]


@njit(inline="always")
def has_codes(bands):
    """Returns whether postings may have codes, of comparisons or of sets."""
    return bands[0] | bands[_COUNT] != NO_WORD


@njit(inline="always")
def _is_set(bands, at, term, g0, bits):
    """Returns whether the set at bands[at] has just the terms with these bits of term[g0:]."""
    same, n = True, 0
    while bits != NO_WORD:
        same &= bands[at + n] == term[g0 + lowest_bit(bits)]
        bits &= bits - _ONE_BIT
        n += 1
    return same & (n == TERMS or bands[at + n] == NO_WORD)


@njit(inline="always")
def _count_candidate(bands, sum_):
    """Counts a set without a code, by the sum of its terms; returns whether it gets one now, and is
    no candidate any more."""
    free = -1
    for k in range(_COUNTED):
        if bands[_SEEN + k] == NO_WORD:
            free = k
        elif bands[_SUMS + k] == sum_:
            bands[_SEEN + k] += _ONE_BIT
            if bands[_SEEN + k] < bands[_SAMPLED]:
                return False
            bands[_SEEN + k] = NO_WORD
            return True
    if bands[_SAMPLED] == _ONE_BIT:
        return True
    if free >= 0:
        bands[_SUMS + free], bands[_SEEN + free] = sum_, _ONE_BIT
        return False
    for k in range(_COUNTED):
        bands[_SEEN + k] -= _ONE_BIT
    return False


@njit(cache=True, nogil=True)
def code_set(bands, term, g0, bits):
    """Returns the code of the set of the terms with these bits, of term[g0:], which it may get now;
    0 if it has none."""
    used, sum_, n = np.int64(bands[_COUNT]), NO_WORD, 0
    for k in range(used):
        if _is_set(bands, _ROW + TERMS * k, term, g0, bits):
            return np.int64(LAST_CODE - k)
    left = bits
    while left != NO_WORD:
        each = term[g0 + lowest_bit(left)]
        sum_ = (sum_ ^ each) * _MIXED
        left &= left - _ONE_BIT
        n += 1
        if each == NO_WORD:  # which stands for none
            return np.int64(0)
    if used == SETS or not _count_candidate(bands, sum_):
        return np.int64(0)
    at = _ROW + TERMS * used
    while bits != NO_WORD:
        bands[at] = term[g0 + lowest_bit(bits)]
        bits &= bits - _ONE_BIT
        at += 1
    bands[_COUNT] = np.uint64(used + 1)
    return np.int64(LAST_CODE - used)


@njit(cache=True, nogil=True)
def describe_set(rows, r, bounds, i, stack, bands, mode, prints):
    """Returns what is left to check for a posting under term i of the query of row r, for which
    `describe_check` gives this mode and these fingerprints, if its other equalities are a set with
    a code: FREE, with the code, if nothing is left where it holds; ANY with a fingerprint before
    it, of a term without which nothing is; GENERAL with the code first, if it is left whether the
    object has a smaller posting term. bounds: as `bound_row` gives them."""
    form, g0 = np.int64(rows.form[r]), rows.term_off[r]
    own, needed = _ONE_BIT << np.uint64(i), bounds.needed
    if form == _FORM_ALL:
        needed = ~NO_WORD >> np.uint64(64 - (rows.term_off[r + 1] - g0))
    bits = needed & bounds.predicates & ~own
    smaller = rows.post[r] & (own - _ONE_BIT)
    negated = bounds.negated & ~own
    if bits == NO_WORD or bits & (smaller | negated) != NO_WORD or count_ones(bits) > TERMS:
        return mode, prints
    lacks = NO_WORD
    if form == _FORM_ALL:
        if needed != bits | own:
            return mode, prints
    else:
        lacks = (smaller | negated) & ~own
        first, size = rows.prog_off[r], bounds.size
        if size > LONG_PROGRAM or not holds_surely(
            rows.prog, first, size, own | bits, lacks, stack
        ):
            return mode, prints
    alone = lacks & (lacks - _ONE_BIT) == NO_WORD
    print_ = np.int64(0)
    if not alone and lacks != smaller:
        return mode, prints
    if alone and lacks != NO_WORD:
        print_ = fingerprint(rows.term[g0 + lowest_bit(lacks)])
    code = code_set(bands, rows.term, g0, bits)
    if code <= print_:  # there is no code, or none that the fingerprint could come before
        return mode, prints
    if not alone:
        return np.int64(GENERAL), code
    return (np.int64(FREE), code) if lacks == NO_WORD else (np.int64(ANY), print_ | code << 8)


@njit(cache=True, nogil=True)
def mark_sets(o0, o1, objects, index, scratch):
    """Fills in the codes of the sets that the objects hold, whose fingerprints are there."""
    bands, masks, prints = index.bands, scratch.masks, scratch.prints
    used = np.int64(bands[_COUNT])
    for o in range(o0, o1):
        p, held = PRINT_WORDS * (o - o0), np.int64(0)
        a, b = objects.term_off[o], objects.term_off[o + 1]
        for k in range(used):
            at, last = _ROW + TERMS * k, _ROW + TERMS * (k + 1)
            while at < last and bands[at] != NO_WORD:
                print_ = fingerprint(bands[at])
                if prints[p + (print_ >> 6)] >> np.uint64(print_ & 63) & _ONE_BIT == NO_WORD:
                    break
                if not contains_term(objects.term, a, b, bands[at]):
                    break
                at += 1
            held |= np.int64(at == last or bands[at] == NO_WORD) << (LAST_CODE - k & 15)
        masks[4 * p + _MAY] = masks[4 * p + _SURE] = held
