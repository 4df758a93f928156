"""Graph variants: METIS cuts the graph of words that occur together (algorithms.md 1.5, 2.3).

The hypergraph of co-occurring term sets is cut as its clique expansion, where a set of n words
adds 1 / (n - 1) to each of its pairs.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.errors import invalid
from ps2stream.extras import import_optional
from ps2stream.planner.baselines.frequency import lightest_first
from ps2stream.planner.baselines.hashing import everywhere
from ps2stream.planner.baselines.words import frequencies, row_weights
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64, I64

_FREE = 1_000_000  # METIS' ufactor, thousandths above the mean: in effect no balance
_TOTAL = 1 << 30  # METIS adds weights up in 32 bits
_CHUNK = 1 << 22  # pairs held before they are added up


class WordGraph(NamedTuple):
    """Pairs low < high of words that occur together, int64[e], and their counts, float64[e]."""

    low: I64
    high: I64
    weight: F64


def hypergraph(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Cuts the fewest sets, with balanced occurrences."""
    graph = co_occurrence(stats, cliques=True)
    return _cut_graph(stats, workers, options, graph, graph.weight, frequencies(stats))


def g_c(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Computes gC: the fewest edges cut, without balance."""
    graph = co_occurrence(stats)
    return _cut_graph(stats, workers, options, graph, np.ones(len(graph.weight)), None)


def g_fc(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Computes gFC: the least co-occurrence cut, without balance."""
    graph = co_occurrence(stats)
    return _cut_graph(stats, workers, options, graph, graph.weight, None)


def g_fcl(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Computes gFCL: the least co-occurrence cut, with balanced frequencies."""
    graph = co_occurrence(stats)
    return _cut_graph(stats, workers, options, graph, graph.weight, frequencies(stats))


def g_nfcl(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Computes gNFCL: gFCL with words that always occur together counted once: f / (1 + fn / f),
    where fn is the sum of a word's co-occurrences."""
    graph = co_occurrence(stats)
    f = frequencies(stats)
    fn = np.bincount(graph.low, graph.weight, len(f)) + np.bincount(
        graph.high, graph.weight, len(f)
    )
    load = np.divide(f * f, f + fn, out=np.zeros(len(f)), where=f > 0)
    return _cut_graph(stats, workers, options, graph, graph.weight, load)


def co_occurrence(stats: Statistics, cliques: bool = False) -> WordGraph:
    """Returns the pairs of terms of the signatures, with the objects that have both."""
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
        _list_pairs(
            stats.row_start, stats.row_unit, stats.term, weight, first, last, words, new, each
        )
        key, at = np.unique(np.concatenate([key, new]), return_inverse=True)
        total = np.bincount(at, np.concatenate([total, each]), len(key)).astype(np.float64)
        first, done = last, int(pairs[last - 1])
    return WordGraph(key // max(words, 1), key % max(words, 1), total)


def _cut_graph(
    stats: Statistics,
    workers: int,
    options: PartitionOptions,
    graph: WordGraph,
    weight: F64,
    load: F64 | None,
) -> Partition:
    """Cuts the graph into one part per worker. load: what is balanced, per word; None for no
    balance."""
    known = frequencies(stats)
    # Only terms that objects have: `whole` would give the others a weight of 1 as well.
    used = np.flatnonzero(known > 0)
    if workers >= len(used) or not len(graph.low):  # what METIS refuses
        return everywhere(stats, workers, lightest_first(known, workers), known)
    ends = np.searchsorted(used, np.concatenate([graph.low, graph.high]))
    order = np.argsort(ends, kind="stable")
    off = np.zeros(len(used) + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=len(used)), out=off[1:])
    other = np.roll(ends, len(graph.low))[order]
    pymetis = import_optional("pymetis", "Cutting a graph of words")
    free = pymetis.Options(seed=options.seed, ufactor=30 if load is not None else _FREE)
    with _silence_stdout():
        try:
            _, part = pymetis.part_graph(
                workers,
                pymetis.CSRAdjacency(off.tolist(), other.tolist()),
                eweights=whole(np.concatenate([weight, weight]))[order].tolist(),
                vweights=None if load is None else whole(load[used]).tolist(),
                options=free,
            )
        except RuntimeError as error:  # METIS reports every internal error so
            size = f"{len(used)} words and {len(graph.low)} pairs into {workers} parts"
            raise invalid("algorithm", f"METIS could not cut {size}: {error}") from None
    owner = np.zeros(len(known), np.int32)
    owner[used] = part
    return everywhere(stats, workers, owner, known)


@contextmanager
def _silence_stdout() -> Iterator[None]:
    """Discards C's standard output, where METIS reports empty parts and results go."""
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
    """Scales values to positive integers whose sum METIS can hold."""
    factor = min(1.0, (_TOTAL - len(values)) / max(float(values.sum()), 1.0))
    # Weights below one would all become equal, so the smallest one is scaled to a hundred.
    if len(positive := values[values > 0]) and positive.min() * factor < 1.0:
        factor = min(100.0 / float(positive.min()), _TOTAL / 2 / float(values.sum()))
    return np.maximum(np.rint(values * factor), 1).astype(np.int64)


@njit(cache=True, nogil=True)
def _list_pairs(
    row_start: I64, row_unit: I32, term: I32, weight: F64, first: int, last: int, words: int,
    key: I64, each: F64,
) -> None:  # fmt: skip
    """Writes the key and the weight of every pair of terms of rows first..last - 1."""
    n = 0
    for row in range(first, last):
        for i in range(row_start[row], row_start[row + 1]):
            a = np.int64(term[row_unit[i]])
            for j in range(i + 1, row_start[row + 1]):
                b = np.int64(term[row_unit[j]])
                key[n] = min(a, b) * words + max(a, b)
                each[n] = weight[row]
                n += 1
