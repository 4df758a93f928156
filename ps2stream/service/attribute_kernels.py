"""Kernels that write the attributes and payloads of columns as Protocol Buffers, without a Python
step an object (protos/ps2stream/v1/object.proto).

A value is a message of one field: a tag, then a number or bytes. Both `AttributeValue` and
`Payload` are of this kind.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.span_kernels import copy_span

INTEGER_TAG, NUMBER_TAG, TEXT_TAG, BOOLEAN_TAG, TIME_TAG = 0x08, 0x11, 0x1A, 0x20, 0x28
"""The tags of the fields of AttributeValue."""
BYTES_TAG, JSON_TAG = 0x0A, 0x12
"""The tags of the fields of Payload."""

_ENTRY_TAG = _KEY_TAG = 0x0A
_VALUE_TAG = 0x12
_MOST_VARINT = 10  # bytes


@njit(inline="always")
def _put_varint(out: U8, at: int, value: int) -> int:
    """Writes an int64 as a varint, a negative one as its two's complement; returns its end."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@njit(inline="always")
def _count_varint(value: int) -> int:
    """Returns the bytes of a varint of a value that is not negative."""
    size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@njit(cache=True, nogil=True)
def encode_numbers(tag: int, value: I64) -> tuple[I64, U8]:
    """Returns a message for each number, ragged: a varint, or behind NUMBER_TAG the eight bytes of
    a float64, which come as an int64."""
    n = value.shape[0]
    off = np.zeros(n + 1, np.int64)
    out = np.empty((1 + _MOST_VARINT) * n, np.uint8)
    at = 0
    for i in range(n):
        out[at] = tag
        at += 1
        if tag == NUMBER_TAG:
            for k in range(8):
                out[at + k] = value[i] >> 8 * k & 0xFF
            at += 8
        else:
            at = _put_varint(out, at, value[i])
        off[i + 1] = at
    return off, out[:at].copy()


@njit(cache=True, nogil=True)
def encode_bytes(tag: int, is_present: U8, data_off: I64, data: U8) -> tuple[I64, U8]:
    """Returns a message for each byte string, ragged, and an empty row for one that is not
    present."""
    n = is_present.shape[0]
    off = np.zeros(n + 1, np.int64)
    out = np.empty(data.shape[0] + (1 + _MOST_VARINT) * n, np.uint8)
    at = 0
    for i in range(n):
        if is_present[i]:
            size = data_off[i + 1] - data_off[i]
            out[at] = tag
            at = _put_varint(out, at + 1, size)
            copy_span(out, at, data, data_off[i], size)
            at += size
        off[i + 1] = at
    return off, out[:at].copy()


@njit(cache=True, nogil=True)
def join_attributes(
    name_off: I64,
    name: U8,
    order: I64,
    part_off: I64,
    row: I64,
    value_off: I64,
    value: U8,
    rows: int,
) -> tuple[I64, U8]:
    """Returns the `Attributes` of each row, ragged, of values that come in parts. Value v is an
    `AttributeValue` of row[v]; those of part p begin at part_off[p] and have name p. In `order` the
    names of parts rise; a row has one value of a name."""
    off = np.zeros(rows + 1, np.int64)
    for p in range(order.shape[0]):
        key = name_off[p + 1] - name_off[p]
        key += 1 + _count_varint(key)
        for v in range(part_off[p], part_off[p + 1]):
            size = value_off[v + 1] - value_off[v]
            entry = key + 1 + _count_varint(size) + size
            off[row[v] + 1] += 1 + _count_varint(entry) + entry
    for i in range(rows):
        off[i + 1] += off[i]
    out = np.empty(off[rows], np.uint8)
    end = off[:-1].copy()
    for p in order:
        begin, width = name_off[p], name_off[p + 1] - name_off[p]
        for v in range(part_off[p], part_off[p + 1]):
            i, first = row[v], value_off[v]
            size = value_off[v + 1] - first
            at = end[i]
            out[at] = _ENTRY_TAG
            entry = 2 + _count_varint(width) + width + _count_varint(size) + size
            at = _put_varint(out, at + 1, entry)
            out[at] = _KEY_TAG
            at = _put_varint(out, at + 1, width)
            copy_span(out, at, name, begin, width)
            at += width
            out[at] = _VALUE_TAG
            at = _put_varint(out, at + 1, size)
            copy_span(out, at, value, first, size)
            end[i] = at + size
    return off, out
