"""The exact shapes of queries that are not rectangles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U64
from ps2stream.space.polygons import PolygonCache
from ps2stream.space.region_rows import verify
from ps2stream.workers.index import MatchColumns
from ps2stream.workers.layout import P_GEOM, P_HEAD, P_TERM


def keep_exact_matches(
    found: MatchColumns, block: I64, pool: U64, lon: F64, lat: F64, polygons: PolygonCache
) -> MatchColumns:
    """Returns the pairs whose object lies in the circle or polygon of the query, and all pairs of
    queries that have neither. block int64[pairs]: the offset in `pool` of a query that has one,
    else 0."""
    at = np.flatnonzero(block)
    blocks, pick = np.unique(block[at], return_inverse=True)
    head = pool[blocks + P_HEAD]
    start = blocks + P_TERM + (head >> 24 & 255).astype(np.int64)
    start += (head >> 32).astype(np.int64)
    size = (pool[blocks + P_GEOM] & ((1 << 48) - 1)).astype(np.int64)
    stored = StoredShapes((head >> 8 & 255).astype(np.uint8), start, size)
    return keep_within_shapes(found, at, pick, stored, pool, lon, lat, polygons)


class StoredShapes(NamedTuple):
    """The shapes of some queries in a pool: shape uint8[k], and where the words of their
    geometries begin and how many they are, start and size int64[k]."""

    shape: U8
    start: I64
    size: I64


def keep_within_shapes(
    found: MatchColumns,
    at: I64,
    pick: I64,
    stored: StoredShapes,
    pool: U64,
    lon: F64,
    lat: F64,
    polygons: PolygonCache,
) -> MatchColumns:
    """Returns the pairs without those among found[at] whose object lies outside the shape
    stored[pick] of the query. All shapes are picked."""
    start, size = stored.start, stored.size
    off = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=off[1:])
    where = np.arange(off[-1], dtype=np.int64) + np.repeat(start - off[:-1], size)
    first = np.unique(pick, return_index=True)[1]
    row = found.row[at]
    inside = verify(
        stored.shape, off, pool.view(np.float64)[where], pick.astype(np.int64),
        lon[row], lat[row], polygons, found.handle[at[first]],
    )  # fmt: skip
    keep = np.ones(len(found.row), np.bool_)
    keep[at] = inside
    return MatchColumns(found.row[keep], found.handle[keep], found.session[keep])
