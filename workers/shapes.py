"""The exact shapes of queries that are not rectangles."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U32, U64
from ps2stream.space.polygons import PolygonCache
from ps2stream.space.region_rows import hold_points, verify
from ps2stream.workers.index import MatchColumns
from ps2stream.workers.layout import P_HEAD, P_TERM
from ps2stream.workers.shape_kernels import drop_outside


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
    row = found.row[at]
    inside = verify(
        shape, start, pool.view(np.float64), np.arange(len(at)), lon[row], lat[row], polygons,
        found.handle[at],
    )  # fmt: skip
    return _drop_outside(found, at, inside.view(np.uint8))


def keep_within_polygons(
    found: MatchColumns, at: I64, start: I64, geom: F64, lon: F64, lat: F64, polygons: PolygonCache
) -> MatchColumns:
    """Returns copies of the pairs without those among found[at] whose object lies outside the
    polygon of the query, which begins in geom at start int64[k]: GEOS is asked."""
    row, kept = found.row[at], np.ones(len(found.row), np.bool_)
    kept[at] = hold_points(start, geom, lon[row], lat[row], polygons, found.handle[at])
    return MatchColumns(found.row[kept], found.handle[kept], found.session[kept])


def _drop_outside(found: MatchColumns, at: I64, inside: U8) -> MatchColumns:
    """Returns copies of the pairs without those pairs at[k] of which inside[k] is 0."""
    pairs = len(found.row)
    row: U32 = np.empty(pairs, np.uint32)
    handle: I64 = np.empty(pairs, np.int64)
    session: I64 = np.empty(pairs, np.int64)
    columns, kept = (found.row, found.handle, found.session), (row, handle, session)
    n = drop_outside(at, inside, columns, np.empty(pairs + 1, np.uint8), kept)
    return MatchColumns(row[:n], handle[:n], session[:n])
