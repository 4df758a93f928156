"""Graph variants: METIS cuts the graph of words that occur together (algorithms.md 1.5, 2.3).

The hypergraph of co-occurring term sets is cut as its clique expansion, where a set of n
words adds 1 / (n - 1) to each of its pairs.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pymetis
from numba import njit

from ps2stream.errors import InvalidArgument, Violation
from ps2stream.planner.baselines.frequency import lightest_first
from ps2stream.planner.baselines.hashing import everywhere
from ps2stream.planner.baselines.words import frequencies, row_weights
from ps2stream.planner.partition import Options, Partition
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64, I64

_FREE = 1_000_000  # METIS' ufactor, thousandths above the mean: as good as no balance
_TOTAL = 1 << 30  # METIS adds weights up in 32 bits
_CHUNK = 1 << 22  # pairs held before they are added up


class Graph(NamedTuple):
    """Pairs low < high of words that occur together, int64[e], and how often, float64[e]."""

    low: I64
    high: I64
    weight: F64


def hypergraph(stats: Statistics, workers: int, options: Options) -> Partition:
    """Fewest sets cut, with balanced occurrences."""
    graph = co_occurrence(stats, cliques=True)
    return _cut(stats, workers, options, graph, graph.weight, frequencies(stats))


def g_c(stats: Statistics, workers: int, options: Options) -> Partition:
    """gC: fewest edges cut, no balance."""
    graph = co_occurrence(stats)
    return _cut(stats, workers, options, graph, np.ones(len(graph.weight)), None)


def g_fc(stats: Statistics, workers: int, options: Options) -> Partition:
    """gFC: least co-occurrence cut, no balance."""
    graph = co_occurrence(stats)
    return _cut(stats, workers, options, graph, graph.weight, None)


def g_fcl(stats: Statistics, workers: int, options: Options) -> Partition:
    """gFCL: least co-occurrence cut, with balanced frequencies."""
    graph = co_occurrence(stats)
    return _cut(stats, workers, options, graph, graph.weight, frequencies(stats))


def g_nfcl(stats: Statistics, workers: int, options: Options) -> Partition:
    """gNFCL: as gFCL, but words that always occur together count once: f / (1 + fn / f)
    with fn the sum of a word's co-occurrences."""
    graph = co_occurrence(stats)
    f = frequencies(stats)
    fn = np.bincount(graph.low, graph.weight, len(f)) + np.bincount(
        graph.high, graph.weight, len(f)
    )
    load = np.divide(f * f, f + fn, out=np.zeros(len(f)), where=f > 0)
    return _cut(stats, workers, options, graph, graph.weight, load)


def co_occurrence(stats: Statistics, cliques: bool = False) -> Graph:
    """The pairs of terms of the signatures, with the objects that have both."""
    words = len(stats.terms)
    weight = row_weights(stats)
    size = np.diff(stats.row_start)
    if cliques:
        weight = weight / np.maximum(size - 1, 1)
    pairs = np.cumsum(size * (size - 1) // 2)
    key, total = np.zeros(0, np.int64), np.zeros(0)
    first, done = 0, 0
    while first < len(size):
        last = max(int(np.searchsorted(pairs, done + _CHUNK, "right")), first + 1)
        n = int(pairs[last - 1]) - done
        new, each = np.empty(n, np.int64), np.empty(n)
        _pairs(stats.row_start, stats.row_unit, stats.term, weight, first, last, words, new, each)
        key, at = np.unique(np.concatenate([key, new]), return_inverse=True)
        total = np.bincount(at, np.concatenate([total, each]), len(key)).astype(np.float64)
        first, done = last, int(pairs[last - 1])
    return Graph(key // max(words, 1), key % max(words, 1), total)


def _cut(
    stats: Statistics,
    workers: int,
    options: Options,
    graph: Graph,
    weight: F64,
    load: F64 | None,
) -> Partition:
    """load: what is balanced, of each word; None for no balance."""
    known = frequencies(stats)
    # A term that no object has would weigh as much as one that an object has.
    used = np.flatnonzero(known > 0)
    if workers >= len(used) or not len(graph.low):  # what METIS refuses
        return everywhere(stats, workers, lightest_first(known, workers), known)
    ends = np.searchsorted(used, np.concatenate([graph.low, graph.high]))
    order = np.argsort(ends, kind="stable")
    off = np.zeros(len(used) + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=len(used)), out=off[1:])
    other = np.roll(ends, len(graph.low))[order]
    free = pymetis.Options(seed=options.seed, ufactor=30 if load is not None else _FREE)
    with _quietly():
        try:
            _, part = pymetis.part_graph(
                workers,
                pymetis.CSRAdjacency(off.tolist(), other.tolist()),
                eweights=whole(np.concatenate([weight, weight]))[order].tolist(),
                vweights=None if load is None else whole(load[used]).tolist(),
                options=free,
            )
        except RuntimeError as error:  # all that it says of what went wrong inside
            size = f"{len(used)} words and {len(graph.low)} pairs into {workers} parts"
            raise InvalidArgument(
                [Violation("algorithm", f"METIS could not cut {size}: {error}")]
            ) from None
    owner = np.zeros(len(known), np.int32)
    owner[used] = part
    return everywhere(stats, workers, owner, known)


@contextmanager
def _quietly() -> Iterator[None]:
    """METIS tells of parts that stay empty on C's standard output, where results go."""
    sys.stdout.flush()
    c, kept, nowhere = ctypes.CDLL(None), os.dup(1), os.open(os.devnull, os.O_WRONLY)
    c.fflush(None)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        c.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def whole(values: F64) -> I64:
    """As positive integers whose sum METIS can hold."""
    factor = min(1.0, (_TOTAL - len(values)) / max(float(values.sum()), 1.0))
    # Weights below one would all be alike: the finest one counts a hundred.
    if len(positive := values[values > 0]) and positive.min() * factor < 1.0:
        factor = min(100.0 / float(positive.min()), _TOTAL / 2 / float(values.sum()))
    return np.maximum(np.rint(values * factor), 1).astype(np.int64)


@njit(cache=True, nogil=True)
def _pairs(
    row_start: I64, row_unit: I32, term: I32, weight: F64, first: int, last: int, words: int,
    key: I64, each: F64,
) -> None:  # fmt: skip
    n = 0
    for row in range(first, last):
        for i in range(row_start[row], row_start[row + 1]):
            a = np.int64(term[row_unit[i]])
            for j in range(i + 1, row_start[row + 1]):
                b = np.int64(term[row_unit[j]])
                key[n] = min(a, b) * words + max(a, b)
                each[n] = weight[row]
                n += 1
