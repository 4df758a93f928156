"""Where the postfix program of a query ends (see rows.py), and the comparisons in it, for kernels
of several rooms.

A comparison is PROG_COMPARE, the number of a term | operator << OPERATOR_SHIFT | type of the value
<< TYPE_SHIFT, the bytes of the value's key, and that key in values of two bytes, big-endian and
filled with zeros to whole words of four. It holds if the object has the term, that of the attribute
whose value is compared, and its value has that type and stands so to the key.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I16
from ps2stream.protocol.rows import PROG_COMPARE, PROG_NOTES

OPERATOR_SHIFT, TYPE_SHIFT = 6, 9
_TERM_MASK, OPERATOR_MASK = 63, 7
COMPARISON = 3  # values before the key
VALUE_TYPE_SHIFT = 32  # in the values of objects, language/attribute_kernels.py


def write_comparison(term: int, operator: int, type_: int, key: bytes) -> list[int]:
    """Returns the values of a comparison in a program. operator: < <= > >= != from 0."""
    halves: I16 = np.frombuffer(key + bytes(-len(key) % 8), ">i2").astype(np.int16)
    head = term | operator << OPERATOR_SHIFT | type_ << TYPE_SHIFT
    return [PROG_COMPARE, head, len(key), *halves.tolist()]


@njit(inline="always")
def comparison_size(prog, p):
    """Returns how many values the comparison at prog[p] has."""
    return COMPARISON + 4 * ((np.int64(prog[p + 2]) + 7) // 8)


@njit(inline="always")
def compared_term(prog, p):
    """Returns the number of the term of the comparison at prog[p]."""
    return np.int64(prog[p + 1]) & _TERM_MASK


@njit(inline="always")
def find_value(value, first, last, term):
    """Returns where the value of the attribute with this term is in value[first:last] (see
    language/attribute_kernels.py), or where none is, at least `last`."""
    while first < last and value[first] != term:
        first += 2 + ((np.int64(value[first + 1]) & 0xFFFFFFFF) + 7) // 8
    return first


@njit(inline="always")
def allows_order(operator, order):
    """Returns whether an operator holds for what is below (-1), at (0) or above (1) its key."""
    if operator == 0:
        return order < 0
    if operator == 1:
        return order <= 0
    if operator == 2:
        return order > 0
    if operator == 3:
        return order >= 0
    return order != 0


@njit(cache=True, nogil=True)
def compare_value(prog, p, term, value, first, last):
    """Returns whether the comparison at prog[p] holds for an object with the values value[first :
    last] (language/attribute_kernels.py). term: that of the comparison."""
    first = find_value(value, first, last, term)
    if first >= last:
        return False
    head = np.int64(prog[p + 1])
    size, wanted = np.int64(value[first + 1]) & 0xFFFFFFFF, np.int64(prog[p + 2])
    if np.int64(value[first + 1] >> np.uint64(VALUE_TYPE_SHIFT)) != head >> TYPE_SHIFT:
        return False
    order = 0
    for w in range((min(size, wanted) + 7) // 8):
        word, mine = join_halves(prog, p + COMPARISON + 4 * w), value[first + 2 + w]
        if mine != word:
            order = -1 if mine < word else 1
            break
    if order == 0 and size != wanted:
        order = -1 if size < wanted else 1
    return allows_order(head >> OPERATOR_SHIFT & OPERATOR_MASK, order)


@njit(inline="always")
def join_halves(prog, p):
    """Returns the word of a key in the four values from prog[p] on."""
    word = np.uint64(0)
    for k in range(4):
        word = word << np.uint64(16) | np.uint64(np.int64(prog[p + k]) & 0xFFFF)
    return word


@njit(inline="always")
def find_program_end(prog, first, last):
    """Returns where the program of a row ends, whose values are prog[first:last], an array or a
    pointer: its notes are behind that, if it has any. A row of notes alone ends at `first`."""
    if last > first and prog[last - 1] <= PROG_NOTES:
        return last - 1 - 2 * (PROG_NOTES - prog[last - 1])
    return last
