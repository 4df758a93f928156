"""The grid: cells, levels and covers, against the definition and naive twins."""

from __future__ import annotations

import json
import math
import pickle
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import InvalidArgument
from ps2stream.space.grid import Grid, cells_of
from ps2stream.space.region_rows import boxes_of
from ps2stream.space.regions import Rect, Region
from ps2stream.space.space_kernels import cell_at
from tests.support.grids import uneven_grids
from tests.support.regions import lats, lons, regions, regions_and_points

grids = uneven_grids(max_cells=st.sampled_from([1, 2, 4, 64, 4096]))


def span_of(borders: tuple[float, ...], value: float) -> int:
    return max(i for i in range(len(borders) - 1) if borders[i] <= value)


def naive_line(borders: tuple[float, ...], count: int, value: float) -> int:
    """The column or row of level 0: from the definition, with the difference rounded as the
    position's own precision allows."""
    span, each = span_of(borders, value), count // (len(borders) - 1)
    low, high = borders[span : span + 2]
    line = math.floor(Fraction(value - low) * each / Fraction(high - low))
    return span * each + min(line, each - 1)


def naive_cell(grid: Grid, lon: float, lat: float, level: int) -> int:
    """From the definition, with the sum rounded as the position's own precision allows."""
    if lon == 180 or abs(lat) == 90:
        lon = -180.0
    col = naive_line(grid.meridians, grid.columns(), lon) * grid.columns(level) // grid.columns()
    row = naive_line(grid.parallels, grid.rows(), lat) * grid.rows(level) // grid.rows()
    return level << 28 | row * grid.columns(level) + col


def naive_cover(grid: Grid, boxes: list[list[float]]) -> list[int]:
    for level in range(grid.levels):
        columns, rows = grid.columns(level), grid.rows(level)
        found = set()
        for west, south, east, north in boxes:
            corners = [
                [naive_line(borders, most, x) * n // most for x in (a, b)]
                for a, b, borders, n, most in (
                    (west, east, grid.meridians, columns, grid.columns()),
                    (south, north, grid.parallels, rows, grid.rows()),
                )
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


def rounds_up(value: float, borders: tuple[float, ...], count: int) -> bool:
    """Whether the quotient of `line` rounds up to a border."""
    span, each = span_of(borders, value), count // (len(borders) - 1)
    low, high = borders[span : span + 2]
    exact = Fraction(value - low) * each / Fraction(high - low)
    return math.floor(exact) != math.floor((value - low) * each / (high - low))


def cover_of(grid: Grid, *many: Region) -> tuple[Any, Any]:
    boxes = [boxes_of(r).ravel() for r in many]
    return grid.cover(np.cumsum([0, *map(len, boxes)]), np.concatenate([np.zeros(0), *boxes]))


@settings(deadline=None)
@given(grids, lons, lats)
def test_cells_are_the_definition(grid: Grid, lon: float, lat: float) -> None:
    if rounds_up(lon, grid.meridians, grid.columns()):
        return
    if rounds_up(lat, grid.parallels, grid.rows()):
        return
    for level in range(grid.levels):
        expected = naive_cell(grid, lon, lat, level)
        assert grid.cells(np.array([lon]), np.array([lat]), level).tolist() == [expected]
        assert cell_at(lon, lat, grid.lines, level) == expected


@settings(deadline=None)
@given(grids, lons, lats, st.integers(0, 7))
def test_bounds_hold_the_point(grid: Grid, lon: float, lat: float, level: int) -> None:
    level = min(level, grid.levels - 1)
    tag = int(grid.cells(np.array([lon]), np.array([lat]), level)[0])
    west, south, width, height = grid.bounds(tag)
    if grid == Grid(grid.lon_bits, grid.lat_bits, grid.max_cells):
        assert width * grid.columns(level) == 360
        assert height * grid.rows(level) == 180
    if lon == 180 or abs(lat) == 90:
        assert west == -180
    else:
        assert west - 1e-12 <= lon <= west + width
    assert south - 1e-12 <= lat <= south + height
    middle = np.array([west + width / 2]), np.array([south + height / 2])
    assert grid.cells(*middle, level).tolist() == [tag]


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
        for x, borders, n in ((west, grid.meridians, grid.columns()),
                              (east, grid.meridians, grid.columns()),
                              (south, grid.parallels, grid.rows()),
                              (north, grid.parallels, grid.rows())):  # fmt: skip
            if any(rounds_up(v, borders, n) for v in x.tolist()):
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


@given(grids)
def test_a_grid_is_read_as_it_is_written(grid: Grid) -> None:
    assert Grid.from_dict(json.loads(json.dumps(grid.to_dict()))) == grid
    again = pickle.loads(pickle.dumps(grid))
    assert (again, again.lines.tolist()) == (grid, grid.lines.tolist())
    assert not again.lines.flags.writeable
    if len(grid.meridians) == len(grid.parallels) == 2:
        assert list(grid.to_dict()) == ["lon_bits", "lat_bits", "max_cells"]


def test_cells_are_narrow_where_lines_are_close() -> None:
    grid = Grid(3, 1, 64, (-180.0, 10.0, 12.0, 14.0, 180.0))
    assert grid.find_meridians(np.arange(9)).tolist() == [-180, -85, 10, 11, 12, 13, 14, 97, 180]
    assert grid.bounds(3) == (11, -90, 1, 90)
    assert grid.bounds(1 << 28 | 0) == (-180, -90, 192, 180)
    assert "unequal" in cells_of(grid)
    assert "unequal" not in cells_of(Grid())


def test_values() -> None:
    grid = Grid(10, 9, 32)
    assert Grid.for_queries(0.3, 0.22) == Grid(10, 9)
    assert Grid.for_queries(math.nan, 1) == Grid()
    assert Grid.for_queries(0, 1) == Grid()
    assert Grid.for_queries(1e-9, 1e-9) == Grid(11, 10)
    assert Grid.for_queries(360, 180) == Grid(5, 4)
    good = grid.to_dict()
    changes = (
        {"x": 1}, {"lon_bits": "9"}, {"lat_bits": 15}, {"max_cells": 0}, {"meridians": "x"},
        {"meridians": [-180, True]}, {"meridians": [-180]}, {"meridians": [-180, -10, 10, 180]},
        {"parallels": [-90, 10, 91]}, {"parallels": [-90, 10, 10, 20, 90]},
        {"parallels": [-90, math.nan, 90]}, {"lat_bits": 0, "parallels": [-90, 10, 90]},
    )  # fmt: skip
    for bad in ({}, *({**good, **change} for change in changes)):
        with pytest.raises(InvalidArgument, match=r"grid\."):
            Grid.from_dict(bad)
