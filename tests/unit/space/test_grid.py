"""The grid: cells, levels and covers, against the definition and naive twins."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import InvalidArgument
from ps2stream.space.grid import Grid
from ps2stream.space.region_rows import boxes_of
from ps2stream.space.regions import Rect, Region
from ps2stream.space.space_kernels import cell_at
from tests.support.regions import lats, lons, regions, regions_and_points

grids = st.builds(
    Grid,
    st.integers(0, 14),
    st.integers(0, 14),
    st.sampled_from([1, 2, 4, 64, 4096]),
)


def naive_cell(grid: Grid, lon: float, lat: float, level: int) -> int:
    """From the definition, with the sum rounded as the position's own precision allows."""
    columns, rows = grid.columns(level), grid.rows(level)
    if lon == 180 or abs(lat) == 90:
        lon = -180.0
    col = min(math.floor(Fraction(lon + 180.0) * columns / 360), columns - 1)
    row = min(math.floor(Fraction(lat + 90.0) * rows / 180), rows - 1)
    return level << 28 | row * columns + col


def naive_cover(grid: Grid, boxes: list[list[float]]) -> list[int]:
    for level in range(grid.levels):
        columns, rows = grid.columns(level), grid.rows(level)
        found = set()
        for west, south, east, north in boxes:
            corners = [
                [min(math.floor(Fraction(x + h) * n / int(2 * h)), n - 1) for x in (a, b)]
                for a, b, h, n in ((west, east, 180.0, columns), (south, north, 90.0, rows))
            ]
            (c0, c1), (r0, r1) = corners
            if west == 180 or (south == north and abs(south) == 90):
                c0 = c1 = 0
            if (c1 - c0 + 1) * (r1 - r0 + 1) > grid.max_cells:
                break
            found |= {
                level << 28 | r * columns + c for r in range(r0, r1 + 1) for c in range(c0, c1 + 1)
            }
        else:
            if len(found) <= grid.max_cells:
                return sorted(found)
    raise AssertionError("the last level is one cell")


def rounds_up(value: float, half: float, n: int) -> bool:
    """Whether the quotient of `line` rounds up to a border."""
    exact = Fraction(value + half) * n / int(2 * half)
    return math.floor(exact) != math.floor((value + half) * n / (2 * half))


def cover_of(grid: Grid, *many: Region) -> tuple[Any, Any]:
    boxes = [boxes_of(r).ravel() for r in many]
    return grid.cover(np.cumsum([0, *map(len, boxes)]), np.concatenate([np.zeros(0), *boxes]))


@settings(deadline=None)
@given(grids, lons, lats)
def test_cells_are_the_definition(grid: Grid, lon: float, lat: float) -> None:
    if rounds_up(lon, 180.0, grid.columns()) or rounds_up(lat, 90.0, grid.rows()):
        return
    for level in range(grid.levels):
        expected = naive_cell(grid, lon, lat, level)
        assert grid.cells(np.array([lon]), np.array([lat]), level).tolist() == [expected]
        assert cell_at(lon, lat, grid.lon_bits, grid.lat_bits, level) == expected


@settings(deadline=None)
@given(grids, lons, lats, st.integers(0, 7))
def test_bounds_hold_the_point(grid: Grid, lon: float, lat: float, level: int) -> None:
    level = min(level, grid.levels - 1)
    tag = int(grid.cells(np.array([lon]), np.array([lat]), level)[0])
    west, south, width, height = grid.bounds(tag)
    assert width * grid.columns(level) == 360
    assert height * grid.rows(level) == 180
    if lon == 180 or abs(lat) == 90:
        assert west == -180
    else:
        assert west - 1e-12 <= lon <= west + width
    assert south - 1e-12 <= lat <= south + height
    at_corner = grid.cells(np.array([west]), np.array([south]), level)[0]
    assert at_corner == tag or (south == -90 and lat != -90)


@settings(deadline=None)
@given(grids)
def test_levels_shrink_to_one_cell(grid: Grid) -> None:
    last = grid.levels - 1
    assert grid.levels <= 8
    assert grid.columns(last) == grid.rows(last) == 1
    assert last == 0 or grid.columns(last - 1) * grid.rows(last - 1) > 1


@settings(deadline=None)
@given(grids, regions_and_points())
def test_one_cell_of_the_cover_holds_each_point(
    grid: Grid, case: tuple[Region, list[tuple[float, float]]]
) -> None:
    region, points = case
    _, cover = cover_of(grid, region)
    level = int(cover[0]) >> 28
    assert len(cover) <= grid.max_cells
    assert (cover >> 28 == level).all()
    assert (np.diff(cover.astype(np.int64)) > 0).all()
    for lon, lat in points:
        if region.contains(lon, lat):
            hits = [
                grid.cells(np.array([lon]), np.array([lat]), k)[0] in cover
                for k in range(grid.levels)
            ]
            assert [k for k, hit in enumerate(hits) if hit] == [level]


@settings(deadline=None)
@given(grids, st.lists(regions, max_size=6))
def test_cover_is_the_naive_one(grid: Grid, many: list[Region]) -> None:
    for region in many:
        west, south, east, north = boxes_of(region).T
        for x, half, n in ((west, 180.0, grid.columns()), (east, 180.0, grid.columns()),
                           (south, 90.0, grid.rows()), (north, 90.0, grid.rows())):  # fmt: skip
            if any(rounds_up(v, half, n) for v in x.tolist()):
                return
    off, cover = cover_of(grid, *many)
    assert [cover[a:b].tolist() for a, b in pairwise(off.tolist())] == [
        naive_cover(grid, boxes_of(region).tolist()) for region in many
    ]


def test_a_box_that_ends_on_a_border_touches_the_next_cell() -> None:
    grid = Grid(2, 2)  # 90 by 45 degrees
    _, cover = cover_of(grid, Rect(-10, 1, 0, 2))
    assert cover.tolist() == [2 * 4 + 1, 2 * 4 + 2]
    assert grid.cells(np.array([0.0]), np.array([1.0]), 0).tolist() == [2 * 4 + 2]
    assert grid.cells(np.array([180.0]), np.array([90.0]), 0).tolist() == [3 * 4]
    assert grid.cells(np.array([77.0]), np.array([-90.0]), 0).tolist() == [0]


def test_large_regions_go_to_coarser_levels() -> None:
    grid = Grid(9, 8, 64)
    _, small = cover_of(grid, Rect(10.1, 10.1, 10.2, 10.2))
    _, large = cover_of(grid, Rect(-100, -50, 100, 50))
    _, world = cover_of(grid, Rect(-180, -90, 180, 90))
    assert (len(small), int(small[0]) >> 28) == (1, 0)
    assert [int(c[0]) >> 28 for c in (large, world)] == [3, 3]
    assert len(world) == 32


def test_values() -> None:
    grid = Grid(10, 9, 32)
    assert Grid.from_dict(grid.to_dict()) == grid
    assert Grid.for_queries(0.3, 0.22) == Grid(10, 9)
    assert Grid.for_queries(math.nan, 1) == Grid()
    assert Grid.for_queries(0, 1) == Grid()
    assert Grid.for_queries(1e-9, 1e-9) == Grid(11, 10)
    assert Grid.for_queries(360, 180) == Grid(5, 4)
    good = grid.to_dict()
    changes = ({"x": 1}, {"lon_bits": "9"}, {"lat_bits": 15}, {"max_cells": 0})
    for bad in ({}, *({**good, **change} for change in changes)):
        with pytest.raises(InvalidArgument, match=r"grid\."):
            Grid.from_dict(bad)
