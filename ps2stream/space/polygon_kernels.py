# mypy: disallow-untyped-decorators=False
"""Whether a polygon holds a point, from its bytes, without GEOS where rounding cannot matter.

A ray to the east is counted against all edges, and an edge with the point on it decides, as in
GEOS. On which side of an edge the point is, is a sign; where it is not certain, neither is the
answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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
_BITS = 64
_ONE_BIT = np.uint64(1)


def _make_reader(kind: Any) -> Any:
    @intrinsic
    def read(_context: Any, array: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = args[0]  # of a pointer
            if not isinstance(signature.args[0], types.CPointer):
                data = context.make_array(signature.args[0])(context, builder, data).data
            byte = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [args[1]])
            found = builder.load(builder.bitcast(byte, context.get_value_type(kind).as_pointer()))
            found.align = 1
            return found

        return kind(array, types.intp), codegen

    return read


_read_float = _make_reader(types.float64)
_read_count = _make_reader(types.uint32)


_intrinsic: Any = intrinsic  # or mypy takes the context for an argument


@_intrinsic
def _lowest_bit(_context: Any, word: Any) -> Any:
    """Returns the number of the lowest bit that is set; one is."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


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
def _scan_level(geom: F64, at: int, points: int, x: float, y: float) -> int:
    """Returns what `_scan_ring` does, of a ring with a corner on the latitude of the point."""
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
def _scan_ring(geom: F64, at: int, points: int, x: float, y: float) -> int:
    """Returns whether a ray from a point crosses a ring an odd number of times, INSIDE or OUTSIDE;
    UNDECIDED; or 3 if the point is on the ring.

    Few edges are between latitudes on both sides of the point, and which cannot be foreseen. So
    first a bit for each corner says on which side it is, and then these edges are looked at.
    """
    odd, first = OUTSIDE, at
    while points > 1:
        corners, level = min(points, _BITS), False
        north = np.uint64(0)
        for i in range(corners):
            lat = _read_float(geom, at + 16 * i + 8)
            north |= np.uint64(lat > y) << np.uint64(i)
            level |= lat == y
        if level:
            return _scan_level(geom, first, points + (at - first >> 4), x, y)
        crossing = (north ^ north >> _ONE_BIT) & ((_ONE_BIT << np.uint64(corners - 1)) - _ONE_BIT)
        while crossing != 0:
            edge = at + 16 * _lowest_bit(crossing)
            crossing &= crossing - _ONE_BIT
            px, py = _read_float(geom, edge), _read_float(geom, edge + 8)
            qx, qy = _read_float(geom, edge + 16), _read_float(geom, edge + 24)
            crossed = _cross_edge(px - x, py - y, qx - x, qy - y)
            if crossed > INSIDE:
                return crossed
            odd ^= crossed
        at += 16 * (corners - 1)
        points -= corners - 1
    return odd


@njit(inline="always")
def read_point(geom: F64, at: int) -> tuple[float, float]:
    """Returns the point at a byte of an array, or of what a pointer refers to."""
    return _read_float(geom, at), _read_float(geom, at + 8)


@njit(inline="always")
def find_rings(geom: F64, start: int) -> tuple[int, int]:
    """Returns the byte where the rings of the polygon encoded in geom[start:] (see polygons.py)
    begin, and where they end."""
    at = 8 * (start + 1)
    end = at + int(geom[start])
    return at + (_HEADER if _read_count(geom, at + 1) == _MULTI else 0), end


@njit(inline="always")
def next_ring(geom: F64, at: int, rings: int) -> tuple[int, int, int]:
    """Returns the byte where the points of the next ring begin, their number, and how many rings
    of the same part are behind it; `rings` of one are behind byte `at`."""
    if rings == 0:
        rings = int(_read_count(geom, at + 5))
        at += _HEADER
    return at + 4, int(_read_count(geom, at)), rings - 1


@njit(cache=True, nogil=True)
def scan_polygon(geom: F64, start: int, x: float, y: float) -> int:
    """Returns INSIDE if the polygon encoded in geom[start:] (see polygons.py) covers a point, as it
    is named, or OUTSIDE if not; or UNDECIDED."""
    at, end = find_rings(geom, start)
    odd, rings = OUTSIDE, 0
    while at < end:
        at, points, rings = next_ring(geom, at, rings)
        found = _scan_ring(geom, at, points, x, y)
        if found > INSIDE:
            return UNDECIDED if found == UNDECIDED else INSIDE
        odd ^= found
        at += 16 * points
    return odd


@njit(cache=True, nogil=True)
def hold_point(geom: F64, start: int, x: float, y: float) -> int:
    """Returns what `scan_polygon` does for a point that has no other name and a polygon that is not
    large, and UNDECIDED otherwise."""
    if geom[start] > LARGE or abs(x) == LON_MAX or abs(y) == LAT_MAX:
        return UNDECIDED
    return scan_polygon(geom, start, x, y)
