"""Division of terms among parts, one term after the other, as SALB does (S3-TM, 2.2).

Text splits of Algorithm 1 and the metric baseline share it: a term goes to the part where the new
total load times the coefficient of variation of the parts' loads is least, and an object that
several terms of a part share is counted there once.

A load is `product * O * Q + copy * O + F`, where O are the objects and Q the queries of a part,
and F is what its units add by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import F64, I64

_ONE = np.uint64(1)
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACES = np.zeros(64, np.int64)
_PLACES[(np.uint64(0x03F79D71B4CB0A89) << np.arange(64, dtype=np.uint64)) >> np.uint64(58)] = (
    np.arange(64)
)
"""The place of the bit, by the upper six bits of De Bruijn's number times it."""


class WordOccurrences(NamedTuple):
    """The terms that SALB divides: term t occurs in the rows row[off[t]:off[t + 1]], of `weight`
    objects each; queries and fixed, float64[t], are its Q and F."""

    off: I64
    row: I64
    weight: F64
    queries: F64
    fixed: F64


def inverted(row_start: I64, row_unit: I32, rows: I64, word: I32, words: int) -> tuple[I64, I64]:
    """Returns (offsets int64[words + 1], positions in `rows`): the rows in which each word
    occurs. word: of each unit, -1 for a unit that is no word, int32[u]."""
    off = np.zeros(words + 1, np.int64)
    _count_words(row_start, row_unit, rows, word, off)
    np.cumsum(off, out=off)
    out = np.empty(off[-1], np.int64)
    _place_rows(row_start, row_unit, rows, word, off[:-1].copy(), out)
    return off, out


def divide(
    words: WordOccurrences, order: I64, parts: int, product: float, copy: float, bias: float
) -> I32:
    """Returns the part of each word, int32[t]. In the given order, each goes where (new total
    load) * (bias + coefficient of variation) is least; of equals, where it adds least, then to
    the first. bias: 1 in text splits, 0 in S3-TM's SALB."""
    part = np.zeros(len(words.queries), np.int32)
    if parts > 1:
        _divide_words(*words, order, parts, product, copy, bias, part)
    return part


@njit(cache=True, nogil=True)
def _count_words(row_start: I64, row_unit: I32, rows: I64, word: I32, off: I64) -> None:
    """Counts the rows of each word, one place further on."""
    for row in rows:
        for i in range(row_start[row], row_start[row + 1]):
            w = word[row_unit[i]]
            if w >= 0:
                off[w + 1] += 1


@njit(cache=True, nogil=True)
def _place_rows(row_start: I64, row_unit: I32, rows: I64, word: I32, at: I64, out: I64) -> None:
    """Writes the positions of each word's rows, from `at` on."""
    for n in range(len(rows)):
        for i in range(row_start[rows[n]], row_start[rows[n] + 1]):
            w = word[row_unit[i]]
            if w >= 0:
                out[at[w]] = n
                at[w] += 1


@njit(cache=True, nogil=True)
def _divide_words(
    off: I64, row: I64, weight: F64, queries: F64, fixed: F64,
    order: I64, parts: int, product: float, copy: float, bias: float, part: I32,
) -> None:  # fmt: skip
    """Writes the part of each word. A row's parts are a set of bits: few of many are in it."""
    held = np.zeros((len(weight), (parts + 63) // 64), np.uint64)
    o, q, load = np.zeros(parts), np.zeros(parts), np.zeros(parts)
    seen = np.zeros(parts)
    total = squares = 0.0
    for t in order:
        objects = 0.0
        seen[:] = 0.0
        for j in range(off[t], off[t + 1]):
            r = row[j]
            objects += weight[r]
            for k in range(held.shape[1]):
                bits = held[r, k]
                while bits:
                    low = bits & (~bits + _ONE)
                    seen[64 * k + _find_bit(low)] += weight[r]
                    bits ^= low
        best, least, least_added = -1, np.inf, np.inf
        for i in range(parts):
            new = objects - seen[i]
            added = (
                product * (o[i] * queries[t] + new * q[i] + new * queries[t])
                + copy * new + fixed[t]
            )  # fmt: skip
            mean = (total + added) / parts
            spread = (squares + added * (2.0 * load[i] + added)) / parts - mean * mean
            cv = np.sqrt(max(spread, 0.0)) / mean if mean > 0 else 0.0
            u = (total + added) * (bias + cv)
            tie = abs(u - least) <= 1e-12 * least
            if (u < least and not tie) or (tie and added < least_added):
                best, least, least_added = i, u, added
        part[t] = best
        total += least_added
        squares += least_added * (2.0 * load[best] + least_added)
        load[best] += least_added
        o[best] += objects - seen[best]
        q[best] += queries[t]
        bit = _ONE << np.uint64(best & 63)
        for j in range(off[t], off[t + 1]):
            held[row[j], best >> 6] |= bit


@njit(cache=True, nogil=True, inline="always")
def _find_bit(low: np.uint64) -> np.int64:
    """Returns the place of the only bit that is set."""
    return np.int64(_PLACES[((low * _DE_BRUIJN) >> np.uint64(58)) & np.uint64(63)])
