# mypy: disallow-untyped-decorators=False
"""Numba kernels over positions: cells, covers, boxes of rectangles, exact predicates.

Positions are float64 degrees, WGS 84, already validated. -180 and 180 are one meridian
and a pole is one point (semantics.md 2): both count as longitude -180 here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ps2stream.limits import LAT_MAX, LON_MAX
from ps2stream.protocol.frame import F64, I64, U8, U32
from ps2stream.protocol.rows import RegionShape
from ps2stream.space import sphere
from ps2stream.space.polygon_kernels import UNDECIDED, hold_point
from ps2stream.space.prefetch import prefetch

LEVEL_SHIFT = 28  # tag_cell = level << 28 | row * columns + column
CELL_MASK = (1 << LEVEL_SHIFT) - 1

in_rect = njit(cache=True, nogil=True)(sphere.in_rect)
haversine_km = njit(cache=True, nogil=True)(sphere.haversine_km)

_AHEAD = 8  # points
_LINES = 10  # of a geometry that are asked for
ask: Any = prefetch  # or mypy takes the context for an argument
_WORLD, _RECT, _CIRCLE = int(RegionShape.WORLD), int(RegionShape.RECT), int(RegionShape.CIRCLE)


@njit(inline="always")
def grid_line(x: float, lines: F64, is_lat: int) -> int:
    """Returns the column of a longitude (is_lat = 0) or the row of a latitude (1) on level 0;
    lines: of a grid, or a pointer to them (see `Grid.lines`).

    The result is monotone in x, and on a grid of equal cells exact on their borders: the number of
    columns between two meridians is a power of two, so only difference and quotient round.
    """
    bits, spans = int(lines[is_lat]), int(lines[2 + is_lat])
    at = 4 + is_lat * (int(lines[2]) + 1)
    span, step = 0, spans >> 1
    while step > 0:
        if x >= lines[at + span + step]:
            span += step
        step >>= 1
    low, high = lines[at + span], lines[at + span + 1]
    n = (1 << bits) // spans
    line = int((x - low) * n / (high - low))
    return span * n + min(max(line, 0), n - 1)


@njit(inline="always")
def cell_at(lon: float, lat: float, lines: F64, level: int) -> np.uint32:
    """Returns the tag cell (uint32) of a point on a level; cells are half-open, the last row is
    closed. lines: as in `grid_line`."""
    lon_bits, lat_bits = int(lines[0]), int(lines[1])
    col = 0
    if lon < 180.0 and -90.0 < lat < 90.0:
        col = grid_line(lon, lines, 0) >> min(2 * level, lon_bits)
    row = grid_line(lat, lines, 1) >> min(2 * level, lat_bits)
    return np.uint32(level << LEVEL_SHIFT | row << max(lon_bits - 2 * level, 0) | col)


@njit(cache=True, nogil=True)
def find_cells(lon: F64, lat: F64, lines: F64, level: int, out: U32) -> None:
    """Fills out[i] with `cell_at` of point i."""
    for i in range(len(lon)):
        out[i] = cell_at(lon[i], lat[i], lines, level)


@njit(inline="always")
def span_box(x0: float, y0: float, x1: float, y1: float, lines: F64) -> tuple[int, int, int, int]:
    """Returns (first column, last column, first row, last row) of a closed box on level 0."""
    c0 = c1 = 0
    if not (y0 == y1 and abs(y0) == 90.0) and x0 < 180.0:
        c0, c1 = grid_line(x0, lines, 0), grid_line(x1, lines, 0)
    return c0, c1, grid_line(y0, lines, 1), grid_line(y1, lines, 1)


@njit(cache=True, nogil=True)
def _query_spans(
    box_off: I64, box: F64, q: int, lines: F64
) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
    """Returns the spans of a query's two boxes; the span of a single box twice."""
    b = box_off[q]
    a = span_box(box[b], box[b + 1], box[b + 2], box[b + 3], lines)
    if box_off[q + 1] - b < 8:
        return a, a
    return a, span_box(box[b + 4], box[b + 5], box[b + 6], box[b + 7], lines)


