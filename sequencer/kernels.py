"""Kernels of the sequencer: a table of hashes, equal keys of a batch, and counts.

The table has open addressing with linear probing. A slot is 0, or holds the upper half of a hash
and, in its lower half, a row number plus one. Rows of equal hashes only are candidates: whoever
asks compares their bytes. A removed record leaves no tombstone, as those behind it close the gap.
"""

# Numba gives an intrinsic its first argument.
# mypy: disable-error-code="call-arg"
from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.language.hash_kernels import token_hash
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.rows import UpdateKind
from ps2stream.sequencer.pointers import prefetch

NONE: Final = -1
NUMBERS: Final = 1 << 31  # of remembered updates
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_INSERT = np.uint8(UpdateKind.INSERT)


@njit(cache=True, nogil=True)
def hash_keys(off: I64, data: U8, lut: U8, keys: U64, out: U64) -> None:
    """Finds the salted hash of each row of a ragged column; `lut` is the identity. All of a
    row counts, as nobody may make rows that share a hash."""
    for i in range(len(out)):
        begin, end = off[i], off[i + 1]
        h = token_hash(keys, data, begin, end, lut)
        while end - begin > TOKEN_BYTES:
            begin += TOKEN_BYTES
            h = (h ^ (h >> _SHIFT)) * _MIX
            h ^= token_hash(keys, data, begin, end, lut)
        out[i] = h


@njit(inline="always")
def _find_home(record: np.uint64, size: int) -> int:
    """Returns the slot at which the search for a hash begins. It rises with the hash."""
    return int(np.int64((record >> _HALF) * np.uint64(size) >> _HALF))


@njit(cache=True, nogil=True)
def find_slots(slots: U64, hashes: U64, slot: I64, rows: I64) -> int:
    """Moves each slot to the next one with that hash from there on, NONE if there is none; finds
    the rows there, or NONE. NONE begins at the hash's home. Returns how many were found."""
    size, found = len(slots), 0
    first = slots.ctypes.data
    for i in range(len(hashes)):
        prefetch(first + 8 * _find_home(hashes[i], size))
    for i in range(len(hashes)):
        h = hashes[i]
        at = _find_home(h, size) if slot[i] == NONE else slot[i] % size
        while slots[at] and slots[at] >> _HALF != h >> _HALF:
            at = at + 1 if at + 1 < size else 0
        slot[i] = at if slots[at] else NONE
        rows[i] = np.int64(slots[at] & _LOW) - 1
        found += slots[at] != 0
    return found


@njit(cache=True, nogil=True)
def insert_rows(slots: U64, hashes: U64, rows: I64) -> None:
    """Adds records; there must be room for them."""
    size, first = len(slots), slots.ctypes.data
    for i in range(len(hashes)):
        prefetch(first + 8 * _find_home(hashes[i], size))
    for i in range(len(hashes)):
        at = _find_home(hashes[i], size)
        while slots[at]:
            at = at + 1 if at + 1 < size else 0
        slots[at] = (hashes[i] >> _HALF) << _HALF | np.uint64(rows[i] + 1)


@njit(cache=True, nogil=True)
def remove_rows(slots: U64, hashes: U64, rows: I64) -> int:
    """Removes records; returns the index of the first one that was not there, or NONE."""
    size, first = len(slots), slots.ctypes.data
    for i in range(len(hashes)):
        prefetch(first + 8 * _find_home(hashes[i], size))
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
            from_home = at - _find_home(slots[at], size)
            from_hole = at - hole
            from_home += size if from_home < 0 else 0
            from_hole += size if from_hole < 0 else 0
            if from_home >= from_hole:
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
def is_same(data: U8, a: int, other: U8, b: int, size: int) -> bool:
    """Returns whether size bytes are the same in two places."""
    k, first, second = np.uint64(0), np.uint64(a), np.uint64(b)
    while k < np.uint64(size) and data[first + k] == other[second + k]:
        k += np.uint64(1)
    return bool(k == np.uint64(size))


@njit(inline="always")
def find_first(slots: I64, hashes: U64, off: I64, data: U8, i: int) -> int:
    """Returns the first row with the bytes of row i, which is added if it is that; `slots` holds
    the earlier ones."""
    mask = np.int64(len(slots) - 1)
    at = np.int64(hashes[i] >> _HALF) & mask
    length = off[i + 1] - off[i]
    while True:
        j = slots[at]
        if j == NONE:
            slots[at] = i
            return i
        if (
            hashes[j] == hashes[i]
            and off[j + 1] - off[j] == length
            and is_same(data, off[j], data, off[i], length)
        ):
            return int(j)
        at = (at + 1) & mask


@njit(inline="always")
def make_slots(n: int) -> I64:
    """Returns empty slots for find_first."""
    size = 16
    while size < 2 * n:
        size *= 2
    return np.full(size, NONE, np.int64)


@njit(cache=True, nogil=True)
def find_first_rows(off: I64, data: U8, hashes: U64, first: I64) -> int:
    """Finds the first row with the same bytes as each row; returns the number of different
    ones."""
    slots, different = make_slots(len(hashes)), 0
    for i in range(len(hashes)):
        first[i] = find_first(slots, hashes, off, data, i)
        different += first[i] == i
    return different


