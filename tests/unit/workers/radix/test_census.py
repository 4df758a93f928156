"""The census: counts by tag cell, raised to a level."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import I64, U32
from ps2stream.space.grid import Grid
from ps2stream.workers.load_kernels import NO_CELL
from ps2stream.workers.radix.census import raise_cells, take_census

GRID = Grid(5, 4)
BITS = GRID.lon_bits, GRID.lat_bits


def test_a_cell_is_raised_to_the_one_that_holds_its_points() -> None:
    rng = np.random.default_rng(1)
    lon, lat = rng.uniform(-180, 180, 500), rng.uniform(-90, 90, 500)
    for own in range(GRID.levels):
        cells = GRID.cells(lon, lat, own).astype(np.int64)
        for level in range(GRID.levels):
            above = cells if own >= level else GRID.cells(lon, lat, level).astype(np.int64)
            assert (raise_cells(cells, level, BITS) == above).all()


def test_counts_of_one_raised_cell_are_added() -> None:
    cells = np.array([0, NO_CELL, 1, 2 << 28, 31, 7, NO_CELL, NO_CELL, NO_CELL], np.uint32)
    counts = np.zeros((9, 2), np.int64)
    counts[[0, 2, 3, 4]] = [[2, 200], [3, 90], [5, 50], [1, 10]]
    [census] = take_census(cells, counts, 1, BITS)
    assert census is not None
    found = zip(census.cell.tolist(), census.queries.tolist(), census.bytes.tolist(), strict=True)
    assert sorted(found) == [(1 << 28, 5, 290), (1 << 28 | 7, 1, 10), (2 << 28, 5, 50)]
    assert census.cell.dtype == np.uint32


@pytest.mark.parametrize("steps", [1, 2, 7, 24])
def test_a_step_looks_at_a_part_of_the_table(steps: int) -> None:
    """The table is as full as it gets; what changes between the steps counts as before or after."""
    rows, rng = 1 << 18, np.random.default_rng(steps)
    cells: U32 = np.full(rows, NO_CELL, np.uint32)
    at = rng.permutation(rows)[: rows // 2]
    cells[at] = rng.permutation(rows)[: rows // 2]
    counts: I64 = np.zeros((rows, 2), np.int64)
    counts[at] = rng.integers(0, 9, (len(at), 2))
    before = counts.copy()
    looked = []
    census = None
    for census in take_census(cells, counts, 0, BITS, steps):
        looked.append(census is None)
        changed = rng.choice(at, 1000, replace=False)
        counts[changed, 0] += 100
    assert census is not None
    assert looked == [True] * (steps - 1) + [False]
    assert len(np.unique(census.cell)) == len(census.cell)
    number = np.zeros(rows, np.int64)
    number[cells[at]] = at
    now, then = before[number[census.cell], 0], counts[number[census.cell], 0]
    assert ((now <= census.queries) & (census.queries <= then)).all()
    assert (census.bytes == before[number[census.cell], 1]).all()
    assert set(cells[before[:, 0] > 0].tolist()) <= set(census.cell.tolist())