@njit(cache=True, nogil=True)
def _raise_span(
    s: tuple[int, int, int, int], lon_shift: int, lat_shift: int
) -> tuple[int, int, int, int]:
    return s[0] >> lon_shift, s[1] >> lon_shift, s[2] >> lat_shift, s[3] >> lat_shift


@njit(cache=True, nogil=True)
def _count_cells(c0: int, c1: int, r0: int, r1: int) -> int:
    return max(c1 - c0 + 1, 0) * max(r1 - r0 + 1, 0)


@njit(cache=True, nogil=True)
def cover_sizes(box_off: I64, box: F64, lines: F64, max_cells: int, level: U8, off: I64) -> None:
    """Fills level[q], the finest on which the query touches at most max_cells cells, and
    the offsets off[q + 1] of its cells (algorithms.md 7.7)."""
    lon_bits, lat_bits = int(lines[0]), int(lines[1])
    off[0] = 0
    for q in range(len(level)):
        first, second = _query_spans(box_off, box, q, lines)
        lv = 0
        while True:
            a = _raise_span(first, min(2 * lv, lon_bits), min(2 * lv, lat_bits))
            b = _raise_span(second, min(2 * lv, lon_bits), min(2 * lv, lat_bits))
            n = _count_cells(a[0], a[1], a[2], a[3]) + _count_cells(b[0], b[1], b[2], b[3])
            n -= _count_cells(max(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), min(a[3], b[3]))
            if n <= max_cells:
                break
            lv += 1
        level[q] = lv
        off[q + 1] = off[q] + n


@njit(cache=True, nogil=True)
def cover_cells(box_off: I64, box: F64, lines: F64, level: U8, off: I64, out: U32) -> None:
    """Fills in the cells of each query, ascending, each once, after `cover_sizes`."""
    lon_bits, lat_bits = int(lines[0]), int(lines[1])
    for q in range(len(level)):
        lv: Any = np.int64(level[q])
        lon_shift = min(2 * lv, lon_bits)
        first, second = _query_spans(box_off, box, q, lines)
        a = _raise_span(first, lon_shift, min(2 * lv, lat_bits))
        b = _raise_span(second, lon_shift, min(2 * lv, lat_bits))
        if b[0] < a[0]:
            a, b = b, a
        at = off[q]
        for row in range(min(a[2], b[2]), max(a[3], b[3]) + 1):
            base = lv << LEVEL_SHIFT | row << (lon_bits - lon_shift)
            next_col = 0
            if a[2] <= row <= a[3]:
                for col in range(a[0], a[1] + 1):
                    out[at] = np.uint32(base | col)
                    at += 1
                next_col = a[1] + 1
            if b[2] <= row <= b[3]:
                for col in range(max(b[0], next_col), b[1] + 1):
                    out[at] = np.uint32(base | col)
                    at += 1


@njit(cache=True, nogil=True)
def boxes_of(lon_min: float, lat_min: float, lon_max: float, lat_max: float, out: F64) -> int:
    """Fills out[2, 4] with the boxes of a rectangle and returns how many there are.

    The boxes hold both names of the meridian of 180 degrees and all names of a pole, so that
    positions may be compared as they came. A single box is exactly the rectangle. Two boxes may
    hold more, namely where two cannot be exact: at a pole and at that meridian, or at both
    poles.
    """
    north, south = lat_max == 90.0, lat_min == -90.0
    out[0, 1] = out[1, 1] = lat_min
    out[0, 3] = out[1, 3] = lat_max
    out[0, 0], out[0, 2] = lon_min, lon_max
    n = 1
    if lon_min > lon_max:
        out[0, 2] = 180.0
        out[1, 0], out[1, 2] = -180.0, lon_max
        n = 2
    elif lon_min == -180.0 and lon_max == 180.0:
        return 1
    elif lon_max == 180.0:
        out[1, 0] = out[1, 2] = -180.0
        n = 2
    elif lon_min == -180.0:
        out[1, 0] = out[1, 2] = 180.0
        n = 2
    if not (north or south):
        return n
    pole = 90.0 if north else -90.0
    if lat_min == lat_max or n == 2 or (north and south):
        out[0, 0], out[0, 2] = -180.0, 180.0
        n = 1 if lat_min == lat_max else 2
    else:
        n = 2
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = -180.0, pole, 180.0, pole
    return n


