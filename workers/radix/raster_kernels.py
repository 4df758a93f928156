"""What is known of a polygon by the cells of its box: of most points in it, all.

A cell that no edge can touch lies in the polygon or outside it as a whole. The cell of a coordinate
is monotone, so an edge touches none but those between the cells of its ends.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.limits import LAT_MAX, LON_MAX
from ps2stream.space.polygon_kernels import (
    UNDECIDED,
    find_rings,
    next_ring,
    read_point,
    scan_polygon,
)
from ps2stream.workers.radix.layout import NO_WORD, X_BOX, X_GEOM

SIDE = 11  # cells, of two bits in four words: 1 + OUTSIDE, 1 + INSIDE, 0 if it is not known
_CROSSED = 3
_NEAR = 1e-6  # cells; rounding moves nothing by more than 1e-13 of one
_WORDS, _CELLS = 4, 32
_ONE_BIT, _TWO_BITS = np.uint64(1), np.uint64(3)
_LOW_BITS, _ALL_BITS = np.uint64(0x5555555555555555), np.uint64((1 << 64) - 1)


@njit(inline="always")
def _find_cell(value, low, high):
    return min(max(np.int64((value - low) / (high - low) * SIDE), 0), SIDE - 1)


@njit(inline="always")
def _read_cell(pool, extras, cell):
    word = pool[extras + X_BOX + (cell >> 5)]
    return np.int64(word >> np.uint64(2 * (cell & (_CELLS - 1))) & _TWO_BITS)


@njit(inline="always")
def look_up_point(pool, extras, box, x, y):
    """Returns OUTSIDE or INSIDE for a point in the box of a polygon with these extras, or
    UNDECIDED. box: its sides, lon_min, lat_min, lon_max, lat_max."""
    if abs(x) == LON_MAX or abs(y) == LAT_MAX:  # it has another name
        return UNDECIDED
    column, row = _find_cell(x, box[0], box[2]), _find_cell(y, box[1], box[3])
    known = _read_cell(pool, extras, SIDE * row + column)
    return known - 1 if known != 0 else UNDECIDED


@njit(inline="always")
def _number_cell(value):
    """Returns the row or column of a value in cells from the corner, which may be beyond."""
    return min(max(np.int64(value), 0), SIDE - 1)


@njit(inline="always")
def _mark_cells(pool, extras, first, last):
    """Marks the cells from `first` to `last`, of one row."""
    low, high = 2 * first, 2 * last + 1  # bits
    a, b = extras + X_BOX + (low >> 6), extras + X_BOX + (high >> 6)
    from_low = _ALL_BITS << np.uint64(low & 63)
    to_high = _ALL_BITS >> np.uint64(63 - (high & 63))
    if a == b:
        pool[a] |= from_low & to_high
    else:
        pool[a] |= from_low
        pool[b] |= to_high


@njit(inline="always")
def _mark_edge(pool, extras, u, v, a, b):
    """Marks the cells that an edge from (u, v) to (a, b), in cells from the corner, crosses or is
    within _NEAR of, so that rounding puts no point on the other side."""
    south, north = _number_cell(min(v, b) - _NEAR), _number_cell(max(v, b) + _NEAR)
    for row in range(south, north + 1):
        first, last = 0.0, 1.0  # of the edge, what lies in the row
        if south != north and v != b:
            below, above = (row - _NEAR - v) / (b - v), (row + 1 + _NEAR - v) / (b - v)
            first = min(max(min(below, above), 0.0), 1.0)
            last = min(max(below, above, 0.0), 1.0)
        c, d = u + first * (a - u), u + last * (a - u)
        west, east = _number_cell(min(c, d) - _NEAR), _number_cell(max(c, d) + _NEAR)
        _mark_cells(pool, extras, SIDE * row + west, SIDE * row + east)


@njit(cache=True, nogil=True)
def _mark_edges(pool, pool_f, extras, box):
    at, end = find_rings(pool_f, extras + X_GEOM)
    width, height = box[2] - box[0], box[3] - box[1]
    rings = 0
    while at < end:
        at, points, rings = next_ring(pool_f, at, rings)
        x, y = read_point(pool_f, at)
        u, v = (x - box[0]) / width * SIDE, (y - box[1]) / height * SIDE
        for _ in range(1, points):
            at += 16
            x, y = read_point(pool_f, at)
            a, b = (x - box[0]) / width * SIDE, (y - box[1]) / height * SIDE
            _mark_edge(pool, extras, u, v, a, b)
            u, v = a, b
        at += 16


@njit(inline="always")
def _know_cell(pool_f, extras, box, row, column):
    """Returns what to write for a cell without an edge: that of a point in its middle."""
    x = box[0] + (column + 0.5) / SIDE * (box[2] - box[0])
    y = box[1] + (row + 0.5) / SIDE * (box[3] - box[1])
    if _find_cell(x, box[0], box[2]) != column or _find_cell(y, box[1], box[3]) != row:
        return np.int64(0)
    found = scan_polygon(pool_f, extras + X_GEOM, x, y)
    return np.int64(0 if found == UNDECIDED else 1 + found)


@njit(cache=True, nogil=True)
def draw_raster(pool, pool_f, extras, box):
    """Fills in the cells of a polygon whose geometry is in its extras; box: as in
    `look_up_point`. What is known of a cell is known of a neighbour without an edge as well."""
    for i in range(_WORDS):
        pool[extras + X_BOX + i] = NO_WORD
    if not (box[2] > box[0] and box[3] > box[1]):
        return
    _mark_edges(pool, pool_f, extras, box)
    for row in range(SIDE):
        known = np.int64(_CROSSED)  # of the cell before
        for column in range(SIDE):
            cell = SIDE * row + column
            if _read_cell(pool, extras, cell) == _CROSSED:
                known = np.int64(_CROSSED)
                continue
            if known == _CROSSED and row > 0:
                known = _read_cell(pool, extras, cell - SIDE)
            if known == _CROSSED:
                known = _know_cell(pool_f, extras, box, row, column)
            shift = np.uint64(2 * (cell & (_CELLS - 1)))
            pool[extras + X_BOX + (cell >> 5)] |= np.uint64(known) << shift
    for i in range(_WORDS):
        word = pool[extras + X_BOX + i]
        crossed = word & word >> _ONE_BIT & _LOW_BITS
        pool[extras + X_BOX + i] = word & ~(crossed | crossed << _ONE_BIT)
