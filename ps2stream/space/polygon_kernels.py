# mypy: disallow-untyped-decorators=False
"""Whether a polygon holds a point, from its bytes, without GEOS where rounding cannot matter.

A ray to the east is counted against all edges, and an edge with the point on it decides, as in
GEOS. On which side of an edge the point is, is a sign; where it is not certain, neither is the
answer.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ps2stream.limits import LAT_MAX, LON_MAX
from ps2stream.protocol.frame import F64

OUTSIDE, INSIDE, UNDECIDED = 0, 1, 2
LARGE = 16 * 512  # bytes: the index that GEOS has of its edges is faster then
_ERROR = 1e-15  # of the sign's value to its parts; proven is a third of it
_TINY = 1e-290  # parts below this may have lost bits
_HEADER = 9  # bytes of WKB: order, kind and number of parts or rings; numbers are little-endian
_MULTI = 6


def _make_reader(kind: Any) -> Any:
    @intrinsic
    def read(_context: Any, array: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            byte = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [args[1]])
            found = builder.load(builder.bitcast(byte, context.get_value_type(kind).as_pointer()))
            found.align = 1
            return found

        return kind(array, types.intp), codegen

    return read


_read_float = _make_reader(types.float64)
_read_count = _make_reader(types.uint32)


@njit(inline="always")
def _cross_edge(px: float, py: float, qx: float, qy: float) -> int:
    """Returns INSIDE if an edge, relative to the point, crosses the ray, which is between the
    latitudes of its ends; OUTSIDE if not; UNDECIDED; or 3 if the point is on it."""
    left, right = px * qy, py * qx
    if (px == 0.0 or qy == 0.0) and (py == 0.0 or qx == 0.0):
        return 3
    sign = left - right
    if abs(sign) <= _ERROR * (abs(left) + abs(right)) + _TINY:
        return UNDECIDED
    return INSIDE if (sign > 0.0) == (qy > py) else OUTSIDE


@njit(cache=True, nogil=True)
def _scan_ring(geom: F64, at: int, points: int, x: float, y: float) -> int:
    """Returns whether a ray from a point crosses a ring an odd number of times, INSIDE or OUTSIDE;
    UNDECIDED; or 3 if the point is on the ring."""
    odd = OUTSIDE
    px, py = _read_float(geom, at), _read_float(geom, at + 8)
    for _ in range(1, points):
        at += 16
        qx, qy = _read_float(geom, at), _read_float(geom, at + 8)
        if (py > y) != (qy > y):
            if px > x and qx > x:
                odd ^= 1
            elif px >= x or qx >= x:
                crossed = _cross_edge(px - x, py - y, qx - x, qy - y)
                if crossed > INSIDE:
                    return crossed
                odd ^= crossed
        elif (qy == y) & (py == y):
            if min(px, qx) <= x <= max(px, qx):
                return 3
        elif (qy == y) & (qx == x):
            return 3
        px, py = qx, qy
    return odd


@njit(cache=True, nogil=True)
def hold_point(geom: F64, start: int, x: float, y: float) -> int:
    """Returns INSIDE if the polygon encoded in geom[start:] (see polygons.py) covers a point or
    OUTSIDE if not; or UNDECIDED, as for any point that has another name."""
    if geom[start] > LARGE or abs(x) == LON_MAX or abs(y) == LAT_MAX:
        return UNDECIDED
    at = 8 * (start + 1)
    polygons = 1
    if _read_count(geom, at + 1) == _MULTI:
        polygons = _read_count(geom, at + 5)
        at += _HEADER
    odd = OUTSIDE
    for _ in range(polygons):
        rings = _read_count(geom, at + 5)
        at += _HEADER
        for _ in range(rings):
            points = _read_count(geom, at)
            at += 4
            found = _scan_ring(geom, at, points, x, y)
            if found > INSIDE:
                return INSIDE if found != UNDECIDED else UNDECIDED
            odd ^= found
            at += 16 * points
    return odd
