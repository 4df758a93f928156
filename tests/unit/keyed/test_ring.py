"""The ring against a walk around it, and what changes when a worker comes or goes."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.keyed.ring import HashRing
from ps2stream.protocol.frame import U64
from tests.support.keyed_twins import clockwise, hashed, naive_ring


def random_keys(n: int, seed: int = 1) -> U64:
    return np.random.default_rng(seed).integers(0, 2**63, n).astype(np.uint64)


def seed_of_nodes(ring: HashRing) -> int:
    """The seed with which the nodes were hashed: the one that gives the first place."""
    return int(np.random.default_rng([ring.seed, 1]).integers(0, 1 << 63, 2)[1])


@pytest.mark.parametrize("workers", [(0,), (0, 1), (2, 5, 7, 40), tuple(range(20))])
def test_candidates_are_the_first_distinct_workers_clockwise(workers: tuple[int, ...]) -> None:
    ring = HashRing(workers, seed=3, nodes=6)
    naive = naive_ring(workers, 6, seed_of_nodes(ring))
    assert ring.places.tolist() == [place for place, _, _ in naive]
    keys = random_keys(200)
    for d in (1, 2, len(workers), len(workers) + 3):
        off, found = ring.candidates(keys, np.full(len(keys), d))
        for i, key in enumerate(keys.tolist()):
            assert found[off[i] : off[i + 1]].tolist() == clockwise(
                naive, key, int(ring.key_seed), d
            )


def test_a_key_at_a_node_or_beyond_the_last_one_is_the_nodes_or_the_firsts() -> None:
    ring = HashRing(range(8), seed=1, nodes=4)
    keys = random_keys(5000)
    off, found = ring.candidates(keys, np.ones(len(keys), np.int64))
    places = [hashed(key, int(ring.key_seed)) >> 32 for key in keys.tolist()]
    beyond = [i for i, place in enumerate(places) if place > ring.places[-1]]
    assert beyond
    assert {int(found[off[i]]) for i in beyond} == {int(ring.owners[0])}


def test_degrees_may_differ_from_key_to_key() -> None:
    ring = HashRing(range(9), seed=1)
    off, found = ring.candidates(random_keys(3), np.array([2, 0, 9]))
    assert off.tolist() == [0, 2, 2, 11]
    assert sorted(found[2:].tolist()) == list(range(9))


def test_a_smaller_depth_gives_the_same_first_candidates() -> None:
    whole, short = HashRing(range(12), seed=2), HashRing(range(12), seed=2, depth=4)
    assert (short.order == whole.order[:, :4]).all()
    assert short.plus(12).order.shape[1] == short.without(3).order.shape[1] == 4
    assert short.candidates(random_keys(5), np.full(5, 12))[0].tolist() == [0, 4, 8, 12, 16, 20]


def test_few_keys_move_when_a_worker_comes_or_goes() -> None:
    """Only keys of the worker that goes, or that comes, have another first candidate."""
    ring, keys = HashRing(range(16), seed=4), random_keys(20_000)
    one = np.ones(len(keys), np.int64)
    before = ring.candidates(keys, one)[1]
    without = ring.without(5).candidates(keys, one)[1]
    assert (before[before != without] == 5).all()
    assert 5 not in without
    more = ring.plus(16).candidates(keys, one)[1]
    assert (more[before != more] == 16).all()
    assert 0.5 / 17 < (before != more).mean() < 2 / 17
    assert ring.plus(16).without(16).candidates(keys, one)[1].tolist() == before.tolist()


def test_virtual_nodes_even_out_the_shares() -> None:
    keys = random_keys(50_000)
    one = np.ones(len(keys), np.int64)
    most = {}
    for nodes in (1, 128):
        ring = HashRing(range(16), seed=2, nodes=nodes)
        most[nodes] = np.bincount(ring.candidates(keys, one)[1]).max() / (len(keys) / 16)
    assert most[128] < 1.4 < most[1]


def test_wrong_workers_are_refused() -> None:
    for bad in ((), (1, 1), (-1,), (1 << 15,)):
        with pytest.raises(ValueError, match="worker"):
            HashRing(bad, seed=1)
    with pytest.raises(ValueError, match="at least one"):
        HashRing((3,), seed=1).without(3)
