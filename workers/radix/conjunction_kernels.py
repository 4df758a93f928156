"""Programs that are conjunctions, which the radix GI2 keeps as bits of terms and not as programs.

The first word has a bit for each term that must be there, the second one for each that must not.
Where more must hold a third follows, with the number of clauses | comparisons << 16; a word of bits
for each clause, of whose terms one must be there; and the comparisons, each a word (number of the
term | operator << 6 | type << 9 | bytes of the key << 16) and its key, in words that are big-endian
and filled with zeros.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.programs import (
    COMPARISON,
    OPERATOR_MASK,
    OPERATOR_SHIFT,
    TYPE_SHIFT,
    VALUE_TYPE_SHIFT,
    allows_order,
    comparison_size,
    find_value,
    join_halves,
)
from ps2stream.protocol.rows import PROG_AND, PROG_COMPARE, PROG_NOT
from ps2stream.workers.radix.arrays import LONG_PROGRAM
from ps2stream.workers.radix.layout import LANES, NO_WORD, posted_terms
from ps2stream.workers.radix.pointers import advance
from ps2stream.workers.radix.vectors import holds_term, lowest_bit

_AND, _NOT, _COMPARE = PROG_AND, PROG_NOT, PROG_COMPARE
_ONE_BIT = np.uint64(1)
_BITS = 2  # words
BYTES_SHIFT = 16
_TYPE_MASK = (1 << BYTES_SHIFT - TYPE_SHIFT) - 1
SPLIT = 2 * LONG_PROGRAM  # where in the stack `split_program` writes


@njit(cache=True, nogil=True)
def split_program(prog, first, size, stack):
    """Returns how many words the conjunction has that the program prog[first : first + size] is, 0
    if it is none: comparisons, and terms, some under a NOT, and disjunctions of terms, under AND.
    Its words up to the comparisons are then in stack[SPLIT:]. stack: 4 * LONG_PROGRAM words."""
    # On the stack a disjunction of terms is their bits, and what is already split is 0.
    needed = barred = NO_WORD
    top, clauses, comparisons, words = 0, 0, 0, _BITS + 1
    p, end = first, first + size
    while p < end:
        op = np.int64(prog[p])
        if op == _COMPARE:
            stack[top] = NO_WORD
            top += 1
            comparisons += 1
            words += comparison_size(prog, p) // 4 + 1
            p += comparison_size(prog, p)
            continue
        p += 1
        if op >= 0:
            stack[top] = _ONE_BIT << np.uint64(op)
            top += 1
        elif op == _NOT:
            bits = stack[top - 1]
            if bits == NO_WORD or bits & (bits - _ONE_BIT) != NO_WORD:
                return 0
            barred |= bits
            stack[top - 1] = NO_WORD
        elif op == _AND:
            for k in range(top - 2, top):
                bits = stack[k]
                if bits & (bits - _ONE_BIT) == NO_WORD:
                    needed |= bits
                else:
                    stack[SPLIT + _BITS + 1 + clauses] = bits
                    clauses += 1
            top -= 1
            stack[top - 1] = NO_WORD
        else:
            top -= 1
            if stack[top] == NO_WORD or stack[top - 1] == NO_WORD:
                return 0
            stack[top - 1] |= stack[top]
    bits = stack[0]
    if bits & (bits - _ONE_BIT) == NO_WORD:
        needed |= bits
    else:
        stack[SPLIT + _BITS + 1 + clauses] = bits
        clauses += 1
    if needed & barred != NO_WORD:
        return 0
    stack[SPLIT], stack[SPLIT + 1] = needed, barred
    stack[SPLIT + 2] = np.uint64(clauses | comparisons << 16)
    return words + clauses if comparisons else 0


@njit(cache=True, nogil=True)
def store_conjunction(pool, at, prog, first, size, stack, words):
    """Writes the conjunction of so many words of which `split_program` has just written the first
    ones to pool[at:]."""
    head = 2 if words == _BITS else 3 + np.int64(stack[SPLIT + 2] & np.uint64(0xFFFF))
    for i in range(head):
        pool[at + i] = stack[SPLIT + i]
    at += head
    p = first
    while p < first + size:
        if prog[p] != _COMPARE:
            p += 1
            continue
        pool[at] = np.uint64(np.int64(prog[p + 1]) | np.int64(prog[p + 2]) << BYTES_SHIFT)
        at += 1
        end = p + comparison_size(prog, p)
        p += COMPARISON
        while p < end:
            pool[at] = join_halves(prog, p)
            at += 1
            p += 4


@njit(inline="always")
def contains_term(term, a, b, want):
    """Returns whether `want` is among the sorted term[a:b]."""
    if b - a <= LANES:
        return holds_term(advance(term, a), b - a, want)
    while a < b:
        m = (a + b) >> 1
        if term[m] < want:
            a = m + 1
        elif term[m] > want:
            b = m
        else:
            return True
    return False


@njit(inline="always")
def _holds_comparison(pool, p, head, term, value, first, last):
    """Returns whether the comparison at pool[p], whose first word is `head`, holds for an object
    with the values value[first:last]. term: that of its attribute."""
    first = find_value(value, first, last, term)
    if first >= last:
        return False
    about = np.int64(value[first + 1])
    if about >> VALUE_TYPE_SHIFT != head >> TYPE_SHIFT & _TYPE_MASK:
        return False
    size, wanted = about & 0xFFFFFFFF, head >> BYTES_SHIFT
    order = np.int64(size > wanted) - np.int64(size < wanted)
    for w in range((min(size, wanted) + 7) >> 3):
        mine, word = value[first + 2 + w], pool[p + 1 + w]
        if mine != word:
            order = -1 if mine < word else 1
            break
    return allows_order(head >> OPERATOR_SHIFT & OPERATOR_MASK, order)


@njit(cache=True, nogil=True)
def satisfies_conjunction(pool, at, key, term, a, b, value, first_value, last_value):
    """Returns whether the expression at `at`, a conjunction, holds for an object with the sorted
    terms term[a:b], `key` among them, and the values value[first_value:last_value], and `key` is
    the smallest of its posting terms among them."""
    head = np.int64(pool[at])
    n, size = head >> 8 & 255, head >> 16 & 0xFFFF
    post = posted_terms(pool, at)
    p = at + 1 + n
    needed, barred = pool[p], pool[p + 1]
    tried = needed | barred | post
    clauses = 0
    if size > _BITS:
        counts = np.int64(pool[p + 2])
        clauses = counts & 0xFFFF
        p += 3
        for c in range(clauses):
            tried |= pool[p + c]
        q = p + clauses
        for _ in range(counts >> 16):
            about = np.int64(pool[q])
            compared = pool[at + 1 + (about & 63)]
            if not _holds_comparison(pool, q, about, compared, value, first_value, last_value):
                return False
            q += 1 + (((about >> BYTES_SHIFT) + 7) >> 3)
    bits = NO_WORD
    while tried != NO_WORD:
        i = lowest_bit(tried)
        bit = _ONE_BIT << np.uint64(i)
        tried ^= bit
        want = pool[at + 1 + i]
        if want == key or contains_term(term, a, b, want):
            is_first = post & bit != NO_WORD and bits & post == NO_WORD
            if barred & bit != NO_WORD or (is_first and want != key):
                return False
            bits |= bit
        elif needed & bit != NO_WORD:
            return False
    for c in range(clauses):
        if bits & pool[p + c] == NO_WORD:
            return False
    return bits & post != NO_WORD
