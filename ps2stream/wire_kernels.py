"""Reading Protocol Buffers without a Python step a value: the inverse of wire.py."""

from __future__ import annotations

from numba import njit

from ps2stream.batch import I64, U8, U32

BAD = -1


@njit(cache=True, nogil=True)
def scan(data: U8, at: int, end: int, field: U8, start: I64, stop: I64) -> int:
    """Where the fields of the message data[at:end] lie, in order; how many there are, or
    BAD. Of a number, stop - start is 0 and start its value; fixed-width fields that are not
    packed are BAD. Columns that are too short count on without being written."""
    n = 0
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            return BAD
        value = 0
        shift = 0
        while True:
            if at >= end or shift > 63:
                return BAD
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
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
def get_varints(data: U8, at: int, end: int, out: U32) -> int:
    """Read uint32 varints of data[at:end]; how many there are, or BAD when they are cut
    short, too large or too many for `out`."""
    n = 0
    while at < end:
        value = 0
        shift = 0
        while True:
            if at >= end or shift > 28:
                return BAD
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if n >= len(out) or value > 0xFFFFFFFF:
            return BAD
        out[n] = value
        n += 1
    return n
