"""Kernels of the merger. Callers have validated all shapes; the twins are in its tests."""

# Numba gives an intrinsic its first argument.
# mypy: disable-error-code="call-arg"
from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U32, U64
from ps2stream.protocol.rows import UpdateKind
from ps2stream.protocol.span_kernels import copy_span
from ps2stream.space.prefetch import prefetch

Bool = NDArray[np.bool_]

NONE = np.int64(-1)
"""The row of a handle that has none."""

OBJECT_BYTES = 48
"""The bytes that an object counts with besides its id, its text and what is opaque."""

_INSERT = np.uint8(UpdateKind.INSERT)
_AHEAD = 8  # elements between that which is handled and that whose cache lines are asked for
_SHORT = 32  # elements that an insertion sort takes


@njit(cache=True, nogil=True)
def distinct_pairs(row: U32, handle: I64, session: I64, rows: int) -> tuple[U32, I64, I64]:
    """Returns the distinct (row, handle) with their sessions, sorted by row and handle; row < rows.
    A counting sort by row comes first, then a Shellsort of each row's few handles."""
    n = len(row)
    start = np.zeros(rows + 1, np.int64)
    for i in range(n):
        start[row[i] + 1] += 1
    for r in range(rows):
        start[r + 1] += start[r]
    fill = start[:-1].copy()
    h = np.empty(n, np.int64)
    s = np.empty(n, np.int64)
    for i in range(n):
        at = fill[row[i]]
        h[at] = handle[i]
        s[at] = session[i]
        fill[row[i]] = at + 1
    out_row = np.empty(n, np.uint32)
    size = 0
    for r in range(rows):
        a = start[r]
        b = start[r + 1]
        gap = 1
        while _SHORT * gap < b - a:
            gap = 3 * gap + 1
        while gap > 0:
            for i in range(a + gap, b):
                x = h[i]
                y = s[i]
                j = i
                while j >= a + gap and h[j - gap] > x:
                    h[j] = h[j - gap]
                    s[j] = s[j - gap]
                    j -= gap
                h[j] = x
                s[j] = y
            gap //= 3
        for i in range(a, b):
            if i > a and h[i] == h[size - 1]:
                continue
            out_row[size] = r
            h[size] = h[i]
            s[size] = s[i]
            size += 1
    return out_row[:size], h[:size], s[:size]


@njit(cache=True, nogil=True)
def is_rising(row: U32) -> bool:
    """Returns whether no row is below the one before it."""
    rising = True
    for i in range(1, len(row)):
        rising &= row[i] >= row[i - 1]
    return rising


@njit(cache=True, nogil=True)
def runs(row: U32) -> tuple[I64, U32]:
    """Returns (the distinct values of a sorted column, for each element its value's index)."""
    value = np.empty(len(row), np.int64)
    index = np.empty(len(row), np.uint32)
    size = 0
    for i in range(len(row)):
        if i == 0 or row[i] != row[i - 1]:
            value[size] = row[i]
            size += 1
        index[i] = size - 1
    return value[:size], index


@njit(cache=True, nogil=True)
def take_spans(start: I64, end: I64, data: U8, rows: I64) -> tuple[I64, U8]:
    """Returns the byte strings data[start[r]:end[r]] of the rows as a string column."""
    n = len(rows)
    off = np.zeros(n + 1, np.int64)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(start, rows[i + _AHEAD])
            prefetch(end, rows[i + _AHEAD])
        prefetch(data, start[rows[i]])
        off[i + 1] = off[i] + end[rows[i]] - start[rows[i]]
    out = np.empty(off[n], np.uint8)
    for i in range(n):
        copy_span(out, off[i], data, start[rows[i]], off[i + 1] - off[i])
    return off, out


@njit(cache=True, nogil=True)
def find_rows(column: I64, is_live: Bool, handles: I64) -> tuple[I64, int]:
    """Returns the row of each handle in a column that rises, or NONE for one that is not there or
    not live, and how many these are. Handles that rise are found fastest."""
    row, missing = np.empty(len(handles), np.int64), 0
    at, last = 0, len(column) - 1
    for i in range(len(handles)):
        h = handles[i]
        if last >= 0 and h < column[at]:
            at = 0
        if last < 0 or h < column[at]:
            row[i] = NONE
            missing += 1
            continue
        # As handles are different integers, so many rows at most lie between two of them.
        top = at + min(h - column[at], last - at)
        if i + _AHEAD < len(handles):
            guess = top + handles[i + _AHEAD] - h
            if 0 <= guess <= last:
                prefetch(column, guess)
                prefetch(is_live, guess)
        if column[top] <= h:
            at = top
        else:
            step = 1
            while top - step > at and column[top - step] > h:
                top -= step
                step *= 2
            at = max(at, top - step)
            while top - at > 1:
                middle = (at + top) // 2
                if column[middle] <= h:
                    at = middle
                else:
                    top = middle
        row[i] = at
        if column[at] != h or not is_live[at]:
            row[i] = NONE
            missing += 1
    return row, missing


