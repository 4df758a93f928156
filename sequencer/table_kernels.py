"""Kernels of a table of hashes: open addressing with linear probing, in parts that grow apart.

The highest bits of a hash choose the part. A slot of a part is 0, or holds the 32 bits after those
and, in its lower half, a row number plus one. Rows of equal hashes only are candidates: whoever
asks compares their bytes. A removed record leaves no tombstone, as those behind it close the gap.

A kernel takes no list of arrays. Therefore parts, int64[1 << PART_BITS, 3], has the address and the
number of the slots of each part, and how many of them are taken.
"""

# Numba gives an intrinsic its first argument.
# mypy: disable-error-code="call-arg, arg-type, attr-defined, return-value", no-warn-unreachable
from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray, njit

from ps2stream.protocol.frame import I64, U64
from ps2stream.protocol.pointers import point_to, prefetch

NONE: Final = -1
PART_BITS: Final = 8
ADDRESS, SIZE, COUNT = range(3)
FULL: Final = 84  # percent of the slots above which a part grows
_AHEAD = 32  # records
_PART_BITS = np.uint64(PART_BITS)
_PART = np.uint64(64 - PART_BITS)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@njit(inline="always")
def find_home(record: np.uint64, size: int) -> int:
    """Returns the slot at which the search for a record begins. It rises with the hash."""
    return int(np.int64((record >> _HALF) * np.uint64(size) >> _HALF))


@njit(inline="always")
def find_part(parts: I64, hash: np.uint64) -> tuple[U64, np.uint64]:
    """Returns the slots of the part of a hash, and the hash without the bits that choose it."""
    part = np.int64(hash >> _PART)
    slots = carray(point_to(parts[part, ADDRESS]), parts[part, SIZE], np.uint64)
    return slots, hash << _PART_BITS


@njit(inline="always")
def prefetch_home(parts: I64, hash: np.uint64) -> None:
    """Asks for the slot at which the search for a hash begins."""
    part = np.int64(hash >> _PART)
    home = find_home(hash << _PART_BITS, parts[part, SIZE])
    prefetch(parts[part, ADDRESS] + 8 * home)


@njit(inline="always")
def find_row(slots: U64, hash: np.uint64, at: int) -> tuple[int, int]:
    """Returns (the next slot from `at` on with this hash, the row there), NONE if there is none."""
    size = len(slots)
    while slots[at] and slots[at] >> _HALF != hash >> _HALF:
        at = at + 1 if at + 1 < size else 0
    return at, np.int64(slots[at] & _LOW) - 1


@njit(inline="always")
def _make_record(hash: np.uint64, row: int) -> np.uint64:
    return (hash >> _HALF) << _HALF | np.uint64(row + 1)


@njit(inline="always")
def _find_record(slots: U64, record: np.uint64) -> int:
    """Returns the slot of a record, or NONE."""
    size, at = len(slots), find_home(record, len(slots))
    while slots[at] and slots[at] != record:
        at = at + 1 if at + 1 < size else 0
    return at if slots[at] else NONE


@njit(cache=True, nogil=True)
def insert_rows(parts: I64, hashes: U64, rows: I64) -> int:
    """Adds records up to the first one whose part is full; returns how many. Homes are not
    all asked for at the start: after each part that grows, all would be again."""
    for i in range(min(_AHEAD, len(hashes))):
        prefetch_home(parts, hashes[i])
    for i in range(len(hashes)):
        if i + _AHEAD < len(hashes):
            prefetch_home(parts, hashes[i + _AHEAD])
        slots, hash = find_part(parts, hashes[i])
        size, part = len(slots), np.int64(hashes[i] >> _PART)
        if 100 * (parts[part, COUNT] + 1) > FULL * size:
            return i
        at = find_home(hash, size)
        while slots[at]:
            at = at + 1 if at + 1 < size else 0
        slots[at] = _make_record(hash, rows[i])
        parts[part, COUNT] += 1
    return len(hashes)


@njit(cache=True, nogil=True)
def remove_rows(parts: I64, hashes: U64, rows: I64) -> int:
    """Removes records; returns the index of the first one that was not there, or NONE."""
    for i in range(len(hashes)):
        prefetch_home(parts, hashes[i])
    for i in range(len(hashes)):
        slots, hash = find_part(parts, hashes[i])
        size, hole = len(slots), _find_record(slots, _make_record(hash, rows[i]))
        if hole == NONE:
            return i
        at = hole
        while True:
            at = at + 1 if at + 1 < size else 0
            record = slots[at]
            if not record:
                break
            from_home, from_hole = at - find_home(record, size), at - hole
            from_home += size if from_home < 0 else 0
            from_hole += size if from_hole < 0 else 0
            # Without a jump, which nobody could foresee.
            moves = from_home >= from_hole
            slots[hole] = record if moves else slots[hole]
            hole = at if moves else hole
        slots[hole] = 0
        parts[np.int64(hashes[i] >> _PART), COUNT] -= 1
    return NONE


@njit(cache=True, nogil=True)
def replace_rows(parts: I64, hashes: U64, old: I64, new: I64) -> int:
    """Gives records another row; returns the index of the first one that was not there, or
    NONE."""
    for i in range(len(hashes)):
        slots, hash = find_part(parts, hashes[i])
        at = _find_record(slots, _make_record(hash, old[i]))
        if at == NONE:
            return i
        slots[at] = _make_record(hash, new[i])
    return NONE


@njit(cache=True, nogil=True)
def move_records(old: U64, slots: U64) -> None:
    """Copies the records of a part into empty, more slots."""
    size = len(slots)
    for s in range(len(old)):
        if old[s]:
            at = find_home(old[s], size)
            while slots[at]:
                at = at + 1 if at + 1 < size else 0
            slots[at] = old[s]
