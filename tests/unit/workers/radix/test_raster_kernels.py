"""What the cells of a polygon's box say of points, against GEOS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely
from numba import njit

from ps2stream.space.polygon_kernels import OUTSIDE, UNDECIDED
from ps2stream.space.polygons import encode
from ps2stream.workers.radix.layout import X_BOX, X_GEOM
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.raster_kernels import SIDE, draw_raster, look_up_point

EXTRAS = 5


@njit
def call_draw(pool: Any, pool_f: Any, box: Any) -> Any:
    draw_raster(pointer_to(pool), pointer_to(pool_f), EXTRAS, pointer_to(box))


@njit
def call_look_up(pool: Any, box: Any, x: float, y: float) -> Any:
    return look_up_point(pointer_to(pool), EXTRAS, pointer_to(box), x, y)


def raster_of(geometry: Any) -> tuple[Any, Any]:
    """A pool with the extras of a polygon, whose words are not zero before, and its box."""
    geom = encode(geometry)
    pool = np.full(EXTRAS + X_GEOM + len(geom), 0xAAAAAAAAAAAAAAAA, np.uint64)
    pool.view(np.float64)[EXTRAS + X_GEOM :] = geom
    box = np.array(geometry.bounds)
    call_draw(pool, pool.view(np.float64), box)
    return pool, box


def drawn(rng: np.random.Generator, kind: int) -> Any:
    """Stars of few and many corners, some with a hole or a second part, and slivers."""
    n = int(rng.choice([3, 5, 20, 60, 3000]))
    angle = (np.arange(n) + rng.uniform(0, 0.9, n)) * (2 * np.pi / n)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1) * rng.uniform(4, 12, (n, 1))
    shape: Any = shapely.Polygon(ring * rng.choice([1.0, 1e-9, 7.0], 2))
    if kind == 1:
        shape = shape.difference(shapely.box(*(np.array(shape.bounds) * 0.2)))
    if kind == 2:
        shape = shapely.MultiPolygon([shape, shapely.box(100, -1, 130, 2)])
    return shape


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_known_of_a_cell_is_what_geos_says_of_its_points(seed: int) -> None:
    rng, decided, all_points = np.random.default_rng(seed), 0, 0
    for i in range(40):
        shape = drawn(rng, i % 3)
        if not shape.is_valid:
            continue
        pool, box = raster_of(shape)
        points = rng.uniform(box[:2], box[2:], (150, 2))
        lines = box[:2] + rng.integers(0, SIDE + 1, (50, 2)) / SIDE * (box[2:] - box[:2])
        corners = shapely.get_coordinates(shape)[:50]
        points = np.concatenate([points, np.clip(lines, box[:2], box[2:]), corners])
        want = np.asarray(shapely.intersects_xy(shape, *points.T)).tolist()
        found = [call_look_up(pool, box, x, y) for x, y in points.tolist()]
        assert all(f in (UNDECIDED, int(w)) for f, w in zip(found, want, strict=True))
        assert set(found[200:]) == {UNDECIDED}
        decided += sum(f != UNDECIDED for f in found[:150])
        all_points += 150
    assert decided > 0.3 * all_points


def test_a_square_within_a_frame_is_told_apart() -> None:
    frame = shapely.box(0, 0, 11, 11).difference(shapely.box(2.5, 2.5, 8.5, 8.5))
    pool, box = raster_of(frame)
    assert call_look_up(pool, box, 5.5, 5.5) == OUTSIDE
    assert call_look_up(pool, box, 1.5, 5.5) == 1
    assert call_look_up(pool, box, 2.4, 5.5) == UNDECIDED


def test_a_long_edge_leaves_the_cells_undecided_that_it_crosses_and_no_more() -> None:
    pool, box = raster_of(shapely.Polygon([(0, 0), (11, 0), (0, 11)]))
    assert call_look_up(pool, box, 2.5, 2.5) == 1
    assert call_look_up(pool, box, 9.5, 9.5) == OUTSIDE
    cells = [(i + 0.5, j + 0.5) for i in range(11) for j in range(11)]
    undecided = [c for c in cells if call_look_up(pool, box, *c) == UNDECIDED]
    near = [(x, y) for x, y in cells if min(x, y) < 1 or 10 <= x + y <= 12]
    assert undecided == near


def test_points_of_two_names_and_boxes_without_an_area_are_undecided() -> None:
    pool, box = raster_of(shapely.box(-180, -90, 180, 90))
    assert call_look_up(pool, box, 0.0, 0.0) == 1
    for x, y in ((180.0, 0.0), (-180.0, 0.0), (0.0, 90.0), (0.0, -90.0)):
        assert call_look_up(pool, box, x, y) == UNDECIDED
    flat = np.array([0.0, 0.0, 1.0, 0.0])
    call_draw(pool, pool.view(np.float64), flat)
    assert not pool[EXTRAS + X_BOX : EXTRAS + X_GEOM].any()
