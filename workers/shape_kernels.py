"""Kernels that take from the matches the pairs whose object lies outside the shape of the query."""

from __future__ import annotations

from numba import njit

from ps2stream.protocol.frame import F64, I64, U8, U32
from ps2stream.protocol.span_kernels import copy_span
from ps2stream.space.polygon_kernels import UNDECIDED, hold_point
from ps2stream.space.space_kernels import ask

_AHEAD = 6  # polygons
_LINES = 10  # of the most polygons


@njit(cache=True, nogil=True)
def judge_polygons(
    at: I64, start: I64, geom: F64, row: U32, lon: F64, lat: F64, verdict: U8
) -> int:
    """Sets verdict[k] to INSIDE or OUTSIDE for the object of pair at[k], row[at[k]], and the
    polygon that begins at geom[start[k]], or to UNDECIDED. Returns the number of these."""
    left = 0
    for k in range(len(at)):
        if k + _AHEAD < len(at):
            for line in range(_LINES):
                ask(geom, start[k + _AHEAD] + 8 * line)
        o = row[at[k]]
        verdict[k] = hold_point(geom, start[k], lon[o], lat[o])
        left += verdict[k] == UNDECIDED
    return left


@njit(cache=True, nogil=True)
def drop_outside(
    at: I64,
    verdict: U8,
    found: tuple[U32, I64, I64],
    is_kept: U8,
    kept: tuple[U32, I64, I64],
) -> int:
    """Copies to `kept` the pairs of `found` without those pairs at[k] of which verdict[k] is
    OUTSIDE; returns their number. Both: the columns of MatchColumns. is_kept uint8[pairs + 1]: is
    overwritten."""
    pairs = len(found[0])
    for i in range(pairs):
        is_kept[i] = 1
    is_kept[pairs] = 0
    for k in range(len(at)):
        is_kept[at[k]] = verdict[k]
    begin = n = 0
    while begin < pairs:
        end = begin
        while is_kept[end] != 0:
            end += 1
        copy_span(kept[0], n, found[0], begin, end - begin)
        copy_span(kept[1], n, found[1], begin, end - begin)
        copy_span(kept[2], n, found[2], begin, end - begin)
        n += end - begin
        begin = end + 1
    return n
