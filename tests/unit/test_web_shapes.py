"""Queries and plans as GeoJSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shapely

from ps2stream.api import Query
from ps2stream.batch import U32
from ps2stream.grid import Grid
from ps2stream.leaves import Moved, Space, Text
from ps2stream.plan import RoutingPlan
from ps2stream.space import Circle, Rect
from ps2stream.terms import Analysis
from ps2stream.web import shapes
from ps2stream.web.shapes import plan_picture, query_feature

LEAVES = (Space(0), Text((0, 1, 2)), Moved(1, {0: 2}, {}))


def picture(cells: U32, bits: int) -> dict[str, object]:
    plan = RoutingPlan(3, Analysis(salt=1), Grid(bits, bits), LEAVES, cells.ravel())
    return plan_picture(json.dumps(plan.to_dict()).encode())


def test_a_query_has_its_region() -> None:
    rect = query_feature(Query("r", "x", Rect(170, -1, -170, 1), "s"), own=True)
    assert shapely.from_geojson(json.dumps(rect["geometry"])).bounds == (170, -1, 190, 1)
    assert rect["properties"] == {"id": "r", "expression": "x", "session": "s", "own": True}
    assert query_feature(Query("w", "x"), own=False)["geometry"] is None


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
