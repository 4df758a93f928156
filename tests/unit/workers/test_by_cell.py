"""Counts by cell against a counter of Python's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.protocol.frame import I64, U32
from ps2stream.workers.by_cell import CellCounter, CellCounts


def added(counter: CellCounter, twin: Counter[tuple[int, int]], cell: U32, column: int) -> None:
    one, other = np.arange(len(cell)), 3 * np.arange(len(cell)) + 1
    counter.add(cell, column, one, other)
    for at, value in ((column, one), (column + 1, other)):
        for c, v in zip(cell.tolist(), value.tolist(), strict=True):
            twin[c, at] += v


def listed(counts: CellCounts) -> dict[tuple[int, int], int]:
    cells = counts.cell.tolist()
    assert cells == sorted(set(cells))
    return {
        (c, i): n
        for c, by in zip(cells, counts.by.tolist(), strict=True)
        for i, n in enumerate(by)
        if n
    }


@pytest.mark.parametrize("cells", [3, 600, 5_000])
def test_counts_are_those_of_a_counter_however_many_cells_are_met(cells: int) -> None:
    rng = np.random.default_rng(cells)
    counter, twin = CellCounter(4), Counter[tuple[int, int]]()
    for _ in range(40):
        some = rng.integers(0, cells, 300).astype(np.uint32) << np.uint32(16)  # as levels do
        added(counter, twin, some, 2 * int(rng.integers(2)))
    assert listed(counter.take()) == {key: n for key, n in twin.items() if n}


def test_what_was_taken_is_not_counted_again() -> None:
    counter = CellCounter(2)
    one: I64 = np.array([5, 6])
    counter.add(np.array([9, 4], np.uint32), 0, one, one)
    assert counter.take().by.tolist() == [[6, 6], [5, 5]]
    assert len(counter.take().cell) == 0
    counter.add(np.array([9, 9], np.uint32), 0, one, one)
    found = counter.take()
    assert (found.cell.tolist(), found.by.tolist()) == ([9], [[11, 11]])


def test_one_large_batch_finds_room() -> None:
    counter = CellCounter(2)
    cell = np.arange(100_000, dtype=np.uint32)
    counter.add(cell, 0, np.ones(len(cell), np.int64), np.arange(len(cell)))
    found = counter.take()
    assert found.cell.tolist() == cell.tolist()
    assert found.by[:, 1].tolist() == cell.tolist()
