"""Polygons: validation, normal form, encoding in a column, and containment.

GEOS computes the geometry, through shapely, in the longitude/latitude plane; borders and
hole borders are inside (semantics.md 2).
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from ps2stream.limits import LAT_MAX, LON_MAX, POLYGON_VERTICES
from ps2stream.protocol.frame import F64

Bool = NDArray[np.bool_]
Geometry = shapely.Polygon | shapely.MultiPolygon


def polygon_problem(geometry: object) -> str:
    """Describes what is wrong with a polygon or multipolygon; "" if nothing is."""
    if not isinstance(geometry, shapely.Polygon | shapely.MultiPolygon):
        return f"expected a Polygon or MultiPolygon, got {type(geometry).__name__}"
    if geometry.is_empty:
        return "the polygon is empty"
    n = int(shapely.get_num_coordinates(geometry))
    if n > POLYGON_VERTICES:
        return f"{n} vertices are over the limit polygon_vertices {POLYGON_VERTICES}"
    points = shapely.get_coordinates(geometry)
    if not np.isfinite(points).all():
        return "a coordinate is not finite"
    for axis, name, limit in ((0, "longitude", LON_MAX), (1, "latitude", LAT_MAX)):
        worst = float(points[np.argmax(np.abs(points[:, axis])), axis])
        if abs(worst) > limit:
            advice = "; split a polygon that crosses the antimeridian (RFC 7946 3.1.9)"
            if axis:
                swapped = is_swapped(points[:, 0], points[:, 1])
                advice = "; each corner is [longitude, latitude]" if swapped else ""
            return f"{name} {worst} is not in [{-limit:g}, {limit:g}]" + advice
    with np.errstate(all="ignore"):  # GEOS raises flags on degenerate rings
        if not geometry.is_valid:
            return f"invalid polygon: {shapely.is_valid_reason(geometry)}"
    return ""


def is_swapped(lons: ArrayLike, lats: ArrayLike) -> bool:
    """Returns whether some latitude is out of range and all values would be valid with longitudes
    and latitudes exchanged."""
    far = float(np.max(np.abs(lats)))
    return LAT_MAX < far <= LON_MAX and float(np.max(np.abs(lons))) <= LAT_MAX


def normal_form(geometry: Geometry) -> Geometry:
    """Returns the geometry in two dimensions, without -0.0, without a point twice in a row, rings
    and parts in a fixed order, shells counter-clockwise (RFC 7946). Equal polygons, however
    written, become the same value."""
    plane = shapely.transform(shapely.force_2d(geometry), lambda points: points + 0.0)
    plane = shapely.remove_repeated_points(plane)
    return shapely.reverse(shapely.normalize(plane))  # GEOS orders shells clockwise


def polygon_rings(polygon: shapely.Polygon) -> list[list[list[float]]]:
    """Returns the GeoJSON coordinates of one polygon: the shell, then the holes."""
    rings = [polygon.exterior, *polygon.interiors]
    return [shapely.get_coordinates(ring).tolist() for ring in rings]


def planar_edges(geometry: Geometry) -> F64:
    """Returns the edges of all rings as lon, lat, lon, lat: float64[m, 4]."""
    rings = shapely.get_rings(shapely.get_parts(geometry))
    points, ring = shapely.get_coordinates(rings, return_index=True)
    within = ring[1:] == ring[:-1]
    return np.column_stack([points[:-1][within], points[1:][within]])


def find_ambiguous_edge(lons: F64) -> int | None:
    """Returns the index of the first edge of a ring, float64[n] longitudes, that spans more than
    180 and less than 360 degrees of longitude; None if there is none. Such an edge may be meant to
    cross the antimeridian, the short way; an edge of 360 degrees bounds a whole band of
    latitude."""
    span = np.abs(np.diff(lons))
    found = np.flatnonzero((span > LON_MAX) & (span < 2 * LON_MAX))
    return int(found[0]) if len(found) else None


def encode(geometry: Geometry) -> F64:
    """Encodes a geometry as the length of its WKB in bytes, then the WKB, eight bytes per
    element."""
    wkb = shapely.to_wkb(geometry, byte_order=1)
    words = np.frombuffer(wkb + bytes(-len(wkb) % 8), np.float64)
    return np.concatenate([[float(len(wkb))], words])


def decode(geom: F64) -> Geometry:
    """Decodes what `encode` returns. Raises ValueError if it is no polygon."""
    found = shapely.from_wkb(np.ascontiguousarray(geom[1:]).tobytes()[: int(geom[0])])
    if not isinstance(found, shapely.Polygon | shapely.MultiPolygon):
        raise ValueError(f"a {found.geom_type} is not a region")
    return found


def polygons_hold(geometries: NDArray[np.object_], lon: F64, lat: F64) -> Bool:
    """Returns bool[n]: whether geometries[i] covers point i, for both names of the antimeridian
    and every name of a pole."""
    inside = np.asarray(shapely.intersects_xy(geometries, lon, lat))
    edge = np.flatnonzero(np.abs(lon) == LON_MAX)
    if len(edge):
        inside[edge] |= shapely.intersects_xy(geometries[edge], -lon[edge], lat[edge])
    pole = np.flatnonzero(np.abs(lat) == LAT_MAX)
    if len(pole):
        bounds = shapely.bounds(geometries[pole])
        inside[pole] = np.where(lat[pole] > 0, bounds[:, 3], bounds[:, 1]) == lat[pole]
    return inside


class PolygonCache:
    """Prepared geometries by key (a query's handle). It holds at most `size` and evicts the least
    recently used first. Keys are never reused for another geometry."""

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._geometries: OrderedDict[int, Geometry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._geometries)

    def get(self, key: int, geom: F64) -> Geometry:
        """Returns the prepared geometry of a POLYGON row's `geom`."""
        found = self._geometries.get(key)
        if found is None:
            found = decode(geom)
            shapely.prepare(found)
            self._geometries[key] = found
            if len(self._geometries) > self._size:
                self._geometries.popitem(last=False)
        else:
            self._geometries.move_to_end(key)
        return found

    def drop(self, key: int) -> None:
        """Forgets a deleted query's geometry, if it is cached."""
        self._geometries.pop(key, None)