@njit(cache=True, nogil=True)
def rect_boxes(rects: F64, off: I64, out: F64) -> int:
    """Packs the boxes of rectangles float64[n, 4] into out[2 n, 4] and returns their number;
    off[n + 1] counts float64 elements."""
    n = 0
    off[0] = 0
    for i in range(len(rects)):
        r = rects[i]
        n += boxes_of(r[0], r[1], r[2], r[3], out[n : n + 2])
        off[i + 1] = 4 * n
    return n


@njit(cache=True, nogil=True)
def verify_simple(shape: U8, start: I64, geom: F64, pick: I64, lon: F64, lat: F64, out: U8) -> int:
    """Sets out[i] to 1 if the region of row pick[i], whose geometry begins at geom[start], holds
    the point, to 0 if not, and to 2 if it is a polygon that is left to GEOS. Returns the number of
    these."""
    left = 0
    for i in range(len(pick)):
        if i + _AHEAD < len(pick):
            g = start[pick[i + _AHEAD]]
            for k in range(_LINES):
                ask(geom, g + 8 * k)
        q = pick[i]
        g = start[q]
        x, y = lon[i], lat[i]
        if shape[q] == _WORLD:
            out[i] = 1
        elif shape[q] == _RECT:
            out[i] = in_rect(geom[g], geom[g + 1], geom[g + 2], geom[g + 3], x, y)
        elif shape[q] == _CIRCLE:
            out[i] = haversine_km(geom[g], geom[g + 1], x, y) <= geom[g + 2]
        else:
            out[i] = hold_point(geom, g, x, y)
            left += out[i] == UNDECIDED
    return left


@njit(cache=True, nogil=True)
def count_bad_rects(lon_min: F64, lat_min: F64, lon_max: F64, lat_max: F64, world: U8) -> int:
    """Returns how many rectangles have a side beyond its limit or south above north. Rows of
    `world`, which is empty where there are none, count as good."""
    bad = 0
    for i in range(len(lon_min)):
        good = abs(lon_min[i]) <= LON_MAX and abs(lon_max[i]) <= LON_MAX
        good = good and abs(lat_min[i]) <= LAT_MAX and abs(lat_max[i]) <= LAT_MAX
        good = good and lat_min[i] <= lat_max[i]
        bad += not good and not (len(world) and world[i])
    return bad


@njit(cache=True, nogil=True)
def pack_rects(
    sides: tuple[F64, F64, F64, F64],
    world: U8,
    shape: U8,
    off: I64,
    geom: F64,
    box: F64,
) -> tuple[int, int]:
    """Fills the columns of n rectangles, -0.0 as 0.0: shape uint8[n]; the offsets of geometries and
    boxes, off int64[2, n + 1]; geom float64[4 n] and box float64[2 n, 4]. Returns how many numbers
    of `geom` and boxes there are. sides: lon_min, lat_min, lon_max, lat_max; `world` as in
    `count_bad_rects`: these rows have no geometry, and the whole world as their box."""
    lon_min, lat_min, lon_max, lat_max = sides
    used = boxes = 0
    off[0, 0] = off[1, 0] = 0
    for i in range(len(shape)):
        if len(world) and world[i]:
            shape[i] = _WORLD
            box[boxes, 0], box[boxes, 1] = -LON_MAX, -LAT_MAX
            box[boxes, 2], box[boxes, 3] = LON_MAX, LAT_MAX
            boxes += 1
        else:
            shape[i] = _RECT
            geom[used], geom[used + 1] = lon_min[i] + 0.0, lat_min[i] + 0.0
            geom[used + 2], geom[used + 3] = lon_max[i] + 0.0, lat_max[i] + 0.0
            west, south, east, north = geom[used], geom[used + 1], geom[used + 2], geom[used + 3]
            boxes += boxes_of(west, south, east, north, box[boxes : boxes + 2])
            used += 4
        off[0, i + 1] = used
        off[1, i + 1] = 4 * boxes
    return used, boxes
