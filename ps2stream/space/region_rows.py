"""Regions as columns: `shape` and `geom` of QueryRows, decoded and tested in bulk."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, sealed
from ps2stream.protocol.rows import RegionShape
from ps2stream.space import space_kernels as kernels
from ps2stream.space.polygons import Bool, PolygonCache, decode, polygons_hold
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World


def verify(
    shape: U8,
    geom_off: I64,
    geom: F64,
    pick: I64,
    lon: F64,
    lat: F64,
    polygons: PolygonCache | None = None,
    keys: I64 | None = None,
) -> Bool:
    """Returns bool[m]: whether the region of query row pick[i] holds the point (lon[i], lat[i]).

    shape is uint8[n], geom is ragged as in QueryRows; pick is int64[m], lon and lat are float64[m]
    degrees. With `polygons`, geometries stay prepared between calls under keys[row]
    (int64[n], the handles).
    """
    out = np.empty(len(pick), np.uint8)
    shape, geom_off, geom, pick = sealed(shape), sealed(geom_off), sealed(geom), sealed(pick)
    lon, lat = sealed(lon), sealed(lat)
    if kernels.verify_simple(shape, geom_off, geom, pick, lon, lat, out):
        at = np.flatnonzero(out == 2)
        rows, which = np.unique(pick[at], return_inverse=True)
        cache = PolygonCache(len(rows)) if polygons is None or keys is None else polygons
        names = rows if keys is None else keys[rows]
        geometries = np.empty(len(rows), object)
        for i, (row, key) in enumerate(zip(rows.tolist(), names.tolist(), strict=True)):
            geometries[i] = cache.get(key, geom[geom_off[row] : geom_off[row + 1]])
        out[at] = polygons_hold(geometries[which], lon[at], lat[at])
    return out.astype(np.bool_)


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
            return Polygon(decode(geom))
