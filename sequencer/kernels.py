"""Kernels of the sequencer: a table of hashes, equal keys of a batch, and decisions.

The table has open addressing with linear probing. A slot is 0, or holds the upper half of a hash
and, in its lower half, a row number plus one. Rows of equal hashes only are candidates: whoever
asks compares their bytes. A removed record leaves no tombstone, as those behind it close the gap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.analyzer_kernels import token_hash
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.messages.updates import UpdateStatus

NONE: Final = -1
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_OK = np.uint8(UpdateStatus.OK)
_EXISTS = np.uint8(UpdateStatus.ALREADY_EXISTS)
_MISSING = np.uint8(UpdateStatus.NOT_FOUND)


class UpdateColumns(NamedTuple):
    """The rows to decide, int64[n] each. insert, named: 1 or 0; session: number; code: the first
    row with the same id; repeated: the LSN of the earlier delete that a delete repeats, else 0;
    request: the first row with the same id and request id, NONE without a request id."""

    insert: I64
    named: I64
    session: I64
    code: I64
    repeated: I64
    request: I64


class StoredColumns(NamedTuple):
    """The live queries that rows name. at int64[n]: which of them has the row's id, or NONE;
    handle and session int64[m]."""

    at: I64
    handle: I64
    session: I64


class QuerySources(NamedTuple):
    """Sources to compare: ragged, with the offsets of the regions that they begin with."""

    off: I64
    data: U8
    geom_off: I64


class VerdictColumns(NamedTuple):
    """The decisions, writable. status uint8[n]; lsn, handle int64[n]; source int64[n]: which row
    to commit, a live query or, from their number on, one of the batch; NONE: nothing."""

    status: U8
    lsn: I64
    handle: I64
    source: I64


@njit(cache=True, nogil=True)
def hash_keys(off: I64, data: U8, lut: U8, keys: U64) -> U64:
    """Returns the salted hash of each row of a ragged column; `lut` is the identity. All of a
    row counts, as nobody may make rows that share a hash."""
    out = np.empty(len(off) - 1, np.uint64)
    for i in range(len(out)):
        begin, end = off[i], off[i + 1]
        h = token_hash(keys, data, begin, end, lut)
        while end - begin > TOKEN_BYTES:
            begin += TOKEN_BYTES
            h = (h ^ (h >> _SHIFT)) * _MIX
            h ^= token_hash(keys, data, begin, end, lut)
        out[i] = h
    return out


@njit(inline="always")
def _find_home(record: np.uint64, size: int) -> int:
    """Returns the slot at which the search for a hash begins. It rises with the hash."""
    return int(np.int64((record >> _HALF) * np.uint64(size) >> _HALF))


@njit(cache=True, nogil=True)
def find_slots(slots: U64, hashes: U64, slot: I64) -> I64:
    """Moves each slot to the next one with that hash from there on, NONE if there is none; returns
    the rows there, or NONE. NONE begins at the hash's home."""
    size = len(slots)
    rows = np.empty(len(hashes), np.int64)
    for i in range(len(hashes)):
        h = hashes[i]
        at = _find_home(h, size) if slot[i] == NONE else slot[i] % size
        while slots[at] and slots[at] >> _HALF != h >> _HALF:
            at = at + 1 if at + 1 < size else 0
        slot[i] = at if slots[at] else NONE
        rows[i] = np.int64(slots[at] & _LOW) - 1
    return rows


@njit(cache=True, nogil=True)
def insert_rows(slots: U64, hashes: U64, rows: I64) -> None:
    """Adds records; there must be room for them."""
    size = len(slots)
    for i in range(len(hashes)):
        at = _find_home(hashes[i], size)
        while slots[at]:
            at = at + 1 if at + 1 < size else 0
        slots[at] = (hashes[i] >> _HALF) << _HALF | np.uint64(rows[i] + 1)


