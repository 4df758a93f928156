"""Counts by cell against a dictionary, in tables as full as they may be."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.workers.by_cell import CellCounter
from ps2stream.workers.load_kernels import NO_CELL, add_counts


def counted(cells: np.ndarray, counts: np.ndarray) -> dict[int, list[int]]:
    filled = cells != NO_CELL
    return dict(zip(cells[filled].tolist(), counts[filled].tolist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_a_dictionary(seed: int) -> None:
    """Cells collide: few bits, the largest and the smallest numbers, runs over the end."""
    rng = np.random.default_rng(seed)
    size = 1 << int(rng.integers(3, 8))
    pool = np.unique(np.r_[0, NO_CELL - 1, rng.integers(0, NO_CELL, size // 2 - 3)])
    cells, counts = np.full(size, NO_CELL, np.uint32), np.zeros((size, 4), np.int64)
    twin: dict[int, list[int]] = {}
    for _ in range(20):
        cell = rng.choice(pool, int(rng.integers(0, 40))).astype(np.uint32)
        one, other = rng.integers(-(2**40), 2**40, (2, len(cell)))
        column = int(rng.choice([0, 2]))
        known = len(twin)
        for c, a, b in zip(cell.tolist(), one.tolist(), other.tolist(), strict=True):
            row = twin.setdefault(c, [0, 0, 0, 0])
            row[column] += a
            row[column + 1] += b
        assert add_counts(cells, counts, cell, column, one, other) == len(twin) - known
        assert counted(cells, counts) == twin


def test_a_counter_grows_and_begins_anew() -> None:
    rng, counter = np.random.default_rng(1), CellCounter(2)
    for _ in range(2):
        cell = rng.integers(0, 5_000, 20_000).astype(np.uint32)
        one = np.ones(len(cell), np.int64)
        for part in np.array_split(np.arange(len(cell)), 30):
            counter.add(cell[part], 0, one[part], 3 * one[part])
        taken = counter.take()
        value, count = np.unique(cell, return_counts=True)
        assert taken.cell.tolist() == value.tolist()
        assert taken.by.tolist() == [[n, 3 * n] for n in count.tolist()]
    assert len(counter.take().cell) == 0
