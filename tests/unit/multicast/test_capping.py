"""Capped multicasts against ranks by hand, and against the exactly-once rule by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.multicast.capping import (
    RANKS,
    ChosenWorkers,
    SheddingRank,
    cap_multicast,
    rank_workers,
)
from ps2stream.protocol.frame import F64, U64


def some_objects(
    rng: np.random.Generator, workers: int, n: int = 200, most: int = 1
) -> ChosenWorkers:
    """Objects of up to nine terms, each of which chose up to `most` workers."""
    size = rng.integers(0, 10, n)
    terms = int(size.sum())
    chosen = np.zeros((terms, -(-workers // 64)), np.uint64)
    for t in range(terms):
        for worker in rng.choice(workers, rng.integers(1, most + 1), replace=False).tolist():
            chosen[t, worker >> 6] |= np.uint64(1 << (worker & 63))
    return ChosenWorkers(np.r_[0, np.cumsum(size)], chosen, rng.integers(1, 50, terms), workers)


def members(row: U64) -> set[int]:
    return {64 * k + i for k, word in enumerate(row.tolist()) for i in range(64) if word >> i & 1}


def scores(objects: ChosenWorkers, i: int, rank: SheddingRank) -> dict[int, tuple[int, int]]:
    """The rank of each worker of object i: the first measure, then the other."""
    found: dict[int, tuple[int, int]] = {}
    for t in range(objects.off[i], objects.off[i + 1]):
        for worker in members(objects.chosen[t]):
            terms, live = found.get(worker, (0, 0))
            found[worker] = (terms + 1, live + int(objects.live[t]))
    return {w: s if rank == "consensus" else s[::-1] for w, s in found.items()}


def half(n: int) -> F64:
    return np.full(n, 0.5)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("workers", [4, 64, 150])
@pytest.mark.parametrize("targets", [1, 2, 5])
def test_the_best_workers_are_kept(workers: int, targets: int, rank: SheddingRank) -> None:
    rng = np.random.default_rng(workers)
    objects = some_objects(rng, workers)
    n = len(objects.off) - 1
    capped = cap_multicast(objects, targets, rank, np.ones(n, np.bool_), rng.random(n))
    shed = 0
    for i in range(n):
        ranks, mine = scores(objects, i, rank), members(capped.bits[i])
        assert len(mine) == min(targets, len(ranks))
        rest = [ranks[w] for w in ranks if w not in mine]
        shed += len(rest)
        if mine and rest:
            assert min(ranks[w] for w in mine) >= max(rest)
        for t in range(objects.off[i], objects.off[i + 1]):
            assert capped.kept[t] == (members(objects.chosen[t]) <= mine)
    assert shed > 0 or (targets, workers) == (5, 4)


@pytest.mark.parametrize("rank", RANKS)
def test_ranks_descend_and_hold_all_workers(rank: SheddingRank) -> None:
    rng = np.random.default_rng(2)
    objects = some_objects(rng, 70, most=3)
    off, worker = rank_workers(objects, rank, rng.random(len(objects.off) - 1))
    for i, (a, b) in enumerate(itertools.pairwise(off.tolist())):
        ranks = scores(objects, i, rank)
        found = [ranks[w] for w in worker[a:b].tolist()]
        assert set(worker[a:b].tolist()) == set(ranks)
        assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("rank", RANKS)
def test_what_may_not_be_shed_goes_everywhere(rank: SheddingRank) -> None:
    rng = np.random.default_rng(3)
    objects = some_objects(rng, 20)
    n = len(objects.off) - 1
    sheddable = rng.random(n) < 0.5
    whole = objects.join()
    capped = cap_multicast(objects, 1.0, rank, sheddable, half(n))
    assert (capped.bits[~sheddable] == whole[~sheddable]).all()
    assert (capped.bits[sheddable] != whole[sheddable]).any()
    free = cap_multicast(objects, float("inf"), rank, np.ones(n, np.bool_), half(n))
    assert (free.bits == whole).all()
    assert free.kept.all()


def test_a_fraction_is_the_probability_of_one_more() -> None:
    n = 20_000
    chosen = np.tile(np.array([[1], [2], [4], [8]], np.uint64), (n, 1))
    objects = ChosenWorkers(np.arange(0, 4 * n + 1, 4), chosen, np.ones(4 * n, np.int64), 4)
    draw = np.random.default_rng(1).random(n)
    sizes = np.bitwise_count(
        cap_multicast(objects, 2.25, "consensus", np.ones(n, np.bool_), draw).bits
    )
    assert set(sizes[:, 0].tolist()) == {2, 3}
    assert sizes.mean() == pytest.approx(2.25, abs=0.02)


def test_equal_workers_are_shed_equally() -> None:
    n = 8_000
    chosen = np.tile(np.array([[1], [2], [4], [8]], np.uint64), (n, 1))
    objects = ChosenWorkers(np.arange(0, 4 * n + 1, 4), chosen, np.ones(4 * n, np.int64), 4)
    draw = np.random.default_rng(1).random(n)
    bits = cap_multicast(objects, 1.0, "subscription", np.ones(n, np.bool_), draw).bits[:, 0]
    counts = [int((bits == 1 << w).sum()) for w in range(4)]
    assert min(counts) > 0.9 * n / 4


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("targets", [1.0, 2.5, 4.0])
def test_at_most_one_worker_emits_a_match(targets: float, rank: SheddingRank) -> None:
    """A query is held by all workers that one of its posting terms chose. Those that get the object
    emit by the smallest kept term of it: one worker does, or none if no such term is kept."""
    rng = np.random.default_rng(4)
    objects = some_objects(rng, 9, most=2)
    n = len(objects.off) - 1
    capped = cap_multicast(objects, targets, rank, np.ones(n, np.bool_), rng.random(n))
    lost = emitted = 0
    for i in range(n):
        begin, end = int(objects.off[i]), int(objects.off[i + 1])
        mine = members(capped.bits[i])
        for posting in itertools.combinations(range(begin, end), 2):
            # One holder for each term: a shard of those that it chose.
            holder = {t: min(members(objects.chosen[t])) for t in posting}
            kept = [t for t in posting if capped.kept[t]]
            emitters = [w for w in mine if kept and holder[min(kept)] == w]
            assert len(emitters) == bool(kept)
            emitted += len(emitters)
            lost += not kept
        assert not (begin < end) or mine
    assert emitted > 500
    assert lost > 0


def test_a_term_with_two_workers_is_never_half_kept() -> None:
    """With room for one worker, an object whose terms all need two keeps one term whole."""
    objects = ChosenWorkers(
        np.array([0, 3]), np.array([[0], [0b0011], [0b1100]], np.uint64), np.array([9, 3, 8]), 4
    )
    capped = cap_multicast(objects, 1.0, "subscription", np.ones(1, np.bool_), half(1))
    assert capped.kept.tolist() == [1, 0, 1]
    assert capped.bits.tolist() == [[0b1100]]


def test_bad_arguments_are_named() -> None:
    objects = some_objects(np.random.default_rng(1), 4, 3)
    with pytest.raises(InvalidArgument, match="rank: expected one of consensus, subscription"):
        cap_multicast(objects, 1.0, "best", np.ones(3, np.bool_), half(3))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"targets: expected at least one worker, got 0\.5"):
        cap_multicast(objects, 0.5, "consensus", np.ones(3, np.bool_), half(3))
