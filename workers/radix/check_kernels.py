"""What a posting of the radix GI2 leaves to be checked of its query's expression, and how little of
a program that is.

Two things are derived from a program, which need not be a conjunction: the terms without which it
cannot hold, so that a posting may carry their fingerprints; and whether it holds for certain where
some terms are missing, so that nothing is left to check of an object without their fingerprints.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.literals import LiteralKind
from ps2stream.protocol.programs import compared_term, comparison_size, find_program_end
from ps2stream.protocol.rows import PROG_AND, PROG_COMPARE, PROG_NOT, ExpressionForm
from ps2stream.workers.radix.arrays import LONG_PROGRAM
from ps2stream.workers.radix.conjunction_kernels import SPLIT, split_program
from ps2stream.workers.radix.layout import ALL, ANY, FREE, GENERAL, NO_WORD, fingerprint
from ps2stream.workers.radix.tag_kernels import count_ones
from ps2stream.workers.radix.vectors import lowest_bit

_FORM_ALL, _FORM_ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_AND, _NOT, _COMPARE = PROG_AND, PROG_NOT, PROG_COMPARE
_PRESENT = int(LiteralKind.PRESENT)  # and all kinds above it are of predicates
_ONE_BIT = np.uint64(1)
_PRINTS = 2  # that a posting has room for


@njit(cache=True, nogil=True)
def bound_program(prog, first, size, stack):
    """Returns, as bits, the terms that every object has for which the program prog[first : first +
    size] holds; those that no such object has; and those under a NOT of their own. stack: four
    words for each value."""
    top, negated, pushed = 0, NO_WORD, NO_WORD
    p, end = first, first + size
    while p < end:
        op = np.int64(prog[p])
        if op >= 0:
            # needed and barred where it holds, and where it does not
            bit = _ONE_BIT << np.uint64(op)
            stack[top], stack[top + 1], stack[top + 2], stack[top + 3] = bit, NO_WORD, NO_WORD, bit
            top += 4
            pushed = bit
            p += 1
            continue
        if op == _COMPARE:  # nothing is known of an object for which it does not hold
            stack[top] = _ONE_BIT << np.uint64(compared_term(prog, p))
            stack[top + 1], stack[top + 2], stack[top + 3] = NO_WORD, NO_WORD, NO_WORD
            top += 4
            pushed = NO_WORD
            p += comparison_size(prog, p)
            continue
        p += 1
        if op == _NOT:
            a = top - 4
            stack[a], stack[a + 2] = stack[a + 2], stack[a]
            stack[a + 1], stack[a + 3] = stack[a + 3], stack[a + 1]
            negated |= pushed
        else:
            top -= 4
            a, both = top - 4, 0 if op == _AND else 2
            for k in range(2):
                stack[a + both + k] |= stack[top + both + k]
                stack[a + 2 - both + k] &= stack[top + 2 - both + k]
        pushed = NO_WORD
    return stack[0], stack[1], negated


@njit(cache=True, nogil=True)
def holds_surely(prog, first, size, has, lacks, stack):
    """Returns whether the program prog[first : first + size] holds for every object that has the
    terms of the bits `has` and none of `lacks`, as far as that is seen without trying the others;
    no bit is in both. stack: two words for each value."""
    top, p, end = 0, first, first + size
    while p < end:
        op = np.int64(prog[p])
        if op == _COMPARE:  # surely not, where the term is lacking
            stack[top] = NO_WORD
            stack[top + 1] = lacks >> np.uint64(compared_term(prog, p)) & _ONE_BIT
            top += 2
            p += comparison_size(prog, p)
            continue
        p += 1
        if op >= 0:
            stack[top] = has >> np.uint64(op) & _ONE_BIT
            stack[top + 1] = lacks >> np.uint64(op) & _ONE_BIT
            top += 2
        elif op == _NOT:
            stack[top - 2], stack[top - 1] = stack[top - 1], stack[top - 2]
        else:
            top -= 2
            a, both = top - 2, 0 if op == _AND else 1
            stack[a + both] &= stack[top + both]
            stack[a + 1 - both] |= stack[top + 1 - both]
    return stack[0] != NO_WORD


class ProgramBounds(NamedTuple):
    """What is known of the program of a row: its size without notes; the bits that `bound_program`
    gives; and how many words it has as a conjunction, 0 if it is none. Behind these, of any row,
    the bits of the terms that are predicates."""

    size: Any
    needed: Any
    barred: Any
    negated: Any
    words: Any
    predicates: Any


@njit(inline="always")
def _note_predicates(prog, first, last):
    """Returns the bits of the terms that the notes of a row, whose values are prog[first:last],
    call predicates."""
    found = NO_WORD
    for p in range(find_program_end(prog, first, last), last - 1, 2):
        if np.int64(prog[p]) >> 8 >= _PRESENT:
            found |= _ONE_BIT << np.uint64(np.int64(prog[p]) & 255)
    return found


@njit(cache=True, nogil=True)
def bound_row(rows, r, stack):
    """Returns the ProgramBounds of row r; if it is a conjunction, its words up to the comparisons
    are in the stack as `split_program` leaves them. Nothing is known of a program longer than
    LONG_PROGRAM."""
    first, last = rows.prog_off[r], rows.prog_off[r + 1]
    predicates = _note_predicates(rows.prog, first, last)
    if np.int64(rows.form[r]) <= _FORM_ANY:
        return ProgramBounds(np.int64(0), NO_WORD, NO_WORD, NO_WORD, np.int64(0), predicates)
    size = np.int64(find_program_end(rows.prog, first, last) - first)
    if size > LONG_PROGRAM:
        return ProgramBounds(size, NO_WORD, NO_WORD, NO_WORD, np.int64(0), predicates)
    needed, barred, negated = bound_program(rows.prog, first, size, stack)
    exact = needed & barred == NO_WORD
    exact = exact and holds_surely(rows.prog, first, size, needed, barred, stack)
    if exact:
        stack[SPLIT], stack[SPLIT + 1] = needed, barred
        words = np.int64(2)
    else:
        words = np.int64(split_program(rows.prog, first, size, stack))
    return ProgramBounds(size, needed, barred, negated, words, predicates)


@njit(inline="always")
def _print_terms(term, first, bits, last, passed):
    """Returns the fingerprints of two of these terms, or of the only one, after as many as are
    passed over; those of the bits `last` are taken last, as many objects may have them."""
    prints, shift = np.int64(0), -8 * passed
    for some in (bits & ~last, bits & last):
        while some != NO_WORD and shift < 16:
            if shift >= 0:
                prints |= fingerprint(term[first + lowest_bit(some)]) << shift
            some &= some - _ONE_BIT
            shift += 8
    return prints


@njit(inline="always")
def _print_either(term, first, bits):
    """Returns the fingerprints of these terms, one or two, the greater one first: else the second
    would be the code of a set."""
    prints = _print_terms(term, first, bits, NO_WORD, 0)
    high, low = max(prints & 255, prints >> 8), min(prints & 255, prints >> 8)
    return high | low << 8


@njit(cache=True, nogil=True)
def describe_rest(rows, r, bounds):
    """Returns the fingerprints, 0 being none, of two other terms that the query of row r needs than
    those that `describe_check` gives its posting: a slot has them, so that of an object without one
    the expression need not be read. bounds: of its program, as `bound_row` gives them."""
    form, g0 = np.int64(rows.form[r]), rows.term_off[r]
    needed = bounds.needed
    if form == _FORM_ALL:
        needed = ~NO_WORD >> np.uint64(64 - (rows.term_off[r + 1] - g0))
    own = rows.post[r] & (~rows.post[r] + _ONE_BIT)
    return _print_terms(rows.term, g0, needed & ~own, bounds.predicates, _PRINTS)


@njit(cache=True, nogil=True)
def describe_check(rows, r, bounds, i, stack):
    """Returns what is left to check for a posting under term i of the query of row r, and two
    fingerprints, 0 being none: ALL with those of other terms that it needs; ANY with those of all
    terms, the greater one first, of which one must be there, or this posting is the one that emits,
    and the expression holds. bounds: of its program, as `bound_row` gives them."""
    form, post, g0 = np.int64(rows.form[r]), rows.post[r], rows.term_off[r]
    n, own = rows.term_off[r + 1] - g0, _ONE_BIT << np.uint64(i)
    every = ~NO_WORD >> np.uint64(64 - n)
    smaller, needed = post & (own - _ONE_BIT), NO_WORD
    if form == _FORM_ALL:
        needed = every & ~own
        if needed == NO_WORD:
            return FREE, 0
    elif form == _FORM_ANY:
        if post != every or i > _PRINTS:
            return GENERAL, 0
        return (ANY, _print_either(rows.term, g0, smaller)) if i != 0 else (FREE, 0)
    elif bounds.size <= LONG_PROGRAM:
        lacks = (smaller | bounds.negated) & ~own
        if count_ones(lacks) <= _PRINTS and holds_surely(
            rows.prog, rows.prog_off[r], bounds.size, own, lacks, stack
        ):
            if lacks == NO_WORD:
                return FREE, 0
            return ANY, _print_either(rows.term, g0, lacks)
        needed = bounds.needed & ~own
    if needed == NO_WORD:
        return GENERAL, 0
    return ALL, _print_terms(rows.term, g0, needed, bounds.predicates, 0)