@njit(cache=True, nogil=True)
def find_repeats(
    at: I64,
    off: I64,
    keys: U8,
    hashes: U64,
    known: tuple[U64, I64, U8, I64, int],
    first: I64,
    lsn: I64,
) -> None:
    """Finds for each key, which is of the row at[i], first[at[i]]: the first row with that key;
    and lsn[at[i]]: its LSN among the known keys, or 0. known: slots, offsets, bytes, LSNs, and the
    number that the first of them has in the slots; numbers count on from NUMBERS - 1 with 0."""
    slots, known_off, known_keys, known_lsn, number = known
    size, address = len(slots), slots.ctypes.data
    for i in range(len(at)):
        prefetch(address + 8 * _find_home(hashes[i], size))
    here = make_slots(len(at))
    for i in range(len(at)):
        first[at[i]] = at[find_first(here, hashes, off, keys, i)]
        slot, length = _find_home(hashes[i], size), off[i + 1] - off[i]
        lsn[at[i]] = 0
        while slots[slot]:
            row = (np.int64(slots[slot] & _LOW) - 1 - number) % NUMBERS
            if (
                slots[slot] >> _HALF == hashes[i] >> _HALF
                and known_off[row + 1] - known_off[row] == length
                and is_same(known_keys, known_off[row], keys, off[i], length)
            ):
                lsn[at[i]] = known_lsn[row]
                break
            slot = slot + 1 if slot + 1 < size else 0


@njit(cache=True, nogil=True)
def join_keys(
    kind: U8, off: I64, ids: U8, request_off: I64, requests: U8, at: I64, out_off: I64, out: U8
) -> int:
    """Writes the pairs of id and request id of all but plain inserts that have one as a column: the
    size of the id in four bytes, then both, so that different pairs differ. Returns how many there
    are; at: their rows."""
    count, to = 0, 0
    out_off[0] = 0
    for i in range(len(kind)):
        if kind[i] == _INSERT or request_off[i + 1] == request_off[i]:
            continue
        size = off[i + 1] - off[i]
        for k in range(4):
            out[to + k] = (size >> (8 * k)) & 0xFF
        to = _put_bytes(out, to + 4, ids, off[i], off[i + 1])
        to = _put_bytes(out, to, requests, request_off[i], request_off[i + 1])
        at[count] = i
        count += 1
        out_off[count] = to
    return count


@njit(inline="always")
def _put_bytes(out: U8, at: int, data: U8, begin: int, end: int) -> int:
    """Copies bytes; returns where they end."""
    to, first = np.uint64(at), np.uint64(begin)
    for k in range(np.uint64(end - begin)):
        out[to + k] = data[first + k]
    return at + end - begin


@njit(cache=True, nogil=True)
def take_strings(off: I64, data: U8, rows: I64, out_off: I64, out: U8) -> int:
    """Copies rows of a column of strings; returns the bytes that they have."""
    to = out_off[0] = 0
    for i in range(len(rows)):
        to = _put_bytes(out, to, data, off[rows[i]], off[rows[i] + 1])
        out_off[i + 1] = to
    return to


@njit(cache=True, nogil=True)
def has_one_string(off: I64, data: U8) -> bool:
    """Returns whether all rows of a column of strings, of which there is one, are the same."""
    size = off[1] - off[0]
    for i in range(1, len(off) - 1):
        if off[i + 1] - off[i] != size or not is_same(data, off[0], data, off[i], size):
            return False
    return True


@njit(cache=True, nogil=True)
def part_updates(
    kind: U8, source: I64, handle: I64, hashes: U64, places: I64
) -> tuple[I64, I64, U64, I64, U64, I64, int]:
    """Returns, of the inserts among committed rows: sources, handles and hashes; and of the
    deletes: their rows, hashes and places, and how many of these are NONE."""
    n, born, gone, unknown = len(kind), 0, 0, 0
    to_source, to_handle, to_row, to_place = np.empty((4, n), np.int64)
    to_hash, gone_hash = np.empty((2, n), np.uint64)
    for i in range(n):
        if kind[i] == _INSERT:
            to_source[born], to_handle[born], to_hash[born] = source[i], handle[i], hashes[i]
            born += 1
        else:
            to_row[gone], gone_hash[gone], to_place[gone] = i, hashes[i], places[i]
            gone += 1
            unknown += places[i] == NONE
    return (
        to_source[:born], to_handle[:born], to_hash[:born],
        to_row[:gone], gone_hash[:gone], to_place[:gone], unknown,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def append_keys(
    slots: U64, hashes: U64, first: int, number: int,
    columns: tuple[I64, I64, U8], new: tuple[I64, I64, U8],
) -> None:  # fmt: skip
    """Appends keys to the remembered ones as rows from `first` on, for which there is room
    everywhere. columns, new: the LSNs, offsets and bytes of all and of the new ones; `number` is
    that of row 0 in the slots, as in find_repeats."""
    all_lsn, all_off, all_keys = columns
    lsn, off, keys = new
    begin, size, address = all_off[first], len(slots), slots.ctypes.data
    for i in range(len(hashes)):
        prefetch(address + 8 * _find_home(hashes[i], size))
    _put_bytes(all_keys, begin, keys, 0, off[len(lsn)])
    for i in range(len(lsn)):
        all_lsn[first + i] = lsn[i]
        all_off[first + i + 1] = begin + off[i + 1]
        at = _find_home(hashes[i], size)
        while slots[at]:
            at = at + 1 if at + 1 < size else 0
        row = (first + i + number) % NUMBERS
        slots[at] = (hashes[i] >> _HALF) << _HALF | np.uint64(row + 1)


@njit(cache=True, nogil=True)
def count_updates(kind: U8, session: I64, tenant_of: I64, live: I64) -> int:
    """Adds the inserts of each tenant to its live queries and subtracts its deletes; returns the
    number of inserts."""
    inserts = 0
    for i in range(len(kind)):
        if session[i] < 0 or session[i] >= len(tenant_of):
            raise IndexError("a session has no tenant")
        tenant = tenant_of[session[i]]
        live[tenant] += 1 if kind[i] == _INSERT else -1
        inserts += kind[i] == _INSERT
    return inserts
