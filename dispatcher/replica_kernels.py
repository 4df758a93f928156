"""Kernels that choose one of the workers that own a replicated unit, and all of those that own a
sharded one (algorithms.md 5.3, 6.3)."""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import F64, I64, U8, U64
from ps2stream.routing.unit_kernels import U16

_ONE = np.uint64(1)


@njit(cache=True, nogil=True)
def _choose_shards(by_term: U64, by_group: U16, groups: tuple[I64, U16, U8]) -> None:
    """Sets the bits of all workers of the groups that shard what a term has met: each of them has
    some of the queries. It comes first, for replicas are chosen where an object goes anyhow."""
    group_off, group_worker, sharded = groups
    for level in range(len(by_group)):
        for k in range(by_group.shape[1]):
            g = np.int64(by_group[level, k]) - 1
            if g < 0 or not sharded[g]:
                continue
            for j in range(group_off[g], group_off[g + 1]):
                w = np.int64(group_worker[j])
                by_term[k, w >> 6] |= _ONE << np.uint64(w & 63)


@njit(cache=True, nogil=True)
def choose_replicas(
    by_term: U64,
    by_group: U16,
    term_off: I64,
    groups: tuple[I64, U16, U8],
    waits: F64,
    time: float,
) -> None:
    """Chooses a worker of each group that a term has met, or all of one that shards its unit, and
    sets their bits of the term.

    by_term: uint64[terms, words], the workers that each term chose by itself; by_group
    uint16[levels, terms]: 1 + the group that the term met on a level, 0 for none. groups: of
    WorkerGroups. waits, times: float64[workers] microseconds, what is before a worker and what an
    object takes there; `waits` grows with each object that is sent.

    A worker that the term chose already, on another level, finds the group's queries too, for its
    bit is of the term and not of the level. So it must be the one, or the pair would be found
    twice. Only where two such workers are in one group are pairs found twice: the mergers make
    them one. Otherwise the worker is one to which the object goes anyhow, or else one of least
    waiting time; or the one chosen before in this batch, as long as it waits longer by no more than
    all workers did on average before the batch. So objects of a busy stream stay together, which
    workers match faster, and those of a quiet one are divided.
    """
    group_off, group_worker, sharded = groups
    if sharded.any():
        _choose_shards(by_term, by_group, groups)
    last, lead = -1, waits.mean()
    words = by_term.shape[1]
    sent_to = np.zeros(words, np.uint64)
    first = term_off[0]
    for i in range(len(term_off) - 1):
        for word in range(words):
            bits = np.uint64(0)
            for k in range(term_off[i] - first, term_off[i + 1] - first):
                bits |= by_term[k, word]
            sent_to[word] = bits
            w = word * 64
            while bits:
                if bits & _ONE:
                    waits[w] += time
                bits >>= _ONE
                w += 1
        for k in range(term_off[i] - first, term_off[i + 1] - first):
            for level in range(len(by_group)):
                if not by_group[level, k]:
                    continue
                g = by_group[level, k] - 1
                if sharded[g]:
                    continue
                best, rank, is_last = -1, 0, False
                for j in range(group_off[g], group_off[g + 1]):
                    w = int(group_worker[j])
                    bit = _ONE << np.uint64(w & 63)
                    is_last |= w == last
                    own = 2 if by_term[k, w >> 6] & bit else (1 if sent_to[w >> 6] & bit else 0)
                    if best < 0 or own > rank or (own == rank and waits[w] < waits[best]):
                        best, rank = w, own
                if rank == 0:
                    if is_last and waits[last] <= waits[best] + lead:
                        best = last
                    last = best
                bit = _ONE << np.uint64(best & 63)
                by_term[k, best >> 6] |= bit
                if rank == 0:
                    sent_to[best >> 6] |= bit
                    waits[best] += time


@njit(cache=True, nogil=True)
def count_group(
    queries: np.int64, group: np.int64, turn: int, groups: tuple[I64, U16, U8], met: I64
) -> None:
    """Adds the queries of a unit that an object meets to met[w] of the workers of the group that
    compare it: where they shard the unit, equal parts to each, else all to the one whose turn it
    is."""
    first, end = groups[0][group], groups[0][group + 1]
    size = end - first
    if not groups[2][group]:
        met[groups[1][first + turn % size]] += queries
        return
    for j in range(size):
        met[groups[1][first + j]] += queries // size + (j < queries % size)
