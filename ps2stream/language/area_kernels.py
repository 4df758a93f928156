"""Numba kernels of areas: 256 parts of a tile that is repeated over the world (literals.py)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import F64, I64, U16, U64

ANYWHERE: Final = 256  # stands for an area where places do not matter
AREA_WORDS: Final = 4  # of 64 areas each
_AREAS: Final = 256
_TILE: Final = 256 / 360  # tiles a degree
_TILES: Final = 16  # a side: the next tile is the first one again
_WIDE: Final = 16  # tiles: a box in more of them is looked at for each point
_FREE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)

Integer = Any  # a plain integer, or one of NumPy's


@njit(inline="always")
def _find_tile(degrees: float, half: float) -> np.int64:
    """Returns the number of the tile of a longitude (half = 180) or latitude (90), which never
    falls as the degrees rise."""
    return np.int64((degrees + half) * _TILE)


@njit(inline="always")
def _find_area(x: Integer, y: Integer) -> Integer:
    """Returns the area of the tile with these numbers."""
    return (y & _TILES - 1) * _TILES + (x & _TILES - 1)


@njit(inline="always")
def _find_tiles(box: F64, at: int) -> tuple[np.int64, np.int64, np.int64, np.int64]:
    """Returns the numbers of the first and the last tiles of the box box[at : at + 4]."""
    x0, y0 = _find_tile(box[at], 180.0), _find_tile(box[at + 1], 90.0)
    x1, y1 = _find_tile(box[at + 2], 180.0), _find_tile(box[at + 3], 90.0)
    return x0, y0, x1, y1


@njit(cache=True, nogil=True)
def find_areas(lon: F64, lat: F64) -> U16:
    """Returns the areas, 0 to 255, of points: parts of a tile that is repeated over the world."""
    out = np.empty(lon.shape[0], np.uint16)
    for i in range(lon.shape[0]):
        x, y = _find_tile(lon[i], 180.0), _find_tile(lat[i], 90.0)
        out[i] = _find_area(x, y)
    return out


@njit(cache=True, nogil=True)
def mark_boxes(box: F64, begin: int, end: int, mask: U64) -> None:
    """Sets the bits of the areas of points in the boxes box[begin:end], closed, in uint64[4]; of
    all where there is no box."""
    for i in range(len(mask)):
        mask[i] = _FREE if begin < end else ~_FREE
    for at in range(begin, end, 4):
        x0, y0, x1, y1 = _find_tiles(box, at)
        for y in range(y0, min(y1, y0 + _TILES - 1) + 1):
            for x in range(x0, min(x1, x0 + _TILES - 1) + 1):
                area = _find_area(x, y)
                mask[area >> 6] |= _ONE << np.uint64(area & 63)


@njit(inline="always")
def _is_inside(box: F64, at: Integer, x: float, y: float) -> Any:
    """Returns whether a point is in the box box[at : at + 4], without a branch."""
    within = (box[at] <= x) & (x <= box[at + 2])
    return within & (box[at + 1] <= y) & (y <= box[at + 3])


@njit(cache=True, nogil=True)
def find_inside(lon: F64, lat: F64, box: F64) -> I64:
    """Returns which of the points are in one of the boxes, float64[4 m], closed, in rising order.

    A point is compared with the boxes that have its tile, and with those that have many tiles."""
    boxes = box.shape[0] // 4
    first, wide = np.zeros(_AREAS + 1, np.int64), np.empty(boxes, np.int64)
    wides = np.int64(0)
    for j in range(boxes):
        x0, y0, x1, y1 = _find_tiles(box, 4 * j)
        if (x1 - x0 + 1) * (y1 - y0 + 1) > _WIDE:
            wide[wides] = j
            wides += 1
            continue
        for y in range(y0, y1 + 1):
            for x in range(x0, x1 + 1):
                first[_find_area(x, y) + 1] += 1
    for area in range(_AREAS):
        first[area + 1] += first[area]
    own = np.empty(first[_AREAS], np.int64)
    put = first[1:].copy()
    for j in range(boxes):
        x0, y0, x1, y1 = _find_tiles(box, 4 * j)
        if (x1 - x0 + 1) * (y1 - y0 + 1) > _WIDE:
            continue
        for y in range(y0, y1 + 1):
            for x in range(x0, x1 + 1):
                area = _find_area(x, y)
                put[area] -= 1
                own[put[area]] = j
    out, n = np.empty(lon.shape[0], np.int64), 0
    for i in range(lon.shape[0]):
        east, north = lon[i], lat[i]
        area = _find_area(_find_tile(east, 180.0), _find_tile(north, 90.0))
        is_met = False
        for k in range(first[area], first[area + 1]):
            at = 4 * own[k]
            is_met |= _is_inside(box, at, east, north)
        for k in range(wides):
            at = 4 * wide[k]
            is_met |= _is_inside(box, at, east, north)
        if is_met:
            out[n] = i
            n += 1
    return out[:n].copy()
