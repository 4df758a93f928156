"""The table of H2: how many live queries are posted under each unit (h2_kernels.py)."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.h2_kernels import (
    ADDRESS,
    ALL,
    BUCKETS,
    FULL,
    GROW,
    GROW_MANY,
    MANY_UNITS,
    NONE,
    PART_BITS,
    ROW_BYTES,
    SLOTS,
    STRIP,
    UNITS,
    count_down,
    count_up,
    list_units,
    move_many,
    place_units,
    read_counts,
)
from ps2stream.protocol.frame import I64, U8, U32, U64
from ps2stream.routing.unit_kernels import empty_table

_GROWTH = 1.13
_FILLING_GROWTH = 2.0
_GUESS = 8
"""So many times the units that are there is the most that is expected at first: it is not known yet
how fast they grow with queries, of which the later have fewer units that are new."""
_SPARE = 20  # one bucket in so many may be needless when filling ends
_FIT = 1.06 / (SLOTS * FULL / 100)  # buckets a unit of a part that is made to fit
_SPARSE = 2  # units a bucket; a part with fewer is made smaller
_LARGE = 32 << 20  # bytes reserved from which pages are large
_COPIED = 32 << 20  # bytes at a time
_MAP_NORESERVE = 0x4000  # Python has no name for it
_RESERVE = 4  # times what is needed
_ONCE = np.zeros(0, np.uint32)


class H2Columns(NamedTuple):
    """The arrays of H2: parts of h2_kernels.py, and the units with a count from MANY on: a table of
    unit_kernels.py, uint64[2^k, 2], and their counts, uint32[2^k]; 0 where there are fewer by
    now."""

    parts: I64
    many: U64
    many_count: U32


class CountedUnits(NamedTuple):
    """Units, each once: cell uint32[n], the tag cell; term uint64[n]; queries uint32[n], the
    live ones."""

    cell: U32
    term: U64
    queries: U32


class H2:
    """How many live queries are posted under each unit. Iteration gives all units in some order,
    those of one part at a time. If `fills`, many come next, until `trim`: up to then units take
    twice the memory and half the time."""

    def __init__(self, fills: bool = False) -> None:
        self._fills = fills
        self._growth = _FILLING_GROWTH if fills else _GROWTH
        self._expected = 0  # buckets that each part will need
        self._first = 0.0, 0  # a share of all queries, and the units of these
        self._share = 0.0  # that the units up to the last `add` are of
        parts = np.zeros((1 << PART_BITS, 3), np.int64)
        parts[:, BUCKETS] = 1
        self._memory = _reserve(ROW_BYTES)
        parts[:, ADDRESS] = _find_address(self._memory)
        self.arrays = (*H2Columns(parts, empty_table(1), np.zeros(1 << 1, np.uint32)),)
        """The arrays, as kernels take them."""
        self.used: I64 = np.zeros(ALL + 1, np.int64)
        """The units on each level of the grid, and of all."""
        self._state = np.zeros(2, np.int64)
        self._left = np.zeros(3, np.uint64)

    def __len__(self) -> int:
        return int(self.used[ALL])

    def __iter__(self) -> Iterator[CountedUnits]:
        parts, many, many_count = self.arrays
        for part in range(len(parts)):
            cell, term, short = self._list_units(part)
            queries = np.empty(len(short), np.uint32)
            read_counts(many, many_count, cell, term, short, queries)
            yield CountedUnits(cell, term, queries)

    @property
    def levels(self) -> list[int]:
        """The levels of the grid on which there are units."""
        return np.flatnonzero(self.used[:ALL]).tolist()

    @property
    def nbytes(self) -> int:
        """The bytes of all tables, without memory that no part has reached."""
        strips = int((-(-self.arrays[0][:, BUCKETS] // STRIP)).sum())
        return (strips * ROW_BYTES >> PART_BITS) + sum(array.nbytes for array in self.arrays)

    @property
    def _rows(self) -> int:
        """The rows in which some part has buckets."""
        return -(-int(self.arrays[0][:, BUCKETS].max()) // STRIP)

    def add(self, cell: U32, term: U64, times: U32 = _ONCE) -> None:
        """Counts a query under each of these units, uint32[n] and uint64[n], or as many as `times`
        says, uint32[n]."""
        tags, done = (cell, term, times), 0
        while True:
            done = count_up(self.arrays, self.used, tags, done, self._state, self._left)
            grown = int(self._state[GROW])
            if grown == NONE:
                return
            if grown == GROW_MANY:
                self._grow_many()
            else:
                size = int(self.arrays[0][grown, BUCKETS])
                self._resize(grown, max(self._expected, int(self._growth * size), size + 1))

    def remove(self, cell: U32, term: U64) -> int | None:
        """Takes a query back from each of these units. Returns the index of the first one that has
        none, if there is one; those before it are done then."""
        failed = int(count_down(self.arrays, self.used, cell, term))
        parts, *_ = self.arrays
        sparse = parts[:, UNITS] < _SPARSE * parts[:, BUCKETS]
        self._shrink(np.flatnonzero(sparse & (parts[:, BUCKETS] > STRIP)))
        return None if failed == NONE else failed

    def expect(self, share: float) -> None:
        """Notes that the units up to the next `add` are those of this share of all queries that
        come, above 0 to 1, so that a part that grows does so seldom: twice, the first time while it
        is small."""
        now, self._share, units = self._share, share, len(self)
        if not now or not units:
            return
        if not self._first[0]:
            self._first = now, units
        first, few = self._first
        goal, exponent = min(1.0, _GUESS * now), 1.0
        if now >= _GUESS / 2 * first:
            goal, exponent = 1.0, max(math.log(units / few) / math.log(now / first), 0.0)
        wanted = units * (goal / now) ** exponent
        self._growth = _GROWTH
        self._expected = int(_FIT * wanted / len(self.arrays[0])) + 1

    def trim(self) -> None:
        """Ends filling: gives memory back that the units do not need, if that is much."""
        if self._fills:
            self._fills, self._growth, self._expected = False, _GROWTH, 0
            parts, *_ = self.arrays
            wasted = parts[:, BUCKETS] - _FIT * parts[:, UNITS]
            self._shrink(np.flatnonzero(wasted > parts[:, BUCKETS] / _SPARE))

    def _shrink(self, some: I64) -> None:
        """Makes these parts fit their units, if they become smaller by that."""
        parts, before = self.arrays[0], self._rows
        for part in some.tolist():
            size = int(_FIT * parts[part, UNITS]) + 1
            if size < parts[part, BUCKETS]:
                self._resize(part, size)
        if self._rows < before:
            self._memory.madvise(mmap.MADV_DONTNEED, self._rows * ROW_BYTES)

    def merge_levels(self, bit: np.uint32) -> H2:
        """Returns the counts of units with this bit of the tag cell cleared; those that are then
        the same are added."""
        merged = H2(fills=True)
        for units in self:
            merged.add(units.cell & ~bit, units.term, units.queries)
        merged.trim()
        return merged

    def _grow_many(self) -> None:
        parts, many, count = self.arrays
        table = empty_table(len(many).bit_length())
        fresh = np.zeros(len(table), np.uint32)
        self._state[MANY_UNITS] = move_many(many, count, table, fresh)
        self.arrays = parts, table, fresh

    def _resize(self, part: int, size: int) -> None:
        """Gives a part another number of buckets, or more if it turns out that they are too few,
        and places the unit that is left over."""
        parts, *_ = self.arrays
        cell, term, short = self._list_units(part)
        if self._left[2]:
            cell = np.append(cell, np.uint32(self._left[0]))
            term, short = np.append(term, self._left[1]), np.append(short, np.uint8(self._left[2]))
            self._left[:] = 0
        while True:
            self._make_room(size)
            parts[part, BUCKETS] = size
            if place_units(parts, part, cell, term, short):
                return
            size += max(size // 64, 1)

    def _list_units(self, part: int) -> tuple[U32, U64, U8]:
        """Returns the cells, terms and short counts of the units of a part."""
        n = int(self.arrays[0][part, UNITS])
        cell, term, short = np.empty(n, np.uint32), np.empty(n, np.uint64), np.empty(n, np.uint8)
        found = list_units(self.arrays[0], part, cell, term, short)
        return cell[:found], term[:found], short[:found]

    def _make_room(self, buckets: int) -> None:
        """Makes the memory large enough for parts of so many buckets."""
        size = -(-buckets // STRIP) * ROW_BYTES
        if size > len(self._memory):
            self._move(_reserve(_RESERVE * size))

    def _move(self, memory: mmap.mmap) -> None:
        """Takes other memory, which is empty. What has been copied is freed at once."""
        used = self._rows * ROW_BYTES
        for at in range(0, used, _COPIED):
            size = min(_COPIED, used - at)
            memory[at : at + size] = memoryview(self._memory)[at : at + size]
            self._memory.madvise(mmap.MADV_DONTNEED, at, size)
        self._memory = memory
        self.arrays[0][:, ADDRESS] = _find_address(memory)


def _reserve(size: int) -> mmap.mmap:
    """Returns empty memory, of which a page that is never touched takes none. Large pages spare
    most probes a walk through the page table."""
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    if size >= _LARGE:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _find_address(memory: mmap.mmap) -> int:
    address: int = np.frombuffer(memory, np.uint8, 1).__array_interface__["data"][0]
    return address
