"""The opaque column of objects: the attributes and the payload of each, as Protocol Buffers.

A row is empty, or four bytes with the size of an `Attributes` message (little-endian), that
message, and a `Payload` message. It is written once, where objects come in, and what is delivered
are its bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, Array, sealed
from ps2stream.protocol.span_kernels import copy_span

_HEAD = 4
Integer = Any  # a plain integer, or one of NumPy's


class OpaqueColumns(NamedTuple):
    """Two ragged columns of messages, `Attributes` and `Payload`; a row without one is empty."""

    attributes_off: I64
    attributes: U8
    payload_off: I64
    payload: U8


def pack_opaque(columns: OpaqueColumns) -> tuple[I64, U8]:
    """Returns the opaque column of these messages; without rows if all are empty."""
    if not len(columns.attributes) and not len(columns.payload):
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    found: tuple[I64, U8] = _pack(*[sealed(column) for column in columns])
    return found


def split_opaque(off: I64, data: U8, rows: int) -> OpaqueColumns:
    """Returns the messages of an opaque column of so many rows, which may be absent."""
    if not len(off):
        none = np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8)
        return OpaqueColumns(*none, *none)
    return OpaqueColumns(*_split(sealed(off), sealed(data)))


def take_opaque(off: I64, data: U8, rows: Array) -> tuple[I64, U8]:
    """Returns these rows of an opaque column, which may be absent, in this order. Payloads are
    long: an index of each byte, as `take_ragged` makes it, would take twenty times as long."""
    if not len(off):
        return off, data
    found: tuple[I64, U8] = _take(sealed(off), sealed(data), rows.astype(np.int64, copy=False))
    return found


@njit(cache=True, nogil=True)
def _pack(a_off: I64, a: U8, p_off: I64, p: U8) -> tuple[I64, U8]:
    rows = a_off.shape[0] - 1
    off = np.zeros(rows + 1, np.int64)
    out = np.empty(a.shape[0] + p.shape[0] + _HEAD * rows, np.uint8)
    at = 0
    for i in range(rows):
        a_size, p_size = a_off[i + 1] - a_off[i], p_off[i + 1] - p_off[i]
        if a_size + p_size > 0:
            for k in range(_HEAD):
                out[at + k] = a_size >> 8 * k & 0xFF
            at += _HEAD
            copy_span(out, at, a, a_off[i], a_size)
            at += a_size
            copy_span(out, at, p, p_off[i], p_size)
            at += p_size
        off[i + 1] = at
    return off, out[:at].copy()


@njit(inline="always")
def find_payload(data: U8, begin: Integer, end: Integer) -> Integer:
    """Returns where the payload of the row data[begin:end] begins; its attributes begin behind the
    first four bytes and end there. `end` for an empty row."""
    if end - begin < _HEAD:
        return end
    size: Any = np.int64(0)
    for k in range(_HEAD):
        size |= np.int64(data[begin + k]) << 8 * k
    found: int = min(begin + _HEAD + size, end)  # damage must not lead beyond the row
    return found


@njit(cache=True, nogil=True)
def _split(off: I64, data: U8) -> tuple[I64, U8, I64, U8]:
    rows = off.shape[0] - 1
    a_off, p_off = np.zeros(rows + 1, np.int64), np.zeros(rows + 1, np.int64)
    a, p = np.empty(data.shape[0], np.uint8), np.empty(data.shape[0], np.uint8)
    for i in range(rows):
        begin, end = off[i], off[i + 1]
        middle = find_payload(data, begin, end)
        a_size = max(middle - begin - _HEAD, 0)
        p_size = end - middle
        a_off[i + 1], p_off[i + 1] = a_off[i] + a_size, p_off[i] + p_size
        copy_span(a, a_off[i], data, middle - a_size, a_size)
        copy_span(p, p_off[i], data, middle, p_size)
    return a_off, a[: a_off[rows]].copy(), p_off, p[: p_off[rows]].copy()


@njit(cache=True, nogil=True)
def _take(off: I64, data: U8, rows: I64) -> tuple[I64, U8]:
    out_off = np.zeros(rows.shape[0] + 1, np.int64)
    for i in range(rows.shape[0]):
        out_off[i + 1] = out_off[i] + off[rows[i] + 1] - off[rows[i]]
    out = np.empty(out_off[-1], np.uint8)
    for i in range(rows.shape[0]):
        copy_span(out, out_off[i], data, off[rows[i]], out_off[i + 1] - out_off[i])
    return out_off, out
