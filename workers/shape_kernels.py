"""Kernels that take from the matches the pairs whose object lies outside the shape of the query."""

from __future__ import annotations

from numba import njit

from ps2stream.protocol.frame import I64, U8, U32
from ps2stream.protocol.span_kernels import copy_span


@njit(cache=True, nogil=True)
def drop_outside(
    at: I64,
    inside: U8,
    found: tuple[U32, I64, I64],
    is_kept: U8,
    kept: tuple[U32, I64, I64],
) -> int:
    """Copies to `kept` the pairs of `found` without those pairs at[k] of which inside[k] is 0;
    returns their number. Both: the columns of MatchColumns. is_kept uint8[pairs + 1]: is
    overwritten."""
    pairs = len(found[0])
    for i in range(pairs):
        is_kept[i] = 1
    is_kept[pairs] = 0
    for k in range(len(at)):
        is_kept[at[k]] = inside[k]
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