@njit(cache=True, nogil=True)
def remove_rows(slots: U64, hashes: U64, rows: I64) -> int:
    """Removes records; returns the index of the first one that was not there, or NONE."""
    size = len(slots)
    for i in range(len(hashes)):
        record = (hashes[i] >> _HALF) << _HALF | np.uint64(rows[i] + 1)
        at = _find_home(record, size)
        while slots[at] and slots[at] != record:
            at = at + 1 if at + 1 < size else 0
        if not slots[at]:
            return i
        hole = at
        while True:
            at = at + 1 if at + 1 < size else 0
            if not slots[at]:
                break
            home = _find_home(slots[at], size)
            if (at - home) % size >= (at - hole) % size:
                slots[hole] = slots[at]
                hole = at
        slots[hole] = 0
    return NONE


@njit(cache=True, nogil=True)
def replace_rows(slots: U64, hashes: U64, old: I64, new: I64) -> int:
    """Gives records another row; returns the index of the first one that was not there, or
    NONE."""
    size = len(slots)
    for i in range(len(hashes)):
        tag = (hashes[i] >> _HALF) << _HALF
        record = tag | np.uint64(old[i] + 1)
        at = _find_home(record, size)
        while slots[at] and slots[at] != record:
            at = at + 1 if at + 1 < size else 0
        if not slots[at]:
            return i
        slots[at] = tag | np.uint64(new[i] + 1)
    return NONE


@njit(cache=True, nogil=True)
def move_records(old: U64, slots: U64) -> None:
    """Copies all records into an empty, larger table."""
    size = len(slots)
    for s in range(len(old)):
        if old[s]:
            at = _find_home(old[s], size)
            while slots[at]:
                at = at + 1 if at + 1 < size else 0
            slots[at] = old[s]


@njit(inline="always")
def _is_same(data: U8, a: int, other: U8, b: int, size: int) -> bool:
    """Returns whether size bytes are the same in two places."""
    k, first, second = np.uint64(0), np.uint64(a), np.uint64(b)
    while k < np.uint64(size) and data[first + k] == other[second + k]:
        k += np.uint64(1)
    return bool(k == np.uint64(size))


@njit(cache=True, nogil=True)
def find_first_rows(off: I64, data: U8, hashes: U64, first: I64) -> int:
    """Finds the first row with the same bytes as each row; returns the number of different
    ones."""
    n = len(hashes)
    size = 16
    while size < 2 * n:
        size *= 2
    slots = np.full(size, NONE, np.int64)
    mask = np.uint64(size - 1)
    different = 0
    for i in range(n):
        at = np.int64((hashes[i] >> _HALF) & mask)
        length = off[i + 1] - off[i]
        while True:
            j = slots[at]
            if j == NONE:
                slots[at] = i
                first[i] = i
                different += 1
                break
            if (
                hashes[j] == hashes[i]
                and off[j + 1] - off[j] == length
                and _is_same(data, off[j], data, off[i], length)
            ):
                first[i] = j
                break
            at = (at + 1) & np.int64(mask)
    return different


@njit(cache=True, nogil=True)
def compare_keys(off: I64, data: U8, rows: I64, key_off: I64, key: U8, keys: I64, same: U8) -> None:
    """Sets same[i] to whether row rows[i] of one column has the bytes of row keys[i] of
    another."""
    for i in range(len(rows)):
        r, k = rows[i], keys[i]
        size = off[r + 1] - off[r]
        same[i] = size == key_off[k + 1] - key_off[k] and _is_same(
            data, off[r], key, key_off[k], size
        )


