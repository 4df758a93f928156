"""Kernels of H2's table: how many live queries are posted under each unit (tag cell, term).

A cuckoo table of buckets of five units. A bucket is a line of the cache: the five terms, the five
tag cells, and in its last word the five counts. A unit is in its home bucket or, if that is full,
in its other one; a home says how many of its units are elsewhere, so that most searches end there.
Both keys are kept whole: if two units were confused, their owners could be, and matches be lost.
The owner of a unit is not kept, for H1 knows it (unit_kernels.find_owner).

A count from MANY on is in another table, which few units need.

The hash of a unit chooses one of the parts, which grow apart: no call moves all units, and none
needs the memory of all units twice. All lie in one piece of memory, which large pages can back:
row after row, each with STRIP buckets of every part. A part begins a row one place later than the
row before, for else its buckets would compete for a few sets of the cache. parts,
int64[1 << PART_BITS, 3], has the address of the memory, which is the same for all parts, the number
of the buckets of each part, and that of its units.
"""

# Numba gives an intrinsic its first argument.
# mypy: disable-error-code="call-arg, arg-type, assignment, no-any-return, return-value"
# mypy: no-warn-unreachable
from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U32, U64
from ps2stream.protocol.pointers import count_low_zeros, load_half, load_word, prefetch, store_word
from ps2stream.routing.unit_kernels import LEVEL_SHIFT, find, mix, pack

NONE: Final = -1
ALL: Final = 16  # index of `used`
PART_BITS: Final = 6
ADDRESS, BUCKETS, UNITS = range(3)
SLOTS: Final = 5
BUCKET_BYTES: Final = 64
STRIP: Final = 16  # buckets of a part in a row
ROW_BYTES: Final = STRIP * BUCKET_BYTES << PART_BITS
_STRIP_BITS = 4
MANY: Final = 31
FULL: Final = 93  # percent of the slots above which a part grows
AHEAD: Final = 128  # buckets that are asked for together
GROW, MANY_UNITS = range(2)  # indices of `state`
GROW_MANY: Final = 1 << PART_BITS
_LONGEST = 500  # units that are moved for one
_CELLS, _LAST = 40, 56  # bytes of a bucket before the tag cells, and before the last word
_PART = np.uint64(64 - PART_BITS)
_AWAY = np.uint64(57)
_COUNT, _HALF = np.uint64(5), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MANY = np.uint64(MANY)
_SLOTS = np.uint64(SLOTS)
_ONE = np.uint64(1)
_OTHER = np.uint64(0x9E3779B97F4A7C15)


@njit(inline="always")
def _find_bucket(parts: I64, part: int, bucket: int) -> int:
    """Returns the address of a bucket of a part."""
    row = bucket >> _STRIP_BITS
    place = (part + row) & ((1 << PART_BITS) - 1)
    strip = (row << PART_BITS | place) << _STRIP_BITS
    return parts[part, ADDRESS] + BUCKET_BYTES * (strip | bucket & (STRIP - 1))


@njit(inline="always")
def find_home(parts: I64, h: np.uint64) -> int:
    """Returns the address of the home bucket of a unit with this hash."""
    part = np.int64(h >> _PART)
    home = (h & _LOW) * np.uint64(parts[part, BUCKETS]) >> _HALF
    return _find_bucket(parts, part, np.int64(home))


@njit(inline="always")
def find_other(parts: I64, h: np.uint64) -> int:
    """Returns the address of the bucket in which a unit with this hash is if not at home."""
    part = np.int64(h >> _PART)
    other = ((h * _OTHER) >> _HALF) * np.uint64(parts[part, BUCKETS]) >> _HALF
    return _find_bucket(parts, part, np.int64(other))


