"""Polygons: validation, encoding in a column, and containment.

GEOS computes the geometry, through shapely, in the longitude/latitude plane; borders and
hole borders are inside (semantics.md 2).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import shapely
from numpy.typing import NDArray

from ps2stream.limits import LAT_MAX, LON_MAX
from ps2stream.protocol.frame import F64
from ps2stream.space.rings import Part

Bool = NDArray[np.bool_]
Geometry = shapely.Polygon | shapely.MultiPolygon


def build_geometry(parts: Sequence[Part], multi: bool) -> Geometry:
    """Builds the geometry of closed rings."""
    made = [
        shapely.Polygon(np.array(shell), [np.array(hole) for hole in holes])
        for shell, *holes in parts
    ]
    return shapely.MultiPolygon(made) if multi else made[0]


def parts_of(geometry: Geometry) -> tuple[tuple[Part, ...], bool]:
    """Returns the rings of a geometry, and whether it is a multipolygon."""
    parts = tuple(
        tuple(
            tuple(map(tuple, shapely.get_coordinates(ring).tolist()))
            for ring in (polygon.exterior, *polygon.interiors)
        )
        for polygon in shapely.get_parts(geometry)
    )
    return parts, isinstance(geometry, shapely.MultiPolygon)


def polygon_problem(geometry: Geometry) -> str:
    """Describes what is wrong with the rings of a polygon or multipolygon; "" if nothing is."""
    with np.errstate(all="ignore"):  # GEOS raises flags on degenerate rings
        if not geometry.is_valid:
            return f"invalid polygon: {shapely.is_valid_reason(geometry)}"
    return ""


def planar_edges(geometry: Geometry) -> F64:
    """Returns the edges of all rings as lon, lat, lon, lat: float64[m, 4]."""
    rings = shapely.get_rings(shapely.get_parts(geometry))
    points, ring = shapely.get_coordinates(rings, return_index=True)
    within = ring[1:] == ring[:-1]
    return np.column_stack([points[:-1][within], points[1:][within]])


def encode(geometry: Geometry) -> F64:
    """Encodes a geometry as the length of its WKB in bytes, then the WKB, eight bytes per
    element."""
    wkb = shapely.to_wkb(geometry, byte_order=1)
    words = np.frombuffer(wkb + bytes(-len(wkb) % 8), np.float64)
    return np.concatenate([[float(len(wkb))], words])


def words_of(size: float) -> int:
    """Returns the number of elements of an encoded geometry that begins with `size`."""
    return 1 + -(-int(size) // 8)


def decode(geom: F64) -> Geometry:
    """Decodes what `encode` returns. Raises ValueError if it is no polygon."""
    found = shapely.from_wkb(np.ascontiguousarray(geom[1:]).tobytes()[: int(geom[0])])
    if not isinstance(found, shapely.Polygon | shapely.MultiPolygon):
        raise ValueError(f"a {found.geom_type} is not a region")
    return found


def polygon_holds(geometry: Geometry, lon: float, lat: float) -> bool:
    """Returns whether a geometry covers a point, as `polygons_hold`."""
    one = np.array([geometry], object)
    return bool(polygons_hold(one, np.array([lon]), np.array([lat]))[0])


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