@njit(cache=True, nogil=True)
def join_keys(off: I64, data: U8, other_off: I64, other: U8, at: I64) -> tuple[I64, U8]:
    """Returns the rows `at` of two columns as one column of pairs: the size of the first one in
    four bytes, then both, so that different pairs differ."""
    out_off = np.empty(len(at) + 1, np.int64)
    out_off[0] = 0
    for i in range(len(at)):
        r = at[i]
        size = off[r + 1] - off[r] + other_off[r + 1] - other_off[r]
        out_off[i + 1] = out_off[i] + 4 + size
    out = np.empty(out_off[-1], np.uint8)
    for i in range(len(at)):
        r, to = at[i], out_off[i]
        size = off[r + 1] - off[r]
        for k in range(4):
            out[to + k] = (size >> (8 * k)) & 0xFF
        out[to + 4 : to + 4 + size] = data[off[r] : off[r + 1]]
        out[to + 4 + size : out_off[i + 1]] = other[other_off[r] : other_off[r + 1]]
    return out_off, out


@njit(inline="always")
def _find_canonical_end(sources: tuple[I64, U8, I64], row: int) -> int:
    """Returns where the canonical part of a source ends: at the first NUL of its text."""
    off, data, geom_off = QuerySources(*sources)
    at = min(off[row] + 1 + 8 * (geom_off[row + 1] - geom_off[row]), off[row + 1])
    while at < off[row + 1] and data[at]:
        at += 1
    return int(at)


@njit(inline="always")
def _have_same_source(a: tuple[I64, U8, I64], row: int, b: tuple[I64, U8, I64], other: int) -> bool:
    """Returns whether two sources are the same apart from what was typed."""
    size = _find_canonical_end(a, row) - a[0][row]
    if _find_canonical_end(b, other) - b[0][other] != size:
        return False
    return _is_same(a[1], a[0][row], b[1], b[0][other], size)


@njit(cache=True, nogil=True)
def decide_rows(
    base: int,
    update: tuple[I64, I64, I64, I64, I64, I64],
    stored: tuple[I64, I64, I64],
    stored_sources: tuple[I64, U8, I64],
    sources: tuple[I64, U8, I64],
    verdict: tuple[U8, I64, I64, I64],
) -> int:
    """Decides about the rows one after the other (decide.py); returns how many are to be
    committed. LSNs count on from `base`, those of rows that are not committed left out.

    update, stored, verdict: plain tuples of the fields of UpdateColumns, StoredColumns and
    VerdictColumns; the two sources: of QuerySources.
    """
    insert, named, session, code, repeated, request = UpdateColumns(*update)
    at, stored_handle, stored_session = StoredColumns(*stored)
    status, lsn, handle, source = VerdictColumns(*verdict)
    n, m = len(insert), len(stored_handle)
    now = at.copy()  # by the first row of an id: what is live, numbered as in `source`
    done = np.zeros(n, np.int64)  # by the first row of a request: the LSN of its delete
    count = 0
    for i in range(n):
        c = code[i]
        live = now[c]
        source[i] = NONE
        status[i] = _OK
        if insert[i]:
            if live == NONE:
                count += 1
                source[i] = m + i
                lsn[i] = handle[i] = base + count
                now[c] = m + i
                continue
            if live < m:
                same = stored_session[live] == session[i]
                same = same and _have_same_source(stored_sources, live, sources, i)
                first = stored_handle[live]
            else:
                same = session[live - m] == session[i]
                same = same and _have_same_source(sources, live - m, sources, i)
                first = handle[live - m]
            status[i] = _OK if same else _EXISTS
            lsn[i] = first if same else 0
            continue
        r = request[i]
        earlier = repeated[i]
        if not earlier and r != NONE:
            earlier = done[r]
        if earlier:
            lsn[i] = earlier
            continue
        lost = live == NONE
        if not lost and named[i]:
            owner = stored_session[live] if live < m else session[live - m]
            lost = owner != session[i]
        if lost:
            status[i] = _MISSING
            lsn[i] = 0
            continue
        count += 1
        source[i] = live
        lsn[i] = base + count
        handle[i] = stored_handle[live] if live < m else handle[live - m]
        if r != NONE:
            done[r] = lsn[i]
        now[c] = NONE
    return count
