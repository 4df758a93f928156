"""Kernels that take some of the objects of a batch."""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import F64, I64, U8, U32, Array
from ps2stream.protocol.span_kernels import copy_span

Strings = tuple[I64, U8]


@njit(cache=True, nogil=True)
def list_rows(pair_row: U32, rows: int) -> U32:
    """Returns the distinct rows of pairs, rising; rows + 1 of them if one is not below `rows`."""
    hit = np.zeros(rows, np.bool_)
    for i in range(len(pair_row)):
        if pair_row[i] >= rows:
            return np.zeros(rows + 1, np.uint32)
        hit[pair_row[i]] = True
    out = np.empty(rows, np.uint32)
    n = 0
    for r in range(rows):
        if hit[r]:
            out[n] = r
            n += 1
    return out[:n]


@njit(cache=True, nogil=True)
def take_spans(off: I64, data: Array, rows: Array) -> tuple[I64, Array]:
    """Returns rows of a ragged column, in the order of `rows`, as a new one."""
    out_off = np.zeros(len(rows) + 1, np.int64)
    for i in range(len(rows)):
        out_off[i + 1] = out_off[i] + off[rows[i] + 1] - off[rows[i]]
    out = np.empty(out_off[-1], data.dtype)
    for i in range(len(rows)):
        copy_span(out, out_off[i], data, off[rows[i]], out_off[i + 1] - out_off[i])
    return out_off, out


@njit(inline="always")
def _measure_rows(off: I64, rows: U32, out: I64) -> int:
    """Fills in the offsets of rows of a ragged column; returns their size."""
    out[0] = 0
    for i in range(len(rows)):
        out[i + 1] = out[i] + off[rows[i] + 1] - off[rows[i]]
    return int(out[len(rows)])


@njit(inline="always")
def _copy_bytes(off: I64, data: U8, rows: U32, out_off: I64, out: U8) -> None:
    """Fills in the bytes of rows of a ragged column."""
    for i in range(len(rows)):
        # Unsigned indices: signed ones could count from the end, which is slower.
        to, first = np.uint64(out_off[i]), np.uint64(off[rows[i]])
        for k in range(np.uint64(out_off[i + 1] - out_off[i])):
            out[to + k] = data[first + k]


@njit(cache=True, nogil=True)
def take_objects(
    rows: U32, ids: Strings, texts: Strings, columns: tuple[I64, F64, F64]
) -> tuple[I64, U8, I64, F64, F64, I64, U8]:
    """Returns these rows of ids, times, longitudes, latitudes and texts, in their order, ragged
    columns as two. columns: times and positions."""
    n = len(rows)
    (id_off, id_), (text_off, text), (time, lon, lat) = ids, texts, columns
    out_id_off, out_text_off = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    out_id = np.empty(_measure_rows(id_off, rows, out_id_off), np.uint8)
    out_text = np.empty(_measure_rows(text_off, rows, out_text_off), np.uint8)
    _copy_bytes(id_off, id_, rows, out_id_off, out_id)
    _copy_bytes(text_off, text, rows, out_text_off, out_text)
    out_time, out_lon, out_lat = np.empty(n, np.int64), np.empty(n), np.empty(n)
    for i in range(n):
        row = rows[i]
        out_time[i], out_lon[i], out_lat[i] = time[row], lon[row], lat[row]
    return out_id_off, out_id, out_time, out_lon, out_lat, out_text_off, out_text


@njit(cache=True, nogil=True)
def take_named_objects(
    pair_row: U32, ids: Strings, texts: Strings, columns: tuple[I64, F64, F64]
) -> tuple[U32, I64, U8, I64, F64, F64, I64, U8]:
    """Returns the rows that pairs name, rising, and `take_objects` of them, but of none if these
    are all rows. Returns one more row than there are if a pair names one that is not there."""
    rows = list_rows(pair_row, len(columns[1]))
    taken = take_objects(rows if len(rows) < len(columns[1]) else rows[:0], ids, texts, columns)
    return rows, taken[0], taken[1], taken[2], taken[3], taken[4], taken[5], taken[6]
