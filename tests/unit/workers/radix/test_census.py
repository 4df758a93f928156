"""The census: counts by tag cell, raised to a level."""

from __future__ import annotations

import numpy as np

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
    cells = np.array([0, NO_CELL, 1, 2 << 28, 31, 7], np.uint32)
    counts = np.array([[2, 200], [0, 0], [3, 90], [5, 50], [1, 10], [0, 0]])
    census = take_census(cells, counts, 1, BITS)
    found = zip(census.cell.tolist(), census.queries.tolist(), census.bytes.tolist(), strict=True)
    assert sorted(found) == [(1 << 28, 5, 290), (1 << 28 | 7, 1, 10), (2 << 28, 5, 50)]
    assert census.cell.dtype == np.uint32
