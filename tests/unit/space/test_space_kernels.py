"""The sources of queries, byte by byte, against a twin that joins bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.rows import RegionShape
from ps2stream.space import space_kernels as kernels
from tests import naive

ROWS = st.lists(
    st.tuples(
        st.sampled_from(RegionShape),
        st.lists(st.floats(allow_nan=False), max_size=4),
        st.binary(max_size=6),
        st.none() | st.binary(max_size=6),
    ),
    max_size=9,
)


def ragged(parts: list[bytes]) -> tuple[I64, U8]:
    off = np.cumsum([0, *map(len, parts)])
    return off, np.frombuffer(b"".join(parts), np.uint8)


@given(ROWS)
def test_sources_are_those_of_the_twin(
    rows: list[tuple[RegionShape, list[float], bytes, bytes | None]],
) -> None:
    """Without text typed otherwise, a source ends with the canonical one."""
    shape = np.array([row[0] for row in rows], np.uint8)
    geom = [np.array(row[1], "<f8").tobytes() for row in rows]
    canonical = ragged([row[2] for row in rows])
    typed = [row[2] if row[3] is None else row[3] for row in rows]
    written = ragged(typed)
    tails = [
        b"\0" + t if t != row[2] and row[2] else b"" for row, t in zip(rows, typed, strict=True)
    ]
    more = np.full(len(rows), -1, np.int64)
    kernels.measure_typed(*canonical, *written, more)
    assert more.tolist() == [len(tail) for tail in tails]
    want = [
        bytes([row[0]]) + g + row[2] + tail for row, g, tail in zip(rows, geom, tails, strict=True)
    ]
    off = np.cumsum([0, *map(len, want)])
    out = np.zeros(off[-1], np.uint8)
    geom_off, words = ragged(geom)
    kernels.write_sources(shape, (geom_off // 8, words), canonical, written, off, out)
    assert out.tobytes() == b"".join(want)


@pytest.mark.parametrize("seed", range(4))
def test_rectangles_and_circles_hold_what_the_definition_says(seed: int) -> None:
    """Corners at the poles and the antimeridian; polygons are left to GEOS."""
    rng = np.random.default_rng(seed)
    x, y = [-180.0, -0.0, 0.0, 17.5, 180.0], [-90.0, -0.0, 0.0, 33.25, 90.0]
    regions = []
    for _ in range(60):
        south, north = np.sort(rng.choice(y, 2)).tolist()
        west, east = rng.choice(x, 2).tolist()
        sides = {"lon_min": west, "lat_min": south, "lon_max": east, "lat_max": north}
        regions.append({"type": "Rect", **sides})
    geom = [[r["lon_min"], r["lat_min"], r["lon_max"], r["lat_max"]] for r in regions]
    column = np.array([*np.ravel(geom), 17.5, 33.25, 0.0, 0.0, 0.0, 30_000.0])
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