@njit(inline="always")
def find_in_bucket(at: int, place: np.uint64, term: np.uint64) -> int:
    """Returns the slot of a unit in the bucket at this address, or NONE. A slot is the address of
    its bucket, a multiple of eight, plus its number."""
    same = np.uint64(load_word(at) == term)
    same |= np.uint64(load_word(at + 8) == term) << np.uint64(1)
    same |= np.uint64(load_word(at + 16) == term) << np.uint64(2)
    same |= np.uint64(load_word(at + 24) == term) << np.uint64(3)
    same |= np.uint64(load_word(at + 32) == term) << np.uint64(4)
    while same:
        i = np.int64(count_low_zeros(same))
        if np.uint64(load_half(at + _CELLS + 4 * i)) == place and _read_short(at, i):
            return at | i
        same &= same - _ONE
    return NONE


@njit(inline="always")
def _read_short(at: int, i: int) -> np.uint64:
    """Returns the count in a slot: MANY for that or more, 0 for an empty slot."""
    return load_word(at + _LAST) >> (_HALF + _COUNT * np.uint64(i)) & _MANY


@njit(inline="always")
def _write_short(at: int, i: int, count: np.uint64) -> None:
    shift = _HALF + _COUNT * np.uint64(i)
    store_word(at + _LAST, load_word(at + _LAST) & ~(_MANY << shift) | count << shift)


@njit(inline="always")
def _write_slot(at: int, i: int, place: np.uint64, term: np.uint64, count: np.uint64) -> None:
    store_word(at + 8 * i, term)
    word, shift = at + _CELLS + 8 * (i >> 1), _HALF * np.uint64(i & 1)
    store_word(word, load_word(word) & ~(_LOW << shift) | place << shift)
    _write_short(at, i, count)


@njit(inline="always")
def _add_away(home: int, step: np.uint64) -> None:
    """Adds to the number of units that are not in this home. It has room for 127, and a bucket is
    the home of five on average."""
    store_word(home + _LAST, load_word(home + _LAST) + (step << _AWAY))


@njit(inline="always")
def _find_empty(at: int) -> int:
    """Returns the number of an empty slot of a bucket, or NONE."""
    counts = load_word(at + _LAST) >> _HALF
    for i in range(SLOTS):
        if not counts & _MANY:
            return i
        counts >>= _COUNT
    return NONE


@njit(inline="always")
def has_away(home: int) -> bool:
    """Returns whether some unit of this home is in its other bucket."""
    return load_word(home + _LAST) >> _AWAY != 0


@njit(inline="always")
def _find_unit(parts: I64, h: np.uint64, place: np.uint64, term: np.uint64) -> int:
    """Returns the slot of a unit with this hash, or NONE."""
    home = find_home(parts, h)
    slot = find_in_bucket(home, place, term)
    if slot == NONE and has_away(home):
        slot = find_in_bucket(find_other(parts, h), place, term)
    return slot


@njit(inline="always")
def has_unit(parts: I64, place: np.uint64, term: np.uint64) -> bool:
    """Returns whether a live query is posted under a unit."""
    return _find_unit(parts, mix(place, term), place, term) != NONE


@njit(inline="always")
def count_unit(units: tuple[I64, U64, U32], place: np.uint64, term: np.uint64) -> int:
    """Returns how many live queries are posted under a unit. units: a plain tuple of the fields of
    H2Columns."""
    parts, many, many_count = units
    slot = _find_unit(parts, mix(place, term), place, term)
    if slot == NONE:
        return 0
    count = _read_short(slot & ~7, slot & 7)
    return np.int64(count if count < _MANY else many_count[find(many, place, term)])


@njit(inline="always")
def _prefetch_buckets(parts: I64, place: np.uint64, term: np.uint64) -> None:
    """Asks for both buckets of a unit."""
    h = mix(place, term)
    prefetch(find_home(parts, h))
    prefetch(find_other(parts, h))


@njit(inline="always")
def _find_alternative(parts: I64, at: int, i: int) -> int:
    """Returns the address of the bucket in which the unit in slot i of this bucket is not."""
    h = mix(np.uint64(load_half(at + _CELLS + 4 * i)), load_word(at + 8 * i))
    home = find_home(parts, h)
    return find_other(parts, h) if at == home else home