@njit(cache=True, nogil=True)
def part_updates(
    kind: U8, lsn: I64, handle: I64, session: I64, owned: U8, before: int
) -> tuple[I64, I64, bool]:
    """Returns the inserts and the deletes with an LSN above `before` that are of the sessions in
    the slots that are `owned`, uint8[slots], as rows; and whether the handles of these inserts and
    the LSNs of these deletes rise."""
    slots = len(owned)
    inserts, deletes = np.empty(len(kind), np.int64), np.empty(len(kind), np.int64)
    born = gone = 0
    rise = True
    for i in range(len(kind)):
        if lsn[i] <= before or not owned[session[i] % slots]:
            continue
        if kind[i] == _INSERT:
            rise &= born == 0 or handle[inserts[born - 1]] < handle[i]
            inserts[born] = i
            born += 1
        else:
            rise &= gone == 0 or lsn[deletes[gone - 1]] < lsn[i]
            deletes[gone] = i
            gone += 1
    return inserts[:born], deletes[:gone], rise


@njit(inline="always")
def _find_home(key: np.uint64, mask: np.uint64) -> np.uint64:
    """Returns the row where a key is looked for first: neighbours for neighbours, so that they do
    not collide, from a place that differs for every len(table) keys."""
    high = (key & ~mask) * np.uint64(0x9E3779B97F4A7C15)
    return (key + (high >> np.uint64(32))) & mask


@njit(cache=True, nogil=True)
def add_new(table: U64, used: int, handle: I64, start: int, new: I64) -> tuple[int, int, int]:
    """Puts handles (>= 1) from index `start` on into the set `table` and writes those that were not
    in it to `new`. Stops when the table is half full. Returns (next index, rows of the table in
    use, how many are new).

    table: uint64[n, 2] with open addressing, n a power of two. A row has the handles of one block
    of 64, which most often are close together: the number of the block + 1, 0 in an empty row, and
    a bit for each."""
    mask = np.uint64(len(table) - 1)
    found = 0
    i = start
    while i < len(handle) and 2 * used < len(table):
        if i + _AHEAD < len(handle):
            next_key = np.uint64((handle[i + _AHEAD] >> 6) + 1)
            prefetch(table, np.int64(_find_home(next_key, mask)))
        key = np.uint64((handle[i] >> 6) + 1)
        bit = np.uint64(1) << np.uint64(handle[i] & 63)
        at = _find_home(key, mask)
        while table[at, 0] != 0 and table[at, 0] != key:
            at = (at + np.uint64(1)) & mask
        if table[at, 0] == 0:
            table[at, 0] = key
            used += 1
        if not table[at, 1] & bit:
            table[at, 1] |= bit
            new[found] = handle[i]
            found += 1
        i += 1
    return i, used, found


@njit(cache=True, nogil=True)
def copy_rows(old: U64, table: U64) -> None:
    """Puts the rows of a table of add_new into an empty larger one."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(old)):
        if old[i, 0]:
            at = _find_home(old[i, 0], mask)
            while table[at, 0]:
                at = (at + np.uint64(1)) & mask
            table[at, 0], table[at, 1] = old[i, 0], old[i, 1]


@njit(cache=True, nogil=True)
def count_slice_bytes(
    cut: I64, index: U32, id_off: I64, text_off: I64, opaque_off: I64, pair: int
) -> I64:
    """Returns the bytes of each slice cut[i]..cut[i + 1] of a column of object rows, of which
    equal ones lie side by side: `pair` for each element, and those of each object once.
    `opaque_off` may be empty."""
    out = np.zeros(len(cut) - 1, np.int64)
    for i in range(len(out)):
        size = pair * (cut[i + 1] - cut[i])
        last = -1
        for j in range(cut[i], cut[i + 1]):
            if index[j] != last:
                last = int(index[j])
                size += _count_object_bytes(last, id_off, text_off, opaque_off)
        out[i] = size
    return out


@njit(cache=True, nogil=True)
def count_fitting(
    index: U32, id_off: I64, text_off: I64, opaque_off: I64, pair: int, limit: int
) -> int:
    """Returns how many elements of a column of object rows, at least one, fit `limit` bytes.
    `opaque_off` may be empty."""
    size = 0
    for j in range(len(index)):
        size += pair
        if j == 0 or index[j] != index[j - 1]:
            size += _count_object_bytes(index[j], id_off, text_off, opaque_off)
        if size > limit and j > 0:
            return j
    return len(index)


@njit(inline="always")
def _count_object_bytes(row: int, id_off: I64, text_off: I64, opaque_off: I64) -> int:
    size: int = OBJECT_BYTES + id_off[row + 1] - id_off[row] + text_off[row + 1] - text_off[row]
    if opaque_off.shape[0] > 0:
        size += opaque_off[row + 1] - opaque_off[row]
    return size
