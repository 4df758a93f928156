"""Queries and plans as GeoJSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shapely

from ps2stream.client.requests import Query
from ps2stream.errors import InvalidArgument
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.frame import U32
from ps2stream.routing.leaves import Moved, Space, Text
from ps2stream.routing.plan import RoutingPlan
from ps2stream.space.geojson import region_of
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Circle, Polygon, Rect
from ps2stream.web import shapes
from ps2stream.web.shapes import on_globe, plan_picture, query_feature

LEAVES = (Space(0), Text((0, 1, 2)), Moved(1, {0: 2}, {}))


def picture(cells: U32, bits: int) -> dict[str, object]:
    plan = RoutingPlan(3, Analysis(salt=1), Grid(bits, bits), LEAVES, cells.ravel())
    return plan_picture(json.dumps(plan.to_dict()).encode())


def test_a_query_has_its_region() -> None:
    rect = query_feature(Query("r", "x", Rect(170, -1, -170, 1), "s"), own=True)
    assert shapely.from_geojson(json.dumps(rect["geometry"])).bounds == (170, -1, 190, 1)
    assert rect["properties"] == {"id": "r", "expression": "x", "session": "s", "own": True}
    assert query_feature(Query("w", "x"), own=False)["geometry"] is None


@pytest.mark.parametrize(
    "circle",
    [
        Circle(10, 89, 500), Circle(170, -80, 3000), Circle(0, -90, 1000), Circle(5, 90, 1000),
        Circle(0, 0, 15_000), Circle(-170, 60, 12_000), Circle(179.5, 10, 900),
        Circle(3, 4, 20_015),
    ],
)  # fmt: skip
def test_a_circle_around_a_pole_is_drawn_as_what_it_holds(circle: Circle) -> None:
    feature = query_feature(Query("c", "x", circle), own=False)
    drawn = shapely.from_geojson(json.dumps(feature["geometry"]))
    shapely.prepare(drawn)
    rng = np.random.default_rng(1)
    wrong = 0
    for lon, lat in zip(rng.uniform(-180, 180, 800), rng.uniform(-90, 90, 800), strict=True):
        copies = [shapely.Point(lon + turn, lat) for turn in (-360, 0, 360)]
        wrong += any(map(drawn.contains, copies)) != circle.contains(float(lon), float(lat))
    assert wrong <= 8  # between the corners


def ring(*corners: tuple[float, float]) -> list[list[float]]:
    return [list(corner) for corner in (*corners, corners[0])]


def test_a_polygon_that_goes_on_beyond_180_degrees_is_cut_there() -> None:
    # A horseshoe that is open in the east: two parts lie there.
    shell = ring((170, 0), (190, 0), (190, 4), (175, 4), (175, 6), (190, 6), (190, 10), (170, 10))
    hole = ring((171, 1), (172, 1), (172, 2), (171, 2))
    cut = on_globe({"type": "Polygon", "coordinates": [shell, hole]})
    found = region_of("region", cut)
    assert isinstance(found, Polygon)
    assert list(found.geometry.bounds) == [-180, 0, 180, 10]
    assert found.geometry.area == shapely.Polygon(shell, [hole]).area
    for lon, lat, inside in (
        (179, 2, 1), (-171, 2, 1), (-171, 5, 0), (179, 5, 0), (174, 5, 1), (-171, 9, 1),
        (-169, 2, 0), (180, 2, 1), (-180, 8, 1), (171.5, 1.5, 0), (169, 2, 0),
    ):  # fmt: skip
        assert found.contains(lon, lat) == bool(inside), (lon, lat)
    beyond = on_globe({"type": "Polygon", "coordinates": [ring((181, 0), (190, 0), (190, 4))]})
    moved = region_of("region", beyond)
    assert isinstance(moved, Polygon)
    assert list(moved.geometry.bounds) == [-179, 0, -170, 4]


@pytest.mark.parametrize(
    "region",
    [
        None,
        {"type": "Rect", "lon_min": 170, "lat_min": 0, "lon_max": 190, "lat_max": 1},
        {"type": "Polygon"},
        {"type": "Polygon", "coordinates": []},
        {"type": "Polygon", "coordinates": [[[1, 2, 3]], "x"]},
        {"type": "Polygon", "coordinates": [ring((170, 0), (180, 0), (180, 4))]},
        {"type": "Polygon", "coordinates": [ring((-181, 0), (181, 0), (180, 4))]},
        {"type": "Polygon", "coordinates": [ring((-170, 0), (191, 0), (180, 4))]},
    ],
)
def test_other_regions_are_left_to_the_service(region: object) -> None:
    assert on_globe(region) is region


def test_a_bow_tie_across_the_antimeridian_is_refused_by_its_name() -> None:
    corners = ring((170, 0), (190, 4), (190, 0), (170, 4))
    with pytest.raises(InvalidArgument, match=r"region\.coordinates: is not valid: Self-inter"):
        on_globe({"type": "Polygon", "coordinates": [corners]})


@pytest.mark.parametrize(("lon", "lat"), [(8.5, 47.4), (179.9, -10.0), (0.0, 80.0)])
def test_a_circle_is_a_ring_at_its_radius(lon: float, lat: float) -> None:
    feature = query_feature(Query("c", "x", Circle(lon, lat, 500.0)), own=False)
    (ring,) = feature["geometry"]["coordinates"]
    a, b = np.radians(np.array(ring)).T
    at = np.radians([lon, lat])
    cosine = np.sin(b) * np.sin(at[1]) + np.cos(b) * np.cos(at[1]) * np.cos(a - at[0])
    assert np.allclose(np.arccos(cosine) * 6371.0088, 500.0, atol=0.1)
    assert np.abs(np.diff(np.array(ring)[:, 0])).max() < 90  # no jump at the antimeridian


@pytest.mark.parametrize("seed", range(5))
def test_the_boxes_of_a_plan_are_its_cells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = np.kron(rng.integers(0, 3, (4, 4)), np.ones((2, 2))).astype(np.uint32)
    cells[rng.integers(8), rng.integers(8)] = 2
    found = picture(cells, 3)
    assert (found["version"], found["workers"]) == (1, 3)
    again = np.full((8, 8), 99)
    covered = 0
    for feature in found["leaves"]["features"]:  # type: ignore[index]
        west, south, east, north = shapely.from_geojson(json.dumps(feature["geometry"])).bounds
        rows = slice(round((south + 90) / 22.5), round((north + 90) / 22.5))
        columns = slice(round((west + 180) / 45), round((east + 180) / 45))
        again[rows, columns] = feature["properties"]["leaf"]
        covered += again[rows, columns].size
        held = [[0], [0, 1, 2], [2, 1]][feature["properties"]["leaf"]]
        assert feature["properties"]["workers"] == held
        assert feature["properties"]["text"] is (feature["properties"]["leaf"] > 0)
    assert (again == cells).all()
    assert covered == 64


def test_a_fine_plan_is_drawn_coarser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MAX_BOXES", 20)
    cells = np.random.default_rng(1).integers(0, 3, (16, 16)).astype(np.uint32)
    features = picture(cells, 4)["leaves"]["features"]  # type: ignore[index]
    assert 0 < len(features) <= 20
    area = sum(shapely.from_geojson(json.dumps(f["geometry"])).area for f in features)
    assert area == pytest.approx(360 * 180)


@pytest.mark.parametrize("lat", [91.0, 1e12, 1e300, float("inf"), 10**400])
def test_a_polygon_beyond_the_poles_is_left_to_the_service(lat: float) -> None:
    """Edges of more than 180 degrees get corners: of such a one, more than memory has."""
    ring = [[-179, 0], [179, lat], [0, lat], [-179, 0]]
    region = {"type": "Polygon", "coordinates": [ring]}
    assert on_globe(region) is region


def test_boxes_of_a_plan_are_where_its_lines_are() -> None:
    grid = Grid(2, 1, 64, (-180.0, 10.0, 180.0), (-90.0, 47.5, 90.0))
    cells = np.array([0, 0, 1, 1, 0, 2, 2, 1], np.uint32)
    plan = RoutingPlan(3, Analysis(salt=1), grid, LEAVES, cells)
    found = plan_picture(json.dumps(plan.to_dict()).encode())
    boxes: dict[int, list[tuple[float, ...]]] = {0: [], 1: [], 2: []}
    for feature in found["leaves"]["features"]:
        at = shapely.from_geojson(json.dumps(feature["geometry"])).bounds
        boxes[feature["properties"]["leaf"]].append(at)
    assert sorted(boxes[2]) == [(-85, 47.5, 95, 90)]
    for lon, lat in ((-100, 0), (-100, 60), (-80, 0), (20, 0), (20, 60), (100, 60)):
        leaf = int(cells[grid.cells(np.array([lon * 1.0]), np.array([lat * 1.0]), 0)[0]])
        held = [
            n
            for n, some in boxes.items()
            if any(w < lon < e and s < lat < n_ for w, s, e, n_ in some)
        ]
        assert held == [leaf]
