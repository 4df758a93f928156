"""Numba kernels of attributes: the terms of predicates, and the search of objects for those that
live queries watch.

They read the opaque column (protocol/opaque.py), the bytes of whose `Attributes` messages the
service has checked and written itself.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.hash_kernels import finish_hash, start_hash, token_hash
from ps2stream.language.literal_kernels import (
    NAME_MARKS,
    extend_phrase,
    find_literal,
    finish_phrase,
)
from ps2stream.language.values import ValueType
from ps2stream.limits import (
    ATTRIBUTE_TEXT_BYTES,
    ATTRIBUTES,
    COMPARED_TEXT_BYTES,
    TOKEN_BYTES,
)
from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.opaque import find_payload
from ps2stream.protocol.span_kernels import copy_span
from ps2stream.protocol.wire_kernels import read_varint

_START: Final = np.uint64(0x8EBC6AF09C88C6E3)
_PAIRED: Final = np.uint64(0x589965CC75374CC3)
PRESENT, COMPARED = 1, 2
"""What a term of a name says: that the attribute is there, or also that its value is compared."""
_EQUAL: Final = 3
_IDENTITY: U8 = np.arange(256, dtype=np.uint8)
_NUMBER, _TEXT = int(ValueType.NUMBER), int(ValueType.TEXT)
_BOOLEAN, _TIME = int(ValueType.BOOLEAN), int(ValueType.TIME)
_SIGN: Final = np.uint64(1 << 63)
_EXACT: Final = 1 << 53
_KEY: Final = 16  # bytes: more than any key but a text's
_HEAD_WORDS: Final = 2
_NAME_AT: Final = 4  # bytes behind the start of an entry, if its sizes have a byte each
_LONG: Final = 128  # a first byte from which on a size has more
_PLAIN_BYTES: Final = 7  # of an integer that `_read_number` reads
_FREE: Final = np.uint64(0)
TYPE_SHIFT: Final = 32

Integer = Any  # a plain integer, or one of NumPy's


class FoundAttribute(NamedTuple):
    """An attribute in the bytes of a message: where its name is, its type, and where its key is,
    in the same bytes if it is a text, else in the room for keys."""

    name: Integer
    name_end: Integer
    type: Integer
    key: Integer
    key_end: Integer
    next: Integer  # where the next attribute begins


@njit(inline="always")
def _sum_name(keys: U64, data: U8, begin: Integer, end: Integer) -> np.uint64:
    """Returns the unfinished hash of the attribute named data[begin:end]."""
    return extend_phrase(_START, token_hash(keys, data, begin, end, _IDENTITY))


@njit(cache=True, nogil=True)
def name_term(keys: U64, data: U8, begin: Integer, end: Integer, kind: Integer) -> np.uint64:
    """Returns the term of the attribute named data[begin:end]: PRESENT or COMPARED."""
    return finish_phrase(_sum_name(keys, data, begin, end), kind)


@njit(inline="always")
def _finish_equal(
    keys: U64, sum_: np.uint64, type_: Integer, key: U8, begin: Integer, end: Integer
) -> np.uint64:
    """Returns the term of the predicate that the attribute with the unfinished hash `sum_` equals
    the value with this type and the key key[begin:end]."""
    sum_ = extend_phrase(sum_, np.uint64(type_))
    for at in range(begin, end, TOKEN_BYTES):
        last = min(at + TOKEN_BYTES, end)
        sum_ = extend_phrase(sum_, token_hash(keys, key, at, last, _IDENTITY))
    return finish_phrase(sum_, _EQUAL + end - begin)


@njit(cache=True, nogil=True)
def equal_term(
    keys: U64,
    name: U8,
    begin: Integer,
    end: Integer,
    type_: Integer,
    key: U8,
    key_begin: Integer,
    key_end: Integer,
) -> np.uint64:
    """Returns the term of the predicate that the attribute name[begin:end] equals the value with
    this type and the key key[key_begin:key_end]."""
    return _finish_equal(keys, _sum_name(keys, name, begin, end), type_, key, key_begin, key_end)


@njit(inline="always")
def _put_big_endian(word: np.uint64, out: U8) -> None:
    """Writes eight bytes."""
    for k in range(8):
        out[k] = np.uint8(word >> np.uint64(56 - 8 * k) & np.uint64(255))


@njit(inline="always")
def _order_bits(bits: np.uint64) -> np.uint64:
    """Returns the bits of a double so that they sort as doubles do."""
    if bits & _SIGN:
        return ~bits
    return bits | _SIGN


@njit(cache=True, nogil=True)
def put_number(bits: np.uint64, out: U8) -> int:
    """Writes the key of the double with these bits; returns its size. See language/values.py."""
    if bits == _SIGN:
        bits = np.uint64(0)  # -0.0
    _put_big_endian(_order_bits(bits), out)
    return 8


@njit(cache=True, nogil=True)
def put_integer(number: Integer, room: U64, out: U8) -> int:
    """Writes the key of an integer; returns its size. room: one word."""
    shift, size = 0, np.uint64(number)
    if number < 0:
        size = ~size + np.uint64(1)
    while size >> np.uint64(shift) >= np.uint64(_EXACT):
        shift += 1
    below = (number >> shift) << shift
    room.view(np.float64)[0] = np.float64(below)
    put_number(room[0], out)
    rest = number - below
    if rest == 0:
        return 8
    out[8], out[9] = np.uint8(rest >> 8), np.uint8(rest & 255)
    return 10


@njit(cache=True, nogil=True)
def read_attribute(data: U8, at: Integer, end: Integer, room: U64, key: U8) -> FoundAttribute:
    """Reads the entry of `Attributes.values` at `at`, of a message that ends at `end`. key: room
    for _KEY bytes, where the key is written unless it is a text."""
    size, at = read_varint(data, at + 1, end)
    end = at + size
    size, name = read_varint(data, at + 1, end)
    name_end = name + size
    _, value = read_varint(data, name_end + 1, end)
    tag = data[value] >> 3
    if tag == 3:
        size, first = read_varint(data, value + 1, end)
        return FoundAttribute(name, name_end, _TEXT, first, first + size, end)
    if tag == 2:
        bits = np.uint64(0)
        for k in range(8):
            bits |= np.uint64(data[value + 1 + k]) << np.uint64(8 * k)
        return FoundAttribute(name, name_end, _NUMBER, 0, put_number(bits, key), end)
    number, _ = read_varint(data, value + 1, end)
    if tag == 1:
        return FoundAttribute(name, name_end, _NUMBER, 0, put_integer(number, room, key), end)
    if tag == 4:
        key[0] = number != 0
        return FoundAttribute(name, name_end, _BOOLEAN, 0, 1, end)
    _put_big_endian(np.uint64(number) ^ _SIGN, key)
    return FoundAttribute(name, name_end, _TIME, 0, 8, end)


@njit(inline="always")
def _read_number(data: U8, at: Integer) -> tuple[bool, Integer, Integer, np.uint64]:
    """Returns whether the entry of `Attributes.values` at `at` is one of most numbers, whose key
    has eight bytes and whose name is _NAME_AT bytes behind it; where its name and where it ends;
    and its key. It is an integer of 0 to 2^49 - 1, or a double. So is read what most attributes
    are without a call, in which arrays are counted."""
    name_end, behind, bits = at, at, np.uint64(0)
    is_plain = (data[at + 1] < _LONG) & (data[at + 3] < _LONG)
    if is_plain:
        name_end = at + _NAME_AT + np.int64(data[at + 3])
        behind = at + 2 + np.int64(data[at + 1])
        p = name_end + 3
        tag = data[p - 1] >> 3
        is_plain = (data[name_end + 1] < _LONG) & ((tag == 1) | (tag == 2))
        if is_plain and tag == 2:
            for k in range(8):
                bits |= np.uint64(data[p + k]) << np.uint64(8 * k)
            bits *= np.uint64(bits != _SIGN)  # -0.0
        elif is_plain:
            is_plain = behind - p <= _PLAIN_BYTES
            number = np.int64(0)
            for k in range(min(behind - p, _PLAIN_BYTES)):
                number |= np.int64(data[p + k] & 0x7F) << 7 * k
            bits = np.float64(number).view(np.uint64)
    return is_plain, name_end, behind, _order_bits(bits)


@njit(inline="always")
def _reverse_half(word: np.uint64) -> np.uint64:
    """Returns the lower four bytes of a word in the other order."""
    out = np.uint64(0)
    for k in range(4):
        out |= (word >> np.uint64(8 * k) & np.uint64(255)) << np.uint64(24 - 8 * k)
    return out


@njit(inline="always")
def _finish_number(keys: U64, sum_: np.uint64, key: np.uint64) -> np.uint64:
    """Returns the term that `_finish_equal` does of a number with this key of eight bytes."""
    low, high = _reverse_half(key >> np.uint64(32)), _reverse_half(key)
    a, b = start_hash(keys)
    a += keys[0] * low + keys[2] * high
    b += keys[1] * low + keys[3] * high
    sum_ = extend_phrase(sum_, np.uint64(_NUMBER))
    hashed = finish_hash(keys, a, b, np.uint64(0), 8)
    return finish_phrase(extend_phrase(sum_, hashed), _EQUAL + 8)


@njit(inline="always")
def _find_attributes(data: U8, begin: Integer, end: Integer) -> tuple[int, int]:
    """Returns where the `Attributes` of the row data[begin:end] of an opaque column are."""
    if begin == end:
        return begin, begin
    return begin + 4, find_payload(data, begin, end)


@njit(inline="always")
def _mark_sum(sum_: np.uint64) -> Integer:
    """Returns the mark of a name, below NAME_MARKS, by its unfinished hash."""
    return np.int64(sum_ >> np.uint64(40) & np.uint64(NAME_MARKS - 1))


@njit(cache=True, nogil=True)
def name_mark(keys: U64, data: U8, begin: Integer, end: Integer) -> int:
    """Returns the mark of the attribute named data[begin:end]."""
    found: int = _mark_sum(_sum_name(keys, data, begin, end))
    return found


@njit(cache=True, nogil=True)
def pair_term(a: np.uint64, b: np.uint64) -> np.uint64:
    """Returns the term that both predicates with the terms a and b, in any order, hold."""
    sum_ = extend_phrase(extend_phrase(_PAIRED, min(a, b)), max(a, b))
    return finish_phrase(sum_, 2)


@njit(inline="always")
def _add_pairs(
    table: U64, pairs: U8, equal: U64, mark: I64, count: Integer, found: U64, n: Integer
) -> Integer:
    """Appends the pairs of a table among equalities with these terms and marks of their names to
    `found`, which has room; returns the new end."""
    for i in range(count):
        for j in range(i):
            both = min(mark[i], mark[j]) << 8 | max(mark[i], mark[j])
            if pairs[NAME_MARKS + (both >> 3)] >> (both & 7) & 1 == 0:
                continue
            found[n] = pair_term(equal[i], equal[j])
            n += find_literal(table, found[n]) >= 0
    return n


@njit(cache=True, nogil=True)
def search_attributes(
    off: I64, data: U8, table: U64, watched: tuple[bool, bool, bool], pairs: U8, keys: U64
) -> tuple[I64, U64]:
    """Returns the terms of a table that the attributes of objects satisfy, as a ragged column; off
    and data: the opaque column. watched: whether the table has terms that say that an attribute is
    there, that it is compared, that it equals a value; it is not searched for others. pairs: see
    LiteralView, empty for none."""
    of_presence, of_order, of_value = watched
    room, key = np.zeros(1, np.uint64), np.zeros(_KEY, np.uint8)
    found = np.empty(3 * (data.shape[0] // 8) + 3, np.uint64)  # an entry has at least 8 bytes
    found_off, n = np.zeros(off.shape[0], np.int64), 0
    of_pairs = pairs.shape[0] > 0
    is_sought = of_value or of_pairs
    equal, mark = np.empty(ATTRIBUTES, np.uint64), np.empty(ATTRIBUTES, np.int64)
    for row in range(off.shape[0] - 1):
        at, end = _find_attributes(data, off[row], off[row + 1])
        paired = 0
        while at < end:
            is_plain, name_end, behind, word = _read_number(data, at)
            term = _FREE
            if is_plain:
                sum_ = _sum_name(keys, data, at + _NAME_AT, name_end)
                at = behind
                if is_sought:
                    term = _finish_number(keys, sum_, word)
            else:
                one = read_attribute(data, at, end, room, key)
                sum_ = _sum_name(keys, data, one.name, one.name_end)
                at = one.next
                if is_sought:
                    held = data if one.type == _TEXT else key
                    term = _finish_equal(keys, sum_, one.type, held, one.key, one.key_end)
            if of_presence:
                found[n] = finish_phrase(sum_, PRESENT)
                n += find_literal(table, found[n]) >= 0
            if of_order:
                found[n] = finish_phrase(sum_, COMPARED)
                n += find_literal(table, found[n]) >= 0
            in_pair = of_pairs and pairs[_mark_sum(sum_)] != 0
            if of_value or in_pair:
                found[n] = term
                if in_pair and paired < ATTRIBUTES:
                    equal[paired], mark[paired] = term, _mark_sum(sum_)
                    paired += 1
                n += find_literal(table, term) >= 0
        if paired > 1:
            # What is left of the row, and of all that follow, needs room as before.
            most = n + paired * (paired - 1) // 2 + 3 * ((data.shape[0] - off[row]) // 8) + 3
            if most > found.shape[0]:
                more = np.empty(most + most // 2, np.uint64)
                copy_span(more, 0, found, 0, n)
                found = more
            n = _add_pairs(table, pairs, equal, mark, paired, found, n)
        found_off[row + 1] = n
    return found_off, found[:n].copy()


@njit(cache=True, nogil=True)
def list_attributes(off: I64, data: U8, keys: U64) -> tuple[U64, U64, I64, I64]:
    """Returns, of each attribute of objects (off and data: the opaque column), the term that it is
    there, the term that it equals its value, and where in `data` its entry begins and ends."""
    room, key = np.zeros(1, np.uint64), np.zeros(_KEY, np.uint8)
    most = data.shape[0] // 8 + 1
    present, equal = np.empty(most, np.uint64), np.empty(most, np.uint64)
    begin, end, n = np.empty(most, np.int64), np.empty(most, np.int64), 0
    for row in range(off.shape[0] - 1):
        at, last = _find_attributes(data, off[row], off[row + 1])
        while at < last:
            one = read_attribute(data, at, last, room, key)
            sum_ = _sum_name(keys, data, one.name, one.name_end)
            held = data if one.type == _TEXT else key
            present[n] = finish_phrase(sum_, PRESENT)
            equal[n] = _finish_equal(keys, sum_, one.type, held, one.key, one.key_end)
            begin[n], end[n] = at, one.next
            at = one.next
            n += 1
    return present[:n].copy(), equal[:n].copy(), begin[:n].copy(), end[:n].copy()


@njit(cache=True, nogil=True)
def list_values(off: I64, data: U8, table: U64, keys: U64) -> tuple[I64, U64]:
    """Returns the values that queries compare, as a ragged column of words: for each attribute
    whose COMPARED term is in the table that term, the type << TYPE_SHIFT | bytes of the key, and
    the key, big-endian and filled with zeros. Of a text no more than decides each comparison."""
    room, key = np.zeros(1, np.uint64), np.zeros(_KEY, np.uint8)
    out = np.empty(64, np.uint64)
    out_off, n = np.zeros(off.shape[0], np.int64), 0
    for row in range(off.shape[0] - 1):
        at, end = _find_attributes(data, off[row], off[row + 1])
        while at < end:
            one = read_attribute(data, at, end, room, key)
            at = one.next
            term = name_term(keys, data, one.name, one.name_end, np.int64(COMPARED))
            if find_literal(table, term) < 0:
                continue
            size = min(one.key_end - one.key, COMPARED_TEXT_BYTES + 1)
            words = (size + 7) // 8
            if n + _HEAD_WORDS + words > out.shape[0]:
                more = np.empty(2 * (n + _HEAD_WORDS + words), np.uint64)
                copy_span(more, 0, out, 0, n)
                out = more
            out[n] = term
            out[n + 1] = np.uint64(one.type) << np.uint64(TYPE_SHIFT) | np.uint64(size)
            n += _HEAD_WORDS
            held = data if one.type == _TEXT else key
            for w in range(words):
                word = np.uint64(0)
                for k in range(8 * w, min(8 * w + 8, size)):
                    word |= np.uint64(held[one.key + k]) << np.uint64(56 - 8 * (k & 7))
                out[n] = word
                n += 1
        out_off[row + 1] = n
    return out_off, out[:n].copy()


assert ATTRIBUTE_TEXT_BYTES > COMPARED_TEXT_BYTES
