"""ps2stream/connectors/area_positions.py: no query that is wide enough misses an area."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import shapely

from ps2stream.connectors.area_positions import (
    MARGIN,
    AreaCircle,
    AreaPositions,
    AreaShape,
    place_area,
    read_geometry_area,
)
from ps2stream.space.sphere import EARTH_KM, KM_PER_DEGREE, haversine_km

MOST = 100_000


def moved(lon: float, lat: float, km: float, bearing: float) -> tuple[float, float]:
    """The point that lies so far from another in a direction, in radians."""
    a, p = km / EARTH_KM, math.radians(lat)
    sine = math.sin(p) * math.cos(a) + math.cos(p) * math.sin(a) * math.cos(bearing)
    east = math.atan2(
        math.sin(bearing) * math.sin(a) * math.cos(p), math.cos(a) - math.sin(p) * sine
    )
    wrapped = (lon + math.degrees(east) + 180.0) % 360.0 - 180.0
    return wrapped, math.degrees(math.asin(max(-1.0, min(1.0, sine))))


def is_met(places: AreaPositions, lon: float, lat: float, radius_km: float) -> bool:
    """Whether a circle holds a position; by the distance that a worker compares."""
    return any(
        haversine_km(lon, lat, x, y) <= radius_km
        for x, y in zip(places.lon.tolist(), places.lat.tolist(), strict=True)
    )


def star(rng: random.Random, lon: float, lat: float, size_km: float) -> dict[str, Any]:
    """A polygon with spikes, notches and holes of all widths around a point."""
    corners = rng.randint(3, 12)
    ring = []
    for i in range(corners):
        reach = size_km * rng.uniform(0.05, 1.0)
        ring.append(list(moved(lon, lat, reach, -2 * math.pi * i / corners)))
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def border_points(geometry: dict[str, Any], rng: random.Random) -> list[tuple[float, float]]:
    """Points of the area: corners, points of edges as the plane has them, and inner ones."""
    whole = read_geometry_area(geometry).geometry
    corners = shapely.get_coordinates(whole)
    lines = shapely.get_parts(shapely.boundary(shapely.get_parts(whole)))
    edges = [shapely.line_interpolate_point(line, rng.random(), normalized=True) for line in lines]
    found = [*corners.tolist(), *(shapely.get_coordinates(e)[0].tolist() for e in edges)]
    found.append(shapely.get_coordinates(shapely.point_on_surface(whole))[0].tolist())
    return [((x + 180.0) % 360.0 - 180.0, y) for x, y in found]


@pytest.mark.parametrize("near", [(8.5, 47.4), (179.9, -17.0), (20.0, 78.9), (-150.0, 84.0)])
@pytest.mark.parametrize("size_km", [0.5, 12.0, 90.0])
def test_no_circle_at_least_as_wide_as_the_spacing_misses_what_it_touches(
    near: tuple[float, float], size_km: float
) -> None:
    rng = random.Random(f"{near} {size_km}")
    for _ in range(12):
        geometry = star(rng, *near, size_km)
        places = place_area(read_geometry_area(geometry), 10.0, MOST)
        assert places.spacing_km == 10.0
        for x, y in border_points(geometry, rng):
            for radius_km in (5.0, rng.uniform(5.0, 60.0)):
                # The circle touches the area with this point of it, at its border or within.
                away = radius_km * rng.choice([0.0, 0.7, 0.999999, 0.999999])
                lon, lat = moved(x, y, away, rng.uniform(0, 2 * math.pi))
                assert is_met(places, lon, lat, radius_km), (geometry, lon, lat, radius_km)


@pytest.mark.parametrize("near", [(8.5, 47.4), (179.9, -17.0), (20.0, 70.0)])
def test_no_rectangle_as_wide_misses_it_even_with_a_corner(near: tuple[float, float]) -> None:
    rng = random.Random(str(near))
    for _ in range(40):
        geometry = star(rng, *near, 30.0)
        places = place_area(read_geometry_area(geometry), 10.0, MOST)
        for x, y in border_points(geometry, rng):
            high = 10.0 / KM_PER_DEGREE
            north = rng.choice([0.0, high])  # the rectangle lies north or south of the point
            low, top = y - high + north, y + north
            wide = 10.0 / KM_PER_DEGREE / math.cos(math.radians(max(abs(low), abs(top))))
            west = x if rng.random() < 0.5 else x - wide
            lon = (places.lon - west) % 360.0
            held = (lon <= wide) & (places.lat >= low) & (places.lat <= top)
            assert held.any(), (geometry, west, low)


def test_positions_lie_near_the_area() -> None:
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
    places = place_area(read_geometry_area(square), 10.0, MOST)
    degrees = 10.0 * math.sqrt(2) * MARGIN / KM_PER_DEGREE
    shape = shapely.box(-degrees, -degrees, 1 + degrees, 1 + degrees)
    assert shapely.intersects(shape, shapely.points(places.lon, places.lat)).all()
    held = [
        bool(each)
        for each in shapely.intersects_xy(shapely.box(0, 0, 1, 1), places.lon, places.lat)
    ]
    assert places.inside == held
    assert 300 < sum(held) < len(held) < 900


def test_names_are_of_the_grid_and_not_of_the_area() -> None:
    one, two = (
        place_area(read_geometry_area(
            {"type": "Polygon", "coordinates": [[[0, 0], [e, 0], [e, 1], [0, 1], [0, 0]]]}
        ), 20.0, MOST) for e in (1, 2)
    )  # fmt: skip
    found = [dict(zip(p.names, zip(p.lon, p.lat, strict=True), strict=True)) for p in (one, two)]
    assert found[0].items() <= found[1].items()


def test_circles_are_met_also_over_a_pole() -> None:
    rng = random.Random(5)
    for circle in (AreaCircle(8.5, 47.4, 20.0), AreaCircle(30, 89.9, 50.0), AreaCircle(0, 0, 0.0)):
        places = place_area(AreaShape(None, (circle,)), 10.0, MOST)
        for _ in range(50):
            x, y = moved(circle.lon, circle.lat, circle.radius_km, rng.uniform(0, 7))
            lon, lat = moved(x, y, 9.999, rng.uniform(0, 7))
            assert is_met(places, lon, lat, 10.0)


def test_a_small_circle_keeps_its_spacing() -> None:
    for lon, lat in ((8.5, 47.4), (-180.0, 0.0), (180.0, 60.0), (0.0, 85.0)):
        places = place_area(AreaShape(None, (AreaCircle(lon, lat, 20.0),)), 10.0, 2000)
        assert places.spacing_km == 10.0
        assert is_met(places, *moved(lon, lat, 29.9, 1.5), 10.0)


def test_an_area_that_is_too_large_has_positions_farther_apart() -> None:
    land = {"type": "Polygon", "coordinates": [[[0, 0], [40, 0], [40, 40], [0, 40], [0, 0]]]}
    places = place_area(read_geometry_area(land), 10.0, 500)
    assert len(places.names) <= 500
    assert places.spacing_km > 10.0
    assert is_met(places, 40.0 + 0.9 * places.spacing_km / KM_PER_DEGREE, 0.0, places.spacing_km)
    world = {"type": "Polygon", "coordinates": [[[-180, -90], [0, -90], [180, -90], [180, 90],
                                                 [0, 90], [-180, 90], [-180, -90]]]}  # fmt: skip
    assert 1 <= len(place_area(read_geometry_area(world), 0.1, 100).names) <= 100


def test_points_stay_where_they_are() -> None:
    points = {"type": "MultiPoint", "coordinates": [[1, 2], [3, 4, 500]]}
    places = place_area(read_geometry_area(points), 10.0, 2)
    assert (places.lon.tolist(), places.lat.tolist()) == ([1.0, 3.0], [2.0, 4.0])
    assert places.spacing_km == 0
    with pytest.raises(ValueError, match="2 points, more than the limit"):
        place_area(read_geometry_area(points), 10.0, 1)


def test_a_ring_over_the_antimeridian_goes_the_short_way() -> None:
    ring = [[179, 0], [-179, 0], [-179, 1], [179, 1], [179, 0]]
    places = place_area(read_geometry_area({"type": "Polygon", "coordinates": [ring]}), 20.0, MOST)
    assert np.all(np.abs(places.lon) > 178.5)
    assert {True, False} == {bool(lon > 0) for lon in places.lon}


@pytest.mark.parametrize(
    ("geometry", "problem"),
    [
        ("x", "expected an object"),
        ({"type": "Blob"}, "expected a geometry of GeoJSON"),
        ({"type": "Point", "coordinates": [200, 0]}, "expected degrees"),
        ({"type": "Point", "coordinates": [float("nan"), 0]}, "expected degrees"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]}, "at least four"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [2, 2]]]}, "the last as"),
        ({"type": "Polygon", "coordinates": []}, "needs a ring"),
        ({"type": "LineString", "coordinates": [[0, 0]]}, "at least two"),
        ({"type": "MultiPolygon", "coordinates": []}, "has no positions"),
        ({"type": "Polygon", "coordinates": 5}, "expected an array"),
        ({"type": "MultiPoint", "coordinates": [[0, 0]] * 100_001}, "more than 100000"),
    ],
)  # fmt: skip
def test_geometries_that_are_none_are_refused(geometry: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_geometry_area(geometry)


def test_nested_collections_end() -> None:
    value: dict[str, Any] = {"type": "Point", "coordinates": [0, 0]}
    for _ in range(9):
        value = {"type": "GeometryCollection", "geometries": [value]}
    with pytest.raises(ValueError, match="nested collections"):
        read_geometry_area(value)