@njit(inline="always")
def _move_unit(parts: I64, at: int, i: int, to: int, k: int) -> None:
    """Copies a unit to the empty slot k of its other bucket."""
    place, term = np.uint64(load_half(at + _CELLS + 4 * i)), load_word(at + 8 * i)
    _write_slot(to, k, place, term, _read_short(at, i))
    home = find_home(parts, mix(place, term))
    if home == at:
        _add_away(home, _ONE)
    elif home == to:
        _add_away(home, ~np.uint64(0))


@njit(cache=True, nogil=True)
def _place_unit(
    parts: I64, place: np.uint64, term: np.uint64, count: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Puts a unit that is not there into its part, and moves others to their other buckets if there
    is no room. Returns the unit for which none was found at last; its count is 0 if all have
    found a place."""
    nothing, at = np.uint64(0), 0
    for step in range(_LONGEST):
        h = mix(place, term)
        home, other = find_home(parts, h), find_other(parts, h)
        i = _find_empty(home)
        if i != NONE:
            _write_slot(home, i, place, term, count)
            return nothing, nothing, nothing
        if home != other:
            i = _find_empty(other)
            if i != NONE:
                _write_slot(other, i, place, term, count)
                _add_away(home, _ONE)
                return nothing, nothing, nothing
        # It takes the place of another, in the bucket that it has not just been moved from: of one
        # that has room elsewhere, or else of any.
        at = home if at == other else other
        for i in range(SLOTS):
            prefetch(_find_alternative(parts, at, i))
        for i in range(SLOTS):
            to = _find_alternative(parts, at, i)
            k = _find_empty(to)
            if k != NONE and to != at:
                _move_unit(parts, at, i, to, k)
                _write_slot(at, i, place, term, count)
                if at != home:
                    _add_away(home, _ONE)
                return nothing, nothing, nothing
        i = np.int64(((h >> np.uint64(40)) + np.uint64(step)) % _SLOTS)
        moved_place, moved_term = np.uint64(load_half(at + _CELLS + 4 * i)), load_word(at + 8 * i)
        moved_count = _read_short(at, i)
        _write_slot(at, i, place, term, count)
        if at != home:
            _add_away(home, _ONE)
        place, term, count = moved_place, moved_term, moved_count
        home = find_home(parts, mix(place, term))
        if at != home:
            _add_away(home, ~nothing)
    return place, term, count


@njit(cache=True, nogil=True)
def count_up(
    units: tuple[I64, U64, U32],
    used: I64,
    tags: tuple[U32, U64, U32],
    start: int,
    state: I64,
    left: U64,
) -> int:
    """Counts tags from `start` on; tags: their cells, their terms, and how often each counts, or
    nothing if each counts once. Returns the index reached. Unless state[GROW] is NONE then, it is
    the part that has to grow before the rest, or GROW_MANY for the table of high counts, which has
    state[MANY_UNITS] records. left uint64[3]: the cell, term and count of a unit that has to be
    placed in the part that grows; a count of 0 for none. units: see `count_unit`; used
    int64[ALL + 1]: the units on each level, and all."""
    parts, many, many_count = units
    tag_cell, tag_term, times = tags
    state[GROW] = NONE
    for i in range(start, len(tag_cell)):
        if (i - start) % AHEAD == 0:
            for j in range(i, min(i + AHEAD, len(tag_cell))):
                _prefetch_buckets(parts, np.uint64(tag_cell[j]), tag_term[j])
        place, term = np.uint64(tag_cell[i]), tag_term[i]
        n = np.uint64(times[i]) if len(times) else _ONE
        h = mix(place, term)
        slot = _find_unit(parts, h, place, term)
        short = np.uint64(0) if slot == NONE else _read_short(slot & ~7, slot & 7)
        if short == _MANY:
            many_count[find(many, place, term)] += np.uint32(n)
            continue
        part = np.int64(h >> _PART)
        buckets = parts[part, BUCKETS]
        if slot == NONE and 100 * (parts[part, UNITS] + 1) > FULL * SLOTS * buckets:
            state[GROW] = part
            return i
        short += n
        if short >= _MANY:
            m = find(many, place, term)
            if m < 0:
                if 8 * (state[MANY_UNITS] + 1) > 5 * len(many):
                    state[GROW] = GROW_MANY
                    return i
                state[MANY_UNITS] += 1
                m = -1 - m
                many[m, 0], many[m, 1] = term, pack(place, np.uint64(0))
            many_count[m] = np.uint32(short)
            short = _MANY
        if slot != NONE:
            _write_short(slot & ~7, slot & 7, short)
            continue
        parts[part, UNITS] += 1
        used[ALL] += 1
        used[tag_cell[i] >> LEVEL_SHIFT] += 1
        left[0], left[1], left[2] = _place_unit(parts, place, term, short)
        if left[2]:
            state[GROW] = part
            return i + 1
    return len(tag_cell)


@njit(cache=True, nogil=True)
def count_down(units: tuple[I64, U64, U32], used: I64, tag_cell: U32, tag_term: U64) -> int:
    """Takes tags back. Returns the index of the first that was not there, or NONE."""
    parts, many, many_count = units
    for i in range(len(tag_cell)):
        if i % AHEAD == 0:
            for j in range(i, min(i + AHEAD, len(tag_cell))):
                _prefetch_buckets(parts, np.uint64(tag_cell[j]), tag_term[j])
        place, term = np.uint64(tag_cell[i]), tag_term[i]
        h = mix(place, term)
        slot = _find_unit(parts, h, place, term)
        if slot == NONE:
            return i
        at, k = slot & ~7, slot & 7
        count = _read_short(at, k)
        if count == _MANY:
            m = find(many, place, term)
            many_count[m] -= np.uint32(1)
            if many_count[m] >= np.uint32(MANY):
                continue
            many_count[m] = np.uint32(0)
        _write_short(at, k, count - _ONE)
        if count > _ONE:
            continue
        home = find_home(parts, h)
        if at != home:
            _add_away(home, ~np.uint64(0))
        parts[np.int64(h >> _PART), UNITS] -= 1
        used[ALL] -= 1
        used[tag_cell[i] >> LEVEL_SHIFT] -= 1
    return NONE


@njit(cache=True, nogil=True)
def place_units(parts: I64, part: int, cell: U32, term: U64, short: U8) -> bool:
    """Empties the buckets of a part and puts units there, of which count MANY stands for that or
    more. Returns whether all have found a place."""
    for bucket in range(parts[part, BUCKETS]):
        at = _find_bucket(parts, part, bucket)
        for k in range(0, BUCKET_BYTES, 8):
            store_word(at + k, np.uint64(0))
    for i in range(len(cell)):
        if _place_unit(parts, np.uint64(cell[i]), term[i], np.uint64(short[i]))[2]:
            return False
    return True


@njit(cache=True, nogil=True)
def move_many(old: U64, old_count: U32, many: U64, many_count: U32) -> int:
    """Puts the records of high counts into an empty, larger table. Returns how many there are."""
    moved = 0
    for s in range(len(old)):
        if old_count[s]:
            m = -1 - find(many, old[s, 1] >> _HALF, old[s, 0])
            many[m, 0], many[m, 1] = old[s, 0], old[s, 1]
            many_count[m] = old_count[s]
            moved += 1
    return moved


@njit(cache=True, nogil=True)
def list_units(parts: I64, part: int, cell: U32, term: U64, short: U8) -> int:
    """Lists the units of a part, for which the columns have room, in the order of their buckets; a
    count of MANY stands for that or more. Returns how many there are."""
    n = 0
    for bucket in range(parts[part, BUCKETS]):
        at = _find_bucket(parts, part, bucket)
        for i in range(SLOTS):
            count = _read_short(at, i)
            if count:
                cell[n], term[n] = load_half(at + _CELLS + 4 * i), load_word(at + 8 * i)
                short[n] = np.uint8(count)
                n += 1
    return n


@njit(cache=True, nogil=True)
def read_counts(
    many: U64, many_count: U32, cell: U32, term: U64, short: U8, count: U32
) -> None:  # fmt: skip
    """Sets count[i] to the live queries of units that `list_units` has listed."""
    for i in range(len(short)):
        count[i] = np.uint32(short[i])
        if short[i] == MANY:
            count[i] = many_count[find(many, np.uint64(cell[i]), term[i])]
