"""Kernels that read Protocol Buffers without a Python step a value: the inverse of wire.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8

BAD = -1


@njit(cache=True, nogil=True)
def read_varint(data: U8, at: int, end: int) -> tuple[int, int]:
    """Returns the varint of data[at:end] and where it ends: BAD where it is cut short or too
    long."""
    value = 0
    shift = 0
    while at < end and shift <= 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    return value, BAD


@njit(cache=True, nogil=True)
def scan(data: U8, at: int, end: int, field: U8, start: I64, stop: I64) -> int:
    """Finds the fields of the message data[at:end], in order; returns how many there are, or
    BAD. For a number, start is its value and stop - start is 0; fixed-width fields that are not
    packed are BAD. Columns that are too short are not written beyond their end, but fields still
    count."""
    n = 0
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            return BAD
        value, at = read_varint(data, at, end)
        if at < 0:
            return BAD
        kind = tag & 7
        if kind == 0:
            first, last = value, value
        elif kind == 2:
            if value < 0 or value > end - at:
                return BAD
            first, last = at, at + value
            at = last
        else:
            return BAD
        if n < len(field):
            field[n] = tag >> 3
            start[n] = first
            stop[n] = last
        n += 1
    return n


@njit(cache=True, nogil=True)
def count_entries(data: U8, outer: int, inner: int, limit: int) -> int:
    """Counts what the repeated field `inner` holds in all occurrences of the message field
    `outer` of a message, or, with outer 0, in the message itself. Stops above `limit`. Returns
    BAD where fields do not fill the bytes. Fields of groups count like those around them."""
    n = 0
    at: Any = np.int64(0)  # a constant would be a type of its own
    size = len(data)
    end = size  # of the message that is read: the whole one, or one at `outer`
    inside = outer == 0
    while at < size:
        tag, at = read_varint(data, at, end)
        if at < 0:
            return BAD
        kind = tag & 7
        field = (tag >> 3) & 0x1FFFFFFF
        if kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 0 or kind == 2:
            value, at = read_varint(data, at, end)
            if at < 0:
                return BAD
            if kind == 2:
                if value < 0 or value > end - at:
                    return BAD
                if inside:
                    at += value
                    if field == inner:
                        n += 1
                        if n > limit:
                            return n
                elif field == outer:
                    end = at + value
                    inside = True
                else:
                    at += value
        elif kind > 5:
            return BAD
        if at > end:
            return BAD
        if at == end and end < size:  # the message at `outer` is read
            end = size
            inside = False
    return n
