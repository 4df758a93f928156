"""Counts by cell against a counter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.load_kernels import NO_CELL
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.cell_kernels import count_tags, rehash_cells
from ps2stream.workers.radix.pointers import pointer_to


@njit
def call_count(
    cells: Any, counts: Any, state: Any, cell: Any, n: int, sign: int, size: int
) -> None:
    count_tags(
        pointer_to(cells), pointer_to(counts), pointer_to(state), pointer_to(cell), n, sign, size
    )


@pytest.mark.parametrize("kinds", [1, 3, 60])
def test_runs_of_a_cell_are_counted_as_often_as_they_are_long(kinds: int) -> None:
    rng = np.random.default_rng(kinds)
    cells, counts = np.full(128, NO_CELL, np.uint32), np.zeros((128, 2), np.int64)
    state = np.zeros(layout.STATE, np.int64)
    state[layout.CELLS_SIZE] = 128
    postings, size_of = Counter[int](), Counter[int]()
    for _ in range(200):
        cell = rng.integers(0, kinds, rng.integers(0, 12)).astype(np.uint32) * np.uint32(77_777)
        sign, size = int(rng.choice([1, -1, 3])), int(rng.integers(1, 100))
        call_count(cells, counts, state, cell, len(cell), sign, size)
        for each in cell.tolist():
            postings[each] += sign
            size_of[each] += sign * size
    assert state[layout.CELLS_USED] == len(postings)
    larger, sums = np.full(256, NO_CELL, np.uint32), np.zeros((256, 2), np.int64)
    left = rehash_cells(cells, counts, larger, sums)
    assert left == sum(n != 0 for n in postings.values())
    for table, found in ((cells, counts), (larger, sums)):
        used = (table != NO_CELL) & (found[:, 0] != 0)
        got = dict(zip(table[used].tolist(), found[used].tolist(), strict=True))
        assert got == {cell: [n, size_of[cell]] for cell, n in postings.items() if n}
