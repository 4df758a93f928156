"""What load is shed: an object goes to its best workers alone (S3-TM, 5.2.1; algorithms.md 2.6,
6.6, 6.8).

*consensus* ranks a worker by how many of the object's terms chose it, *subscription* by the live
queries under these terms. A term is kept only if all workers that it chose are, so that exactly one
of them emits a match; a term that is not kept loses all of its matches.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ps2stream.errors import invalid
from ps2stream.multicast.bitsets import make_sets
from ps2stream.multicast.capping_kernels import cap_objects, join_chosen, rank_objects
from ps2stream.protocol.frame import F64, I64, U8, U64, Array

SheddingRank = Literal["consensus", "subscription"]
RANKS: tuple[SheddingRank, ...] = ("consensus", "subscription")


class ChosenWorkers(NamedTuple):
    """The workers that the terms of n objects chose. off int64[n + 1]: the terms of each object;
    chosen uint64[t, words]: the workers of each term as a set of bits, usually one; live int64[t]:
    the live queries under the term, where the object is; workers: their number."""

    off: I64
    chosen: U64
    live: I64
    workers: int

    def join(self) -> U64:
        """Returns the workers of each object without a cap, uint64[n, words]."""
        bits = make_sets(len(self.off) - 1, self.workers)
        join_chosen(self.off, self.chosen, bits)
        return bits


class CappedMulticast(NamedTuple):
    """What is left. bits uint64[n, words]: the workers of each object; kept uint8[t]: 1 for terms
    that are still routed, A of the canonical emitter."""

    bits: U64
    kept: U8


def cap_multicast(
    objects: ChosenWorkers, targets: float, rank: SheddingRank, sheddable: Array, draw: F64
) -> CappedMulticast:
    """Caps objects at `targets` >= 1 workers each.

    sheddable bool[n]: False for objects that are never shed, because they are durable or sampled;
    draw float64[n] in [0, 1): decides by the fraction of `targets` about one more worker, and among
    equals. An object that has workers keeps at least one term. Raises InvalidArgument for an
    unknown rank and for less than one worker.
    """
    if rank not in RANKS:
        raise invalid("rank", f"expected one of {', '.join(RANKS)}, got {rank!r}")
    if not targets >= 1:
        raise invalid("targets", f"expected at least one worker, got {targets:g}")
    n = len(objects.off) - 1
    kept, bits = np.empty(len(objects.live), np.uint8), make_sets(n, objects.workers)
    terms, queries, ranked = _make_scores(objects.workers)
    cap_objects(
        objects.off, objects.chosen, objects.live, min(targets, 1e9), rank == "subscription",
        np.asarray(sheddable, np.bool_), draw, terms, queries, ranked, kept, bits,
    )  # fmt: skip
    return CappedMulticast(bits, kept)


def rank_workers(objects: ChosenWorkers, rank: SheddingRank, draw: F64) -> tuple[I64, I64]:
    """Returns the workers of each object by descending rank, ragged: (off int64[n + 1], worker
    int64[])."""
    n = len(objects.off) - 1
    most = int(np.bitwise_count(objects.chosen).sum())
    start, out = np.zeros(n + 1, np.int64), np.empty(most, np.int64)
    rank_objects(
        objects.off, objects.chosen, objects.live, rank == "subscription", draw,
        *_make_scores(objects.workers), start, out,
    )  # fmt: skip
    return start, out[: start[-1]].copy()


def _make_scores(workers: int) -> tuple[I64, I64, I64]:
    """Returns the room of the kernels: terms, queries, workers that are ranked."""
    return np.zeros(workers, np.int64), np.zeros(workers, np.int64), np.empty(workers, np.int64)
