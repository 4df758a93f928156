"""The kernels of H2's table one by one, against loops."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from ps2stream.dispatcher import h2_kernels as kernels
from ps2stream.dispatcher.h2_kernels import (
    ADDRESS,
    ALL,
    BUCKETS,
    GROW,
    GROW_MANY,
    MANY,
    NONE,
    PART_BITS,
    ROW_BYTES,
    SLOTS,
    UNITS,
)  # fmt: skip
from ps2stream.protocol.frame import U8, U32, U64
from ps2stream.routing.unit_kernels import empty_table

ONCE = np.zeros(0, np.uint32)


class Table:
    """The arrays of a table whose parts have so many buckets, which nobody makes grow."""

    def __init__(self, buckets: int, many_bits: int = 4) -> None:
        rows = -(-buckets // kernels.STRIP)
        self.memory = mmap.mmap(-1, rows * ROW_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.parts = np.zeros((1 << PART_BITS, 3), np.int64)
        self.parts[:, BUCKETS] = buckets
        address = np.frombuffer(self.memory, np.uint8, 1).__array_interface__["data"][0]
        self.parts[:, ADDRESS] = address
        self.units = self.parts, empty_table(many_bits), np.zeros(1 << many_bits, np.uint32)
        self.used = np.zeros(ALL + 1, np.int64)
        self.state, self.left = np.zeros(2, np.int64), np.zeros(3, np.uint64)

    def add(self, cell: U32, term: U64, times: U32 = ONCE, start: int = 0) -> int:
        tags = cell, term, times
        return int(kernels.count_up(self.units, self.used, tags, start, self.state, self.left))

    def listed(self, part: int) -> tuple[U32, U64, U8]:
        n = int(self.parts[part, UNITS])
        columns = np.empty(n, np.uint32), np.empty(n, np.uint64), np.empty(n, np.uint8)
        assert kernels.list_units(self.parts, part, *columns) == n
        return columns

    def all(self) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for part in range(len(self.parts)):
            cell, term, _ = self.listed(part)
            found |= set(zip(cell.tolist(), term.tolist(), strict=True))
        return found


def draw(seed: int, n: int) -> tuple[U32, U64]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 99, n).astype(np.uint32), rng.integers(0, 2**64, n, np.uint64)


@pytest.mark.parametrize("seed", range(4))
def test_a_part_is_filled_to_its_bound_and_then_named(seed: int) -> None:
    table = Table(40)
    cell, term = draw(seed, 64 * SLOTS * 40)
    done = table.add(cell, term)
    assert 0 < done < len(cell)
    held = int(table.parts[table.state[GROW], UNITS])
    assert not table.left[2]
    assert 100 * (held + 1) > kernels.FULL * SLOTS * 40 >= 100 * held
    assert table.all() == set(zip(cell[:done].tolist(), term[:done].tolist(), strict=True))
    assert table.used[ALL] == table.used[0] == table.parts[:, UNITS].sum() == done
    assert kernels.count_down(table.units, table.used, cell[:done], term[:done]) == NONE
    assert table.all() == set()
    assert not table.used.any()
    last = np.frombuffer(table.memory, np.uint64).reshape(-1, 8)[:, 7]
    assert not (last >> np.uint64(32)).any(), "neither counts nor units away from home are left"
    assert kernels.count_down(table.units, table.used, cell[:1], term[:1]) == 0


def test_homes_know_how_many_of_their_units_are_elsewhere_as_units_come_and_go() -> None:
    """A unit that makes room for another one may go back to its home."""
    table, rng = Table(40), np.random.default_rng(5)
    cell, term = draw(5, 64 * SLOTS * 29)
    assert table.add(cell, term) == len(cell)
    for seed in range(6, 26):
        gone = rng.permutation(len(cell))[: len(cell) // 3]
        assert kernels.count_down(table.units, table.used, cell[gone], term[gone]) == NONE
        cell[gone], term[gone] = draw(seed, len(gone))
        assert table.add(cell[gone], term[gone]) == len(gone)
    assert kernels.count_down(table.units, table.used, cell, term) == NONE
    last = np.frombuffer(table.memory, np.uint64).reshape(-1, 8)[:, 7]
    assert not (last >> np.uint64(32)).any()


def test_a_high_count_needs_room_in_the_other_table() -> None:
    table = Table(40, many_bits=3)
    cell, term = draw(1, 12)
    times = np.full(12, MANY, np.uint32)
    assert table.add(cell, term, times) == 5  # of eight places
    assert table.state[GROW] == GROW_MANY
    parts, many, count = table.units
    larger, fresh = empty_table(5), np.zeros(32, np.uint32)
    assert kernels.move_many(many, count, larger, fresh) == 5
    table.units = parts, larger, fresh
    assert table.add(cell, term, times, 5) == 12
    assert table.state[GROW] == NONE
    assert table.add(cell[:1], term[:1]) == 1
    for part in range(len(parts)):
        columns = table.listed(part)
        counts = np.empty(len(columns[0]), np.uint32)
        kernels.read_counts(larger, fresh, *columns, counts)
        expected = [MANY + int(t == term[0]) for t in columns[1].tolist()]
        assert counts.tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_units_that_do_not_fit_are_refused_and_those_that_do_are_found(seed: int) -> None:
    table = Table(20)
    cell, term = draw(seed, 3_000)
    table.add(cell, term)
    columns: tuple[U32, U64, U8] = table.listed(3)
    table.parts[3, BUCKETS] = len(columns[0]) // SLOTS - 1
    assert not kernels.place_units(table.parts, 3, *columns)
    table.parts[3, BUCKETS] = 20
    assert kernels.place_units(table.parts, 3, *columns)
    again = table.listed(3)
    assert {*again[1].tolist()} == {*columns[1].tolist()}


def test_a_unit_that_finds_no_place_is_left_over_and_not_lost() -> None:
    """In parts of two buckets that is not rare."""
    times_left = 0
    for seed in range(30):
        table = Table(2)
        cell, term = draw(seed, 64 * 9)
        done = table.add(cell, term)
        part = int(table.state[GROW])
        if table.left[2]:
            times_left += 1
            table.parts[part, UNITS] -= 1
        held = table.all()
        if table.left[2]:
            held.add((int(table.left[0]), int(table.left[1])))
        assert held == set(zip(cell[:done].tolist(), term[:done].tolist(), strict=True))
    assert times_left
