"""Regions and points on hostile places, for the tests of space, grid and queries."""

from __future__ import annotations

import shapely
from hypothesis import strategies as st

from ps2stream.space.region_rows import boxes_of
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World

_LON_SPOTS = [-180.0, -179.99999999999997, -90.0, -1e-300, -0.0, 0.0, 0.703125, 10.0, 45.0, 90.0,
              179.99999999999997, 180.0]  # fmt: skip
_LAT_SPOTS = [-90.0, -89.99999999999999, -45.0, -0.0, 0.0, 0.703125, 10.0, 45.0, 89.99999999999999,
              90.0]  # fmt: skip
lons = st.sampled_from(_LON_SPOTS) | st.floats(-180, 180)
lats = st.sampled_from(_LAT_SPOTS) | st.floats(-90, 90)
radii = st.sampled_from([5e-324, 1e-3, 10.0, 5000.0, 10_007.5, 20_015.1, 20_015.2]) | st.floats(
    1e-6, 20_015.2
)


@st.composite
def rects(draw: st.DrawFn) -> Rect:
    a, b = sorted([draw(lats), draw(lats)])
    return Rect(draw(lons), a, draw(lons), b)


@st.composite
def polygons(draw: st.DrawFn) -> Polygon:
    """Boxes, triangles, boxes with a hole, pairs of boxes; perhaps on a border."""
    x0, x1 = sorted([draw(lons), draw(lons)])
    y0, y1 = sorted([draw(lats), draw(lats)])
    x1 = x1 if x1 - x0 > 1e-3 else (x0 + 1 if x0 < 179 else x0 - 1)
    y1 = y1 if y1 - y0 > 1e-3 else (y0 + 1 if y0 < 89 else y0 - 1)
    x0, x1, y0, y1 = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
    box = shapely.box(x0, y0, x1, y1)
    xm, ym = (x0 + x1) / 2, (y0 + y1) / 2
    kind = draw(st.integers(0, 3))
    if kind == 1:
        return Polygon(shapely.Polygon([(x0, y0), (x1, y0), (xm, y1)]))
    if kind == 2:
        hole = shapely.box((x0 + xm) / 2, (y0 + ym) / 2, xm, ym).exterior
        return Polygon(shapely.Polygon(box.exterior, [hole]))
    if kind == 3:
        other = shapely.box(xm, ym, x1, y1)
        return Polygon(shapely.MultiPolygon([shapely.box(x0, y0, (x0 + xm) / 2, ym), other]))
    return Polygon(box)


circles = st.builds(Circle, lons, lats, radii)
regions: st.SearchStrategy[Region] = st.one_of(rects(), circles, polygons(), st.just(World()))


@st.composite
def regions_and_points(draw: st.DrawFn) -> tuple[Region, list[tuple[float, float]]]:
    """A region with points anywhere, on its sides and at its corners."""
    region = draw(regions)
    boxes = boxes_of(region)
    xs = lons | st.sampled_from(boxes[:, [0, 2]].ravel().tolist())
    ys = lats | st.sampled_from(boxes[:, [1, 3]].ravel().tolist())
    return region, draw(st.lists(st.tuples(xs, ys), min_size=1, max_size=20))
