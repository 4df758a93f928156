"""The kernel that decides without GEOS, against GEOS: it may leave points undecided, but few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely

from ps2stream.protocol.frame import F64
from ps2stream.space.polygon_kernels import INSIDE, LARGE, OUTSIDE, UNDECIDED, hold_point
from ps2stream.space.polygons import Geometry, encode


def decide(geometry: Geometry, points: F64, before: int = 0) -> list[int]:
    """What the kernel says of points float64[n, 2], `before` words being before the polygon."""
    geom = np.concatenate([np.full(before, 7.0), encode(geometry)])
    return [hold_point(geom, before, x, y) for x, y in points.tolist()]


def cover(geometry: Geometry, points: F64) -> list[int]:
    held = np.asarray(shapely.intersects_xy(geometry, *points.T))
    return [int(one) for one in held]


def star(rng: np.random.Generator, corners: int, lattice: bool) -> shapely.Polygon:
    angle = (np.arange(corners) + rng.uniform(0, 0.9, corners)) * (2 * np.pi / corners)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1) * rng.uniform(4, 12, (corners, 1))
    return shapely.Polygon(np.round(ring) if lattice else ring)


def near_edges(rng: np.random.Generator, geometry: Geometry, n: int) -> F64:
    """Corners, points on edges as far as floats can be, and the floats around these."""
    coordinates = shapely.get_coordinates(geometry)
    i = rng.integers(0, len(coordinates) - 1, n)
    share = rng.choice([0.0, 0.25, 0.5, 1.0, 1 / 3], (n, 1))
    on = coordinates[i] + share * (coordinates[i + 1] - coordinates[i])
    return np.nextafter(on, on + rng.integers(-1, 2, (n, 2)))


@pytest.mark.takes_turns(1)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_decided_is_what_geos_says(seed: int) -> None:
    """Also of holes, of several parts, and near edges, where little is decided."""
    rng, decided = np.random.default_rng(seed), 0
    for i in range(60):
        shape: Any = star(rng, int(rng.integers(3, 40)), lattice=i % 2 == 0)
        if i % 3 == 0:
            shape = shape.difference(shapely.box(-2, -2, 1, 1))
        if i % 5 == 0:
            shape = shape.union(shapely.box(20, -3, 22, 4)).union(shapely.Point(30, 1).buffer(1.0))
        if not shape.is_valid or not isinstance(shape, Geometry):
            continue
        lattice = rng.integers(-13, 14, (40, 2)).astype(np.float64)
        points = np.concatenate(
            [rng.uniform(-13, 33, (60, 2)), lattice, near_edges(rng, shape, 60)]
        )
        found = decide(shape, points, before=i % 4)
        want = cover(shape, points)
        assert all(f in (UNDECIDED, w) for f, w in zip(found, want, strict=True))
        assert UNDECIDED not in found[:60]
        decided += sum(f != UNDECIDED for f in found[60:])
    assert decided > 2000


def test_of_rings_of_many_corners_every_edge_is_seen() -> None:
    """Also those of which one end is the last corner of a word of bits, or level with the point."""
    rng = np.random.default_rng(9)
    for corners in (62, 63, 64, 65, 127, 128, 300):
        shape = star(rng, corners, lattice=False)
        level = shapely.get_coordinates(shape)[:, 1]
        points = rng.uniform(-12, 12, (len(level), 2))
        beside = np.column_stack([points[:, 0], level])
        assert decide(shape, points) == cover(shape, points)
        assert decide(shape, beside) == cover(shape, beside)


def test_upright_and_level_edges_and_corners_are_decided() -> None:
    box = shapely.box(0.1, 0.2, 1.3, 1.7)
    sides = [(0.1, 1.0), (1.3, 1.0), (1.0, 0.2), (1.0, 1.7), (0.1, 0.2), (1.3, 1.7), (1.3, 0.2)]
    assert decide(box, np.array(sides)) == [INSIDE] * len(sides)
    beside = [(0.1, 1.8), (1.4, 0.2), (0.0, 1.7), (np.nextafter(1.3, 2), 1.0), (1.0, 0.1999)]
    assert decide(box, np.array(beside)) == [OUTSIDE] * len(beside)


def test_points_so_close_that_products_vanish_are_left_undecided() -> None:
    tiny = shapely.Polygon([(0.0, 0.0), (4e-200, 0.0), (4e-200, 3e-200)])
    points = np.array([[2e-200, 1e-200], [1e-200, 2e-200]])
    assert decide(tiny, points) == [UNDECIDED] * 2


def test_large_polygons_and_points_of_two_names_are_left_undecided() -> None:
    circle = shapely.Point(0, 0).buffer(5.0, quad_segs=LARGE // 64 + 1)
    assert decide(circle, np.array([[1.0, 1.0]])) == [UNDECIDED]
    names = np.array([[180.0, 1.0], [-180.0, 1.0], [0.0, 90.0], [0.0, -90.0]])
    assert decide(shapely.box(-180, -90, 180, 90), names) == [UNDECIDED] * 4
