"""Kernels over positions and rectangles, against twins that take one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.errors import InvalidArgument
from ps2stream.protocol.frame import F64
from ps2stream.protocol.rows import RegionShape
from ps2stream.space import space_kernels as kernels
from ps2stream.space.region_rows import boxes_of, geom_of, shape_of
from ps2stream.space.regions import Rect, World
from tests import naive

LON = st.sampled_from([-180.0, -0.0, 0.0, 17.5, 180.0])
LAT = st.sampled_from([-90.0, -0.0, 0.0, 33.25, 90.0])
WRONG = st.sampled_from([float("nan"), float("inf"), -181.0, 90.5])
SIDES = st.tuples(LON, LAT, LON, LAT)


def columns(rows: Sequence[tuple[float, ...]]) -> tuple[F64, F64, F64, F64]:
    west, south, east, north = np.array(rows, np.float64).reshape(-1, 4).T.copy()
    return west, south, east, north


@given(st.lists(st.tuples(*[LON | WRONG, LAT | WRONG] * 2, st.booleans())))
def test_bad_rectangles_are_counted(rows: list[tuple[float, float, float, float, bool]]) -> None:
    def is_bad(sides: tuple[float, ...]) -> bool:
        try:
            Rect(*sides)
        except InvalidArgument:
            return True
        return False

    sides, world = [row[:4] for row in rows], np.array([row[4] for row in rows], np.uint8)
    bad = [is_bad(row) for row in sides]
    assert kernels.count_bad_rects(*columns(sides), np.zeros(0, np.uint8)) == sum(bad)
    left = [row for row, is_world in zip(bad, world, strict=True) if not is_world]
    assert kernels.count_bad_rects(*columns(sides), world) == sum(left)


@given(st.lists(st.tuples(SIDES, st.booleans())), st.booleans())
def test_rectangles_are_packed_as_one_by_one(
    rows: list[tuple[tuple[float, float, float, float], bool]], some: bool
) -> None:
    rows = [(sides, world and some) for sides, world in rows if sides[1] <= sides[3]]
    n = len(rows)
    world = np.array([world for _, world in rows] if some else [], np.uint8)
    shape, off = np.zeros(n, np.uint8), np.zeros((2, n + 1), np.int64)
    geom, box = np.zeros(4 * n), np.zeros((2 * n, 4))
    used, boxes = kernels.pack_rects(
        columns([row[0] for row in rows]), world, shape, off, geom, box
    )
    regions = [World() if is_world else Rect(*sides) for sides, is_world in rows]
    assert shape.tolist() == list(map(shape_of, regions))
    geoms, several = [geom_of(r) for r in regions], [boxes_of(r) for r in regions]
    assert off[0].tolist() == np.cumsum([0, *map(len, geoms)]).tolist()
    assert off[1].tolist() == np.cumsum([0, *(4 * len(b) for b in several)]).tolist()
    assert geom[:used].tobytes() == (np.concatenate([np.zeros(0), *geoms]) + 0.0).tobytes()
    want = np.concatenate([np.zeros((0, 4)), *several]) + 0.0
    assert box[:boxes].tobytes() == want.tobytes()


@pytest.mark.parametrize("seed", range(4))
def test_rectangles_and_circles_hold_what_the_definition_says(seed: int) -> None:
    """Corners at the poles and the antimeridian; a large polygon is left to GEOS."""
    rng = np.random.default_rng(seed)
    x, y = [-180.0, -0.0, 0.0, 17.5, 180.0], [-90.0, -0.0, 0.0, 33.25, 90.0]
    regions = []
    for _ in range(60):
        south, north = np.sort(rng.choice(y, 2)).tolist()
        west, east = rng.choice(x, 2).tolist()
        sides = {"lon_min": west, "lat_min": south, "lon_max": east, "lat_max": north}
        regions.append({"type": "Rect", **sides})
    geom = [[r["lon_min"], r["lat_min"], r["lon_max"], r["lat_max"]] for r in regions]
    column = np.array([*np.ravel(geom), 17.5, 33.25, 0.0, 0.0, 0.0, 30_000.0, 1e6])
    off = np.r_[np.arange(0, 241, 4), 240, 243, 246, 246]
    rect, world = int(RegionShape.RECT), int(RegionShape.WORLD)
    circle, polygon = int(RegionShape.CIRCLE), int(RegionShape.POLYGON)
    shape = np.array([rect] * 60 + [world, circle, circle, polygon], np.uint8)
    points = [(a, b) for a in x for b in y]
    pick = np.repeat(np.arange(64), len(points))
    lon, lat = (np.tile([p[i] for p in points], 64) for i in (0, 1))
    out = np.full(len(pick), 9, np.uint8)
    left = kernels.verify_simple(shape, off, column, pick, lon, lat, out)
    assert left == len(points)
    want = [int(naive.inside(region, a, b)) for region in regions for a, b in points]
    want += [1] * len(points) + [int(p == (17.5, 33.25)) for p in points] + [1] * len(points)
    assert out.tolist() == want + [2] * len(points)
