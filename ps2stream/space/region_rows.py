"""Regions as columns: their shapes, geometries and boxes as arrays, decoded and tested in bulk.

Routing uses the boxes of a region (algorithms.md 1.6), verification its shape and geometry.
"""

from __future__ import annotations

import math

import numpy as np

from ps2stream.errors import InvalidArgument
from ps2stream.limits import LAT_MAX, LON_MAX
from ps2stream.protocol.frame import F64, I64, U8, sealed
from ps2stream.protocol.rows import RegionShape
from ps2stream.space import space_kernels as kernels
from ps2stream.space.polygon_kernels import UNDECIDED
from ps2stream.space.polygons import (
    Bool,
    PolygonCache,
    decode,
    encode,
    parts_of,
    polygons_hold,
    words_of,
)
from ps2stream.space.regions import RECT_LIMITS, Circle, Polygon, Rect, Region, World
from ps2stream.space.sphere import EARTH_KM, KM_PER_DEGREE

# Outward, in radians: above the error of the haversine near the antipode, sqrt(2^-53).
_MARGIN = 1e-7
_SHAPES = {
    World: RegionShape.WORLD,
    Rect: RegionShape.RECT,
    Circle: RegionShape.CIRCLE,
    Polygon: RegionShape.POLYGON,
}


# --- one region -----------------------------------------------------------


def shape_of(region: Region) -> RegionShape:
    """Returns the shape that a row has for this region."""
    return _SHAPES[type(region)]


def geom_of(region: Region) -> F64:
    """Returns what a row has for the geometry of this region (protocol/rows.py)."""
    match region:
        case Rect():
            return np.array([region.lon_min, region.lat_min, region.lon_max, region.lat_max])
        case Circle():
            return np.array([region.lon, region.lat, region.radius_km])
        case Polygon():
            return encode(region.geometry)
    return np.zeros(0)


def boxes_of(region: Region) -> F64:
    """Returns the bounding boxes, float64[k, 4], k 1 or 2: lon_min, lat_min, lon_max, lat_max.

    A single box of a rectangle is exactly this rectangle. Those of a circle are half a metre wider
    than it, and the full longitude band if it holds a pole."""
    match region:
        case Rect():
            return _make_boxes(region.lon_min, region.lat_min, region.lon_max, region.lat_max)
        case Circle():
            return _make_circle_boxes(region)
        case Polygon():
            return _make_boxes(*region.bounds)
    return np.array([[-LON_MAX, -LAT_MAX, LON_MAX, LAT_MAX]])


def _make_circle_boxes(circle: Circle) -> F64:
    r = circle.radius_km / EARTH_KM + _MARGIN
    south, north = circle.lat - math.degrees(r), circle.lat + math.degrees(r)
    if south <= -LAT_MAX or north >= LAT_MAX:
        return _make_boxes(-LON_MAX, max(south, -LAT_MAX), LON_MAX, min(north, LAT_MAX))
    half = math.degrees(math.asin(min(1.0, math.sin(r) / math.cos(math.radians(circle.lat)))))
    west, east = circle.lon - half, circle.lon + half
    west += 360.0 if west < -LON_MAX else 0.0
    east -= 360.0 if east > LON_MAX else 0.0
    return _make_boxes(west, south, east, north)


def _make_boxes(lon_min: float, lat_min: float, lon_max: float, lat_max: float) -> F64:
    out = np.empty((2, 4))
    return out[: kernels.boxes_of(lon_min, lat_min, lon_max, lat_max, out)]


# --- columns --------------------------------------------------------------


def rect_problems(rects: F64) -> list[tuple[int, str, str]]:
    """Returns (row, `region.<side>`, description) of the bad rows of float64[n, 4], in row
    order."""
    bad = ~(np.abs(rects) <= np.array(RECT_LIMITS)).all(1) | ~(rects[:, 1] <= rects[:, 3])
    problems: list[tuple[int, str, str]] = []
    for row in np.flatnonzero(bad).tolist():
        try:
            Rect(*rects[row].tolist())
        except InvalidArgument as error:
            problems += [(row, field, text) for field, text in error.violations]
    return problems


def square_km(lon: F64, lat: F64, side_km: F64) -> tuple[F64, F64, F64, F64]:
    """Returns the sides (lon_min, lat_min, lon_max, lat_max) in degrees, float64[n], of squares
    of side_km around points, at the centre's latitude (algorithms.md 7.8). They are cut at the
    poles, are at most the full longitude band wide, and cross the antimeridian if need be.
    """
    high = np.asarray(side_km, np.float64) / (2.0 * KM_PER_DEGREE)
    wide = high / np.maximum(np.cos(np.radians(lat)), 1e-9)
    band = wide >= LON_MAX
    west, east = lon - wide, lon + wide
    west = np.where(band, -LON_MAX, np.where(west < -LON_MAX, west + 360.0, west))
    east = np.where(band, LON_MAX, np.where(east > LON_MAX, east - 360.0, east))
    return west, np.maximum(lat - high, -LAT_MAX), east, np.minimum(lat + high, LAT_MAX)


def verify(
    shape: U8,
    start: I64,
    geom: F64,
    pick: I64,
    lon: F64,
    lat: F64,
    polygons: PolygonCache | None = None,
    keys: I64 | None = None,
) -> Bool:
    """Returns bool[m]: whether the region of query row pick[i] holds the point (lon[i], lat[i]).

    shape is uint8[n]; start int64[n] says where their geometries, as in QueryRows, begin in geom;
    pick is int64[m], lon and lat are float64[m] degrees. With `polygons`, geometries stay prepared
    between calls under keys[row] (int64[n], the handles).
    """
    out = np.empty(len(pick), np.uint8)
    shape, start, geom, pick = sealed(shape), sealed(start), sealed(geom), sealed(pick)
    lon, lat = sealed(lon), sealed(lat)
    if kernels.verify_simple(shape, start, geom, pick, lon, lat, out):
        at = np.flatnonzero(out == UNDECIDED)
        rows = pick[at]
        cache = PolygonCache(len(rows)) if polygons is None or keys is None else polygons
        names = rows if keys is None else keys[rows]
        out[at] = hold_points(start[rows], geom, lon[at], lat[at], cache, names)
    return out.astype(np.bool_)


def hold_points(
    start: I64, geom: F64, lon: F64, lat: F64, polygons: PolygonCache, keys: I64
) -> Bool:
    """Returns bool[m]: whether polygon i holds point i, as GEOS has it. start int64[m]: where they
    begin in geom; keys int64[m]: under which they stay prepared."""
    geometries = np.empty(len(start), object)
    for i, (first, key) in enumerate(zip(start.tolist(), keys.tolist(), strict=True)):
        geometries[i] = polygons.get(key, geom[first : first + words_of(geom[first])])
    return polygons_hold(geometries, lon, lat)


def decode_region(shape: int, geom: F64) -> Region:
    """Decodes the region of a row's shape and geometry."""
    match RegionShape(shape):
        case RegionShape.WORLD:
            return World()
        case RegionShape.RECT:
            return Rect(*geom.tolist())
        case RegionShape.CIRCLE:
            return Circle(*geom.tolist())
        case RegionShape.POLYGON:
            return Polygon.from_normal_form(*parts_of(decode(geom)))
