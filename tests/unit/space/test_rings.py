"""The normal form of polygons, against the one that GEOS gives."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.space import rings, space_kernels, sphere
from ps2stream.space.polygons import build_geometry
from ps2stream.space.regions import Polygon
from tests.support.regions import lats, lons, polygons


def geos_form(geometry: shapely.Geometry) -> shapely.Geometry:
    """The normal form as GEOS makes it, of which stored queries hold the bytes."""
    plane = shapely.transform(shapely.force_2d(geometry), lambda points: points + 0.0)
    return shapely.reverse(shapely.normalize(shapely.remove_repeated_points(plane)))


def assert_same_form(geometry: shapely.Geometry) -> None:
    """Equal byte by byte: rings, their order and their direction."""
    found = Polygon(geometry).geometry
    assert shapely.to_wkb(found) == shapely.to_wkb(geos_form(geometry))


@settings(deadline=None)
@given(polygons())
def test_the_normal_form_is_that_of_geos(polygon: Polygon) -> None:
    assert_same_form(polygon.geometry)
    assert_same_form(shapely.reverse(polygon.geometry))


@pytest.mark.parametrize("seed", range(40))
def test_holes_and_parts_have_the_order_of_geos(seed: int) -> None:
    """Squares with holes in a row, of few and many corners, drawn in any order and direction."""
    rng = np.random.default_rng(seed)
    parts = []
    for x in rng.permutation(4).tolist():
        corner = (10.0 * x, float(rng.integers(-3, 3)))
        holes = [
            list(
                shapely.Point(corner[0] + 2 * a + 1, corner[1] + 2 * b + 1)
                .buffer(0.25 + 0.5 * rng.random(), quad_segs=int(rng.integers(1, 3)))
                .exterior.coords
            )[:: int(rng.choice([-1, 1]))]
            for a, b in itertools.product(range(3), range(2))
            if rng.random() < 0.7
        ]
        shell = list(shapely.box(*corner, corner[0] + 7, corner[1] + 5).exterior.coords)[:-1]
        turn = int(rng.integers(4))
        parts.append(
            shapely.Polygon((shell[turn:] + shell[:turn])[:: int(rng.choice([-1, 1]))], holes)
        )
    for part in parts:
        assert_same_form(part)
    assert_same_form(shapely.MultiPolygon(parts))


@given(st.lists(st.tuples(lons, lats), min_size=3, max_size=3))
def test_a_flat_corner_turns_as_it_does_in_exact_numbers(points: list[tuple[float, float]]) -> None:
    a, b, c = points
    middle = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)
    nudged = (middle[0], math.nextafter(middle[1], math.inf))
    for corner in ((a, b, c), (a, middle, b), (a, nudged, b)):
        (ax, ay), (bx, by), (cx, cy) = (map(Fraction, point) for point in corner)
        turn = (bx - ax) * (cy - by) - (by - ay) * (cx - bx)
        assert rings._turns_left(*corner) == (turn > 0)


def test_geometries_of_other_libraries_and_geojson_are_one_value() -> None:
    ring = [[0, 0], [4, 0], [4, 3], [0, 0]]
    geojson = {"type": "Polygon", "coordinates": [ring]}

    class Drawn:
        def __init__(self) -> None:
            self.__geo_interface__ = {"type": "Polygon", "coordinates": ((*map(tuple, ring),),)}

    assert Polygon(geojson) == Polygon(Drawn()) == Polygon(shapely.Polygon(ring))
    assert build_geometry(Polygon(geojson).parts, False).equals(shapely.Polygon(ring))
    assert Polygon(geojson).bounds == (0, 0, 4, 3)


@given(lons, lats, lons, lats, lons, lats)
def test_kernels_and_plain_python_agree(
    a: float, b: float, c: float, d: float, lon: float, lat: float
) -> None:
    assert space_kernels.haversine_km(a, b, c, d) == sphere.haversine_km(a, b, c, d)
    rect = (a, min(b, d), c, max(b, d), lon, lat)
    assert space_kernels.in_rect(*rect) == sphere.in_rect(*rect)
