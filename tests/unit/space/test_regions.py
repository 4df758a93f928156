"""Regions, their boxes and exact predicates, against the oracle's definition."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ps2stream.errors import InvalidArgument
from ps2stream.limits import POLYGON_VERTICES, RADIUS_KM
from ps2stream.space.geojson import from_json
from ps2stream.space.polygons import PolygonCache
from ps2stream.space.region_rows import (
    boxes_of,
    decode_region,
    geom_of,
    rect_problems,
    shape_of,
    square_km,
    verify,
)
from ps2stream.space.regions import (
    Circle,
    Polygon,
    Rect,
    Region,
    World,
)
from ps2stream.space.space_kernels import haversine_km
from ps2stream.space.sphere import KM_PER_DEGREE
from tests import naive
from tests.support.regions import circles, lats, lons, polygons, rects, regions, regions_and_points

Pick = tuple[Region, list[tuple[float, float]]]


def in_boxes(region: Region, lon: float, lat: float) -> bool:
    return any(a <= lon <= c and b <= lat <= d for a, b, c, d in boxes_of(region).tolist())


def on_border(region: Region, lon: float, lat: float) -> bool:
    """Where the last bit of a distance decides."""
    if not isinstance(region, Circle):
        return False
    away = naive.great_circle_km(region.lon, region.lat, lon, lat)
    return abs(away - region.radius_km) <= 1e-6 + 1e-7 * away


def broken_polygon() -> Polygon:
    with np.errstate(invalid="ignore"):  # GEOS raises the flag
        return Polygon(shapely.Polygon([(0, 0), (1, math.nan), (1, 1)]))


def columns(many: list[Region]) -> tuple[Any, Any, Any]:
    geoms = [geom_of(r) for r in many]
    off = np.cumsum([0, *map(len, geoms)])
    return np.array([shape_of(r) for r in many], np.uint8), off, np.concatenate(geoms)


@settings(deadline=None)
@given(regions_and_points())
def test_contains_is_the_definition_and_lies_in_the_boxes(case: Pick) -> None:
    region, points = case
    for lon, lat in points:
        inside = region.contains(lon, lat)
        if not on_border(region, lon, lat):
            assert inside == naive.inside(region.to_json(), lon, lat)
        if inside:
            assert in_boxes(region, lon, lat)


@settings(deadline=None)
@given(regions)
def test_boxes_are_one_or_two_and_ordered(region: Region) -> None:
    boxes = boxes_of(region)
    assert boxes.shape in {(1, 4), (2, 4)}
    assert (boxes[:, 0] <= boxes[:, 2]).all()
    assert (boxes[:, 1] <= boxes[:, 3]).all()
    assert (np.abs(boxes) <= [180, 90, 180, 90]).all()


@settings(deadline=None)
@given(rects(), st.lists(st.tuples(lons, lats)))
def test_a_single_box_is_the_rectangle(rect: Rect, points: list[tuple[float, float]]) -> None:
    if len(boxes_of(rect)) == 1:
        assert all(rect.contains(*p) == in_boxes(rect, *p) for p in points)


@settings(deadline=None)
@given(rects(), lons, lats)
def test_rect_boxes_are_tight_away_from_the_edges(rect: Rect, lon: float, lat: float) -> None:
    if abs(rect.lat_min) < 90 and abs(rect.lat_max) < 90:
        assert rect.contains(lon, lat) == in_boxes(rect, lon, lat)


@settings(deadline=None)
@given(circles, st.floats(0, 2 * math.pi))
def test_circle_boxes_touch_the_circle(circle: Circle, bearing: float) -> None:
    """Points on the circle lie in the boxes, and no box is much wider than they need."""
    r = circle.radius_km * (1 - 1e-9) / naive.EARTH_KM
    a, b = math.radians(circle.lat), math.radians(circle.lon)
    up = math.sin(a) * math.cos(r) + math.cos(a) * math.sin(r) * math.cos(bearing)
    lat = math.asin(min(1.0, max(-1.0, up)))
    east = math.atan2(
        math.sin(bearing) * math.sin(r) * math.cos(a), math.cos(r) - math.sin(a) * math.sin(lat)
    )
    lon = (math.degrees(b + east) + 180) % 360 - 180
    assert in_boxes(circle, lon, math.degrees(lat))


@pytest.mark.parametrize(
    ("rect", "boxes"),
    [
        (Rect(1, 2, 3, 4), [[1, 2, 3, 4]]),
        (Rect(1, 2, 1, 2), [[1, 2, 1, 2]]),
        (Rect(170, 2, -170, 4), [[170, 2, 180, 4], [-180, 2, -170, 4]]),
        (Rect(170, 2, 180, 4), [[170, 2, 180, 4], [-180, 2, -180, 4]]),
        (Rect(-180, 2, -170, 4), [[-180, 2, -170, 4], [180, 2, 180, 4]]),
        (Rect(180, 2, 180, 4), [[180, 2, 180, 4], [-180, 2, -180, 4]]),
        (Rect(180, 2, -180, 4), [[180, 2, 180, 4], [-180, 2, -180, 4]]),
        (Rect(-180, 2, 180, 4), [[-180, 2, 180, 4]]),
        (Rect(1, 80, 3, 90), [[1, 80, 3, 90], [-180, 90, 180, 90]]),
        (Rect(1, 90, 3, 90), [[-180, 90, 180, 90]]),
        (Rect(1, -90, 3, -80), [[1, -90, 3, -80], [-180, -90, 180, -90]]),
        (Rect(1, -90, 3, 90), [[-180, -90, 180, 90], [-180, 90, 180, 90]]),
        (Rect(170, 80, -170, 90), [[-180, 80, 180, 90], [-180, 90, 180, 90]]),
    ],
)
def test_rect_boxes(rect: Rect, boxes: list[list[float]]) -> None:
    assert boxes_of(rect).tolist() == boxes


def test_the_meridian_has_two_names_and_a_pole_has_all() -> None:
    assert Rect(170, 0, 180, 1).contains(-180, 0.5)
    assert Rect(-180, 0, -170, 1).contains(180, 0.5)
    assert Rect(1, 80, 3, 90).contains(-77, 90)
    assert not Rect(1, 80, 3, 89).contains(-77, 90)
    assert Circle(180, 0, 1).contains(-180, 0)
    assert Circle(0, 89.9999, 1).contains(180, 90)
    assert Circle(0, 90, 5e-324).contains(77, 90)
    triangle = Polygon(shapely.Polygon([(0, 80), (10, 80), (5, 90)]))
    assert triangle.contains(-100, 90)
    assert not triangle.contains(-100, 89.9)
    assert Polygon(shapely.box(170, 0, 180, 1)).contains(-180, 0.5)
    assert Polygon(shapely.box(0, 0, 1, 1)).contains(-0.0, 1)


@settings(deadline=None)
@given(st.lists(regions_and_points(), max_size=8))
def test_verify_is_contains(cases: list[Pick]) -> None:
    many = [World(), *(region for region, _ in cases)]
    pairs = [(i + 1, p) for i, (_, points) in enumerate(cases) for p in points]
    pick = np.array([i for i, _ in pairs], np.int64)
    lon, lat = np.array([p for _, p in pairs]).reshape(-1, 2).T
    expected = [many[i].contains(*p) for i, p in pairs]
    cache, keys = PolygonCache(2), np.arange(len(many), dtype=np.int64) + 1000
    assert verify(*columns(many), pick, lon, lat).tolist() == expected
    for _ in range(2):
        assert verify(*columns(many), pick, lon, lat, cache, keys).tolist() == expected
    assert len(cache) <= 2


def test_cache_keeps_and_drops() -> None:
    cache = PolygonCache(2)
    geoms = [geom_of(Polygon(shapely.box(i, 0, i + 1, 1))) for i in range(3)]
    first = cache.get(0, geoms[0])
    cache.get(1, geoms[1])
    assert cache.get(0, geoms[0]) is first
    cache.get(2, geoms[2])  # 1 goes, the least recently used
    assert cache.get(0, geoms[0]) is first
    cache.drop(0)
    cache.drop(77)
    assert cache.get(0, geoms[0]) is not first


@settings(deadline=None)
@given(regions)
def test_round_trips(region: Region) -> None:
    assert decode_region(shape_of(region), geom_of(region)) == region
    written = json.dumps(region.to_json(), allow_nan=False)
    assert from_json(json.loads(written), stored=True) == region


@settings(deadline=None)
@given(polygons())
@example(Polygon(shapely.box(-170, -10, 170, 10)))
@example(Polygon(shapely.box(-180, -10, 180, 10)))  # a whole band
@example(Polygon(shapely.box(-90, -10, 90, 10)))
def test_an_edge_that_may_be_meant_either_way_is_refused(region: Polygon) -> None:
    value = region.to_json()
    bad = naive.ambiguous_edges(value)
    if not bad:
        assert from_json(value) == region
        return
    with pytest.raises(InvalidArgument) as error:
        from_json(value)
    (violation,) = error.value.violations
    at = [int(i) for i in re.findall(r"\[(\d+)\]", violation.field)]
    ring = value["coordinates"]
    for i in at[:-1]:
        ring = ring[i]
    assert (ring[at[-1]], ring[at[-1] + 1]) == tuple(bad[0])
    assert "split the polygon there" in violation.description
    corner = re.search(r"such as \[(.*), (.*)\]$", violation.description)
    assert corner is not None
    lon, lat = map(float, corner.groups())
    for end in bad[0]:
        assert abs(end[0] - lon) < 180.001
    assert min(e[1] for e in bad[0]) - 1e-3 <= lat <= max(e[1] for e in bad[0]) + 1e-3


def test_equal_polygons_are_one_value() -> None:
    hole = [(1, 1), (1, 2), (2, 2), (2, 1)]
    a = Polygon(shapely.Polygon([(0, 0), (5, 0), (5, 5), (0, 5)], [hole]))
    b = Polygon(shapely.Polygon([(5, 5, 9), (5, -0.0, 9), (0, 0, 9), (0, 5, 9)], [hole[::-1]]))
    twice = [(0, 0), (0, 0), (5, 0), (5, 5), (5, 5), (5, 5), (0, 5), (-0.0, -0.0)]
    assert (
        a == b == Polygon(shapely.Polygon(twice, [hole])) == decode_region(shape_of(a), geom_of(a))
    )
    assert hash(a) == hash(b)
    assert geom_of(a).tolist() == geom_of(b).tolist()
    shell, inner = (shapely.LinearRing(ring) for ring in a.to_json()["coordinates"])
    assert shell.is_ccw
    assert not inner.is_ccw
    assert geom_of(Rect(-0.0, -0.0, 1, 1)).tobytes() == geom_of(Rect(0, 0, 1, 1)).tobytes()


@pytest.mark.parametrize(
    ("make", "field", "problem"),
    [
        (lambda: Rect(math.nan, 0, 1, 1), "lon_min", "nan is not finite"),
        (lambda: Rect(0, -91, 1, 1), "lat_min", "-91.0 is not in [-90, 90]"),
        (lambda: Rect(0, 0, 180.00001, 1), "lon_max", "180.00001 is not in [-180, 180]"),
        (lambda: Rect(0, 0, 1, math.inf), "lat_max", "inf is not finite"),
        (lambda: Rect(0, 2, 1, 1), "lat_min", "2.0 is above lat_max 1.0"),
        (lambda: Circle(0, 0, 0), "radius_km", f"above 0 and at most {RADIUS_KM}"),
        (lambda: Circle(0, 0, -1), "radius_km", "above 0"),
        (lambda: Circle(0, 0, 20_015.3), "radius_km", "20015.3 is not above 0"),
        (lambda: Circle(0, 0, math.nan), "radius_km", "not finite"),
        (lambda: Circle(181, 0, 1), "lon", "181.0"),
        (lambda: Circle(37.7, -122.4, 9), "lat", "90]; did you mean lon -122.4, lat 37.7?"),
        (
            lambda: Rect(37, -123, 38, -122),
            "lat_max",
            "did you mean lon_min -123, lat_min 37, lon_max -122, lat_max 38?",
        ),
        (
            lambda: Polygon(shapely.box(37, -123, 38, -122)),
            "coordinates",
            "; each corner is [longitude, latitude]",
        ),
        (lambda: Polygon(shapely.Polygon()), "coordinates", "empty"),
        (lambda: Polygon(shapely.Point(0, 0)), "coordinates", "got Point"),
        (lambda: Polygon(shapely.box(170, 0, 190, 1)), "coordinates", "RFC 7946 3.1.9"),
        (lambda: Polygon(shapely.box(0, 0, 1, 91)), "coordinates", "latitude 91.0"),
        (
            lambda: Polygon(shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])),
            "coordinates",
            "Self-intersection",
        ),
        (broken_polygon, "coordinates", "not finite"),
        (
            lambda: Polygon(shapely.Point(0, 0).buffer(1, quad_segs=2501)),
            "coordinates",
            f"10005 vertices are over the limit polygon_vertices {POLYGON_VERTICES}",
        ),
        (lambda: from_json({"type": "Rect", "lon_min": 1}), "lon_max", "is missing"),
        (lambda: from_json({"type": "Circle", "lon": "1"}), "lon", "is not a number"),
        (
            lambda: from_json({"type": "Circle", "lon": 1, "lat": 1, "radius_km": 1, "x": 1}),
            "x",
            "is not a field of a Circle",
        ),
        (lambda: from_json({"type": "Point"}), "type", "got 'Point'"),
        (lambda: from_json([1]), "", "expected an object, got list"),
        (lambda: from_json({"type": "Polygon"}), "coordinates", "expected an array, got NoneType"),
        (
            lambda: from_json({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 0]]]}),
            "coordinates[0]",
            "a ring has 3 positions",
        ),
        (
            lambda: from_json(
                {"type": "MultiPolygon", "coordinates": [[[[0, 0], [1, 0], [1, 1], [0, 1]]]]}
            ),
            "coordinates[0][0]",
            "not closed",
        ),
        (
            lambda: from_json({"type": "Polygon", "coordinates": [[[0, 0], [1], [1, 1], [0, 0]]]}),
            "coordinates[0][1]",
            "expected [longitude, latitude]",
        ),
        (
            lambda: from_json(
                {"type": "Polygon", "coordinates": [[[0, 0], [1, 1e999], [1, 1], [0, 0]]]}
            ),
            "coordinates[0][1]",
            "not finite",
        ),
        (
            lambda: from_json({"type": "Circle", "lon": 10**400, "lat": 1, "radius_km": 1}),
            "lon",
            "not finite",
        ),
        (lambda: from_json({"type": "Polygon", "coordinates": []}), "coordinates", "empty"),
        (
            lambda: from_json({"type": "Polygon", "coordinates": [[[0, 0]] * 10_001]}),
            "coordinates",
            "limit polygon_vertices 10000",
        ),
    ],
)
def test_refused(make: Any, field: str, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make()
    paths = {v.field: v.description for v in caught.value.violations}
    assert problem in paths["region" + (f".{field}" if field else "")]


def test_a_degenerate_polygon_is_refused_without_a_warning() -> None:
    edge = 89.99999999999999
    ring = [(edge, 0), (edge, 1), (90, 1e-300), (1e-300, 5e-324), (edge, 1e-300)]
    with pytest.raises(InvalidArgument, match="invalid polygon"):
        Polygon(shapely.Polygon(ring))


def test_rect_columns_name_each_bad_field() -> None:
    bad = np.array([[0.0, 0, 1, 1], [0, 1, 1, 0], [math.nan, 0, 1, 1], [0, 0, 999, 99]])
    assert [p[:2] for p in rect_problems(bad)] == [
        (1, "region.lat_min"),
        (2, "region.lon_min"),
        (3, "region.lon_max"),
        (3, "region.lat_max"),
    ]


@settings(deadline=None)
@given(lons, lats, lons, lats)
def test_great_circle_is_the_naive_one(a: float, b: float, c: float, d: float) -> None:
    expected = naive.great_circle_km(a, b, c, d)
    assert haversine_km(a, b, c, d) == pytest.approx(expected, rel=1e-7, abs=1e-6)
    assert haversine_km(a, b, a, b) == 0


@settings(deadline=None)
@given(lons, lats, st.floats(0.001, 50_000))
def test_squares_are_valid_and_hold_their_centre(lon: float, lat: float, side: float) -> None:
    rect = Rect(*(float(c[0]) for c in square_km(*(np.array([v]) for v in (lon, lat, side)))))
    assert rect.contains(lon, lat)
    assert rect.lat_max - rect.lat_min <= side / KM_PER_DEGREE + 1e-9


def test_square_side_at_the_latitude_of_its_centre() -> None:
    west, south, east, north = (
        float(c[0]) for c in square_km(np.array([179.9]), np.array([60.0]), np.array([50.0]))
    )
    assert west > 179
    assert east < -179
    width = haversine_km(west, 60.0, east, 60.0)
    height = haversine_km(0.0, south, 0.0, north)
    assert width == pytest.approx(50, rel=1e-4)
    assert height == pytest.approx(50, rel=1e-9)
