"""The exact shapes of queries that are not rectangles."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U64
from ps2stream.space.polygons import PolygonCache
from ps2stream.space.region_rows import verify
from ps2stream.workers.index import MatchColumns
from ps2stream.workers.layout import P_HEAD, P_TERM


def keep_exact_matches(
    found: MatchColumns, block: I64, pool: U64, lon: F64, lat: F64, polygons: PolygonCache
) -> MatchColumns:
    """Returns the pairs whose object lies in the circle or polygon of the query, and all pairs of
    queries that have neither. block int64[pairs]: the offset in `pool` of a query that has one,
    else 0."""
    at = np.flatnonzero(block)
    blocks = block[at]
    head = pool[blocks + P_HEAD]
    start = blocks + P_TERM + (head >> 24 & 255).astype(np.int64)
    start += (head >> 32).astype(np.int64)
    shape = (head >> 8 & 255).astype(np.uint8)
    return keep_within_shapes(found, at, shape, start, pool, lon, lat, polygons)


def keep_within_shapes(
    found: MatchColumns,
    at: I64,
    shape: U8,
    start: I64,
    pool: U64,
    lon: F64,
    lat: F64,
    polygons: PolygonCache,
) -> MatchColumns:
    """Returns the pairs without those among found[at] whose object lies outside the shape of the
    query: shape uint8[k], and where its geometry begins in the pool, start int64[k]."""
    row = found.row[at]
    inside = verify(
        shape, start, pool.view(np.float64), np.arange(len(at)), lon[row], lat[row], polygons,
        found.handle[at],
    )  # fmt: skip
    keep = np.ones(len(found.row), np.bool_)
    keep[at] = inside
    kept = np.flatnonzero(keep)
    return MatchColumns(found.row[kept], found.handle[kept], found.session[kept])
