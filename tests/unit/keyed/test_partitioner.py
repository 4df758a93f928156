"""Every scheme against its naive twin, several sources, and the theory of Partial Key Grouping."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ps2stream.keyed.counters import CounterOptions
from ps2stream.keyed.partitioner import (
    MOST_WORKERS,
    SCHEMES,
    KeyedPartitioner,
    Scheme,
    SchemeOptions,
    make_partitioner,
    make_ring_source,
)
from ps2stream.keyed.ring import HashRing
from ps2stream.keyed.sources import FishSource, GreedySource, ShuffleSource, draw_seeds
from ps2stream.protocol.frame import U64, Array
from tests.support.keyed_twins import (
    NaiveCounters,
    NaiveGreedy,
    NaiveHead,
    NaiveMemory,
    NaiveWaiting,
    clockwise,
    naive_ring,
)

SEED = 11
COUNTERS = CounterOptions(alpha=0.25, epoch=40, capacity=30, cool=2)
HEAD = CounterOptions(alpha=1.0, epoch=40, capacity=30)


def zipf(rng: np.random.Generator, n: int, keys: int = 80, z: float = 1.2) -> U64:
    p = np.arange(1, keys + 1) ** -z
    return rng.choice(keys, n, p=p / p.sum()).astype(np.uint64)


def options_for(scheme: Scheme, keys: U64, workers: int) -> SchemeOptions:
    seconds = np.where(np.arange(workers) % 2, 0.5, 1.0)
    known = np.unique(keys, return_counts=True)
    return SchemeOptions(counters=COUNTERS, head=HEAD, seconds=seconds, known=known, choices=3)


class NaiveFish:
    def __init__(self, n: int, sources: int, ring_seeds: tuple[int, int], nodes: int) -> None:
        self.counters = NaiveCounters(n, 0.25, 40, 30, 1 / (4 * n), "chk", 2)
        self.ring = naive_ring(range(n), nodes, ring_seeds[1])
        self.key_seed = ring_seeds[0]
        self.waiting = NaiveWaiting([0.5 if w % 2 else 1.0 for w in range(n)], sources)

    def route(self, key: int, now: float) -> int:
        d = self.counters.add(key)
        return self.waiting.assign(clockwise(self.ring, key, self.key_seed, d), now)


def naive_choice(scheme: Scheme, keys: U64, times: Array, n: int, sources: int) -> list[int]:
    """The workers by the twins, each tuple after the other."""
    seeds = draw_seeds(SEED, n + 3).tolist()

    def head(rule: str) -> NaiveHead:
        return NaiveHead(
            n, seeds[:n], NaiveCounters(n, 1.0, 40, 30, 1 / (5 * n), rule, COUNTERS.cool)
        )

    if scheme == "fish":
        ring = np.random.default_rng([SEED, 1]).integers(0, 1 << 63, 2).tolist()
        fish = [NaiveFish(n, sources, (ring[0], ring[1]), 128) for _ in range(sources)]
        return [fish[i % sources].route(int(key), float(times[i])) for i, key in enumerate(keys)]
    if scheme == "shuffle":
        return [(i % sources * n // sources + i // sources) % n for i in range(len(keys))]
    if scheme in ("potc", "on-greedy", "off-greedy"):
        memory = NaiveMemory(n, seeds[:2] if scheme == "potc" else [])
        if scheme == "off-greedy":
            found, count = np.unique(keys, return_counts=True)
            memory.place(dict(zip(found.tolist(), count.tolist(), strict=True)))
        return [memory.route(int(key)) for key in keys]
    twins: list[NaiveGreedy | NaiveHead]
    if scheme == "d-choices":
        twins = [head("single") for _ in range(sources)]
    elif scheme == "w-choices":
        twins = [head("all") for _ in range(sources)]
    else:
        twins = [NaiveGreedy(n, seeds[: 1 if scheme == "hash" else 3]) for _ in range(sources)]
    return [twins[i % sources].route(int(key)) for i, key in enumerate(keys)]


@pytest.mark.parametrize("sources", [1, 4])
@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_chooses_as_its_twin(scheme: Scheme, workers: int, sources: int) -> None:
    rng = np.random.default_rng([workers, sources])
    keys = zipf(rng, 900)
    times = np.cumsum(rng.integers(0, 8, 900) / 16.0)
    mine = make_partitioner(scheme, workers, sources, SEED, options_for(scheme, keys, workers))
    cuts = (0, 1, 2, 500, 501, 900)
    parts = [mine.assign(keys[a:b], times[a:b]) for a, b in itertools.pairwise(cuts)]
    got = np.concatenate(parts)
    assert got.tolist() == naive_choice(scheme, keys, times, workers, sources)
    assert mine.loads.tolist() == np.bincount(got, minlength=workers).tolist()
    assert mine.tuples == len(keys)


def test_the_senders_of_tuples_may_be_given() -> None:
    rng = np.random.default_rng(1)
    keys, senders = zipf(rng, 400), rng.integers(0, 3, 400)
    mine = make_partitioner("pkg", 5, 3, SEED)
    chosen = mine.assign(keys, senders=senders)
    for i in range(3):
        alone = GreedySource(5, SEED)
        want = alone.route(keys[senders == i], np.zeros(0))
        assert chosen[senders == i].tolist() == want.tolist()


def test_the_global_estimator_is_one_source() -> None:
    keys = zipf(np.random.default_rng(2), 500)
    shared = make_partitioner("pkg", 7, 5, SEED, SchemeOptions(shared=True)).assign(keys)
    assert shared.tolist() == make_partitioner("pkg", 7, 1, SEED).assign(keys).tolist()


def test_probing_sets_the_estimates_to_the_true_loads() -> None:
    """With a probe after every tuple, local estimation is the global one."""
    keys = zipf(np.random.default_rng(3), 300)
    want = make_partitioner("pkg", 7, 1, SEED).assign(keys)
    probing = make_partitioner("pkg", 7, 5, SEED, SchemeOptions(probe_every=1))
    assert probing.assign(keys).tolist() == want.tolist()
    seldom = make_partitioner("pkg", 7, 5, SEED, SchemeOptions(probe_every=100))
    first = np.concatenate([seldom.assign(keys[:130]), seldom.assign(keys[130:200])])
    for source in seldom.sources:
        assert isinstance(source, GreedySource)
        assert source.loads.tolist() == np.bincount(first, minlength=7).tolist()


def test_the_imbalance_is_at_most_the_sum_of_the_sources() -> None:
    """I(t) <= sum of I_j(t): why local estimation is enough (algorithms.md 4.1)."""
    keys = zipf(np.random.default_rng(4), 5000, keys=500, z=0.8)
    mine = make_partitioner("pkg", 10, 5, SEED)
    mine.assign(keys)
    loads = [s.loads for s in mine.sources if isinstance(s, GreedySource)]
    assert len(loads) == 5
    assert mine.loads.max() - mine.loads.mean() <= sum(x.max() - x.mean() for x in loads) + 1e-9


def imbalance(mine: KeyedPartitioner) -> float:
    return float(mine.loads.max() - mine.loads.mean())


@pytest.mark.parametrize("d", [2, 3])
def test_a_key_above_d_of_n_makes_a_linear_imbalance(d: int) -> None:
    """p1 > d / n: at least (p1 / d - 1 / n) m, whatever the loads (algorithms.md 4.2)."""
    n, p1 = 20, 0.4
    for m in (20_000, 80_000):
        rng = np.random.default_rng(m)
        keys = np.where(rng.random(m) < p1, 0, rng.integers(1, 10_000, m)).astype(np.uint64)
        mine = make_partitioner("pkg", n, 1, SEED, SchemeOptions(choices=d))
        mine.assign(keys)
        floor = ((keys == 0).mean() / d - 1 / n) * m
        assert floor <= imbalance(mine) <= 1.1 * floor


def test_as_many_equal_keys_as_workers_leave_bins_unused() -> None:
    """n equiprobable keys, d = 2: about (1 - e^-2) n = 0.865 n bins are used, so that the imbalance
    is at least 0.156 m / n (algorithms.md 4.2)."""
    n, used, floor = 500, [], []
    for seed in range(20):
        mine = make_partitioner("pkg", n, 1, seed)
        mine.assign(np.tile(np.arange(n, dtype=np.uint64), 200))
        used.append((mine.loads > 0).mean())
        floor.append(imbalance(mine) / (200 * n / n))
    assert np.mean(used) == pytest.approx(1 - math.exp(-2), abs=0.005)
    assert min(floor) >= 0.15


def test_two_keys_on_four_workers_still_drift_apart() -> None:
    """The imbalance of two equal keys is of the order of the root of m (algorithms.md 4.2)."""
    found = []
    for m in (4_000, 64_000):
        roots = []
        for seed in range(60):
            keys = np.random.default_rng(seed).integers(0, 2, m).astype(np.uint64)
            mine = make_partitioner("pkg", 4, 1, seed)
            mine.assign(keys)
            if (mine.loads > 0).all():  # the two keys share no worker
                roots.append(imbalance(mine) / math.sqrt(m))
        assert len(roots) > 5
        found.append(np.mean(roots))
    assert 0.1 < found[1] / found[0] < 10
    assert min(found) > 0.02


def test_even_keys_stay_even_with_two_choices_and_not_with_one() -> None:
    """Theorem 5.1: p1 <= 1 / (5 n), m >= n^2."""
    n, m = 50, 100_000
    keys = np.random.default_rng(5).integers(0, 50 * n, m).astype(np.uint64)
    two, one = make_partitioner("pkg", n, 1, SEED), make_partitioner("hash", n, 1, SEED)
    two.assign(keys)
    one.assign(keys)
    assert imbalance(two) < 0.01 * m / n
    assert imbalance(one) > 20 * imbalance(two)


def test_the_parts_of_fish_one_by_one_choose_as_the_whole() -> None:
    """A dispatcher may count, look up the ring and assign in separate steps."""
    keys = zipf(np.random.default_rng(6), 2000)
    times = np.arange(2000) / 4.0
    options = SchemeOptions(counters=COUNTERS, seconds=np.full(9, 1.5))
    ring = HashRing(range(9), SEED)
    whole = make_ring_source(ring, 2, SEED, options).route(keys, times)
    apart = make_ring_source(ring, 2, SEED, options)
    off, workers = ring.candidates(keys, apart.counters.count(keys))
    assert apart.waiting.assign(off, workers, times).tolist() == whole.tolist()


def test_without_times_fish_counts_the_tuples_that_it_sent() -> None:
    keys = np.zeros(900, np.uint64)
    options = SchemeOptions(counters=COUNTERS, seconds=np.array([1.0, 9.0, 1.0]), timed=False)
    mine = make_partitioner("fish", 3, 1, SEED, options)
    mine.assign(keys, np.arange(900) / 0.1)
    assert mine.loads.tolist() == [300, 300, 300]


def test_fish_goes_on_with_other_workers() -> None:
    keys = zipf(np.random.default_rng(7), 3000)
    ring = HashRing(range(5), SEED)
    source = make_ring_source(ring, 1, SEED, SchemeOptions(seconds=np.ones(6)))
    mine = KeyedPartitioner([source], 6)
    first = mine.assign(keys[:1000], np.arange(1000) / 5)
    source.change_ring(ring.without(2))
    second = mine.assign(keys[1000:2000], np.arange(1000, 2000) / 5)
    source.change_ring(ring.without(2).plus(5))
    third = mine.assign(keys[2000:], np.arange(2000, 3000) / 5)
    assert set(first.tolist()) == {0, 1, 2, 3, 4}
    assert set(second.tolist()) == {0, 1, 3, 4}
    assert set(third.tolist()) == {0, 1, 3, 4, 5}
    assert isinstance(source, FishSource)


def test_the_turns_of_several_shuffling_sources_begin_apart() -> None:
    mine = make_partitioner("shuffle", 8, 4)
    assert sorted(mine.assign(np.zeros(8, np.uint64)).tolist()) == list(range(8))
    assert all(isinstance(source, ShuffleSource) for source in mine.sources)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="scheme must be one of"):
        make_partitioner("best", 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        make_partitioner("pkg", 0)
    with pytest.raises(ValueError, match="must know"):
        make_partitioner("off-greedy", 4)


def test_no_keys_are_no_tuples() -> None:
    for scheme in SCHEMES:
        mine = make_partitioner(scheme, 3, 2, SEED, options_for(scheme, np.zeros(0, np.uint64), 3))
        assert len(mine.assign(np.zeros(0, np.uint64))) == 0
        assert mine.loads.tolist() == [0, 0, 0]


def test_columns_of_another_length_and_unknown_sources_are_refused() -> None:
    mine = make_partitioner("pkg", workers=3, sources=2)
    keys = np.arange(4, dtype=np.uint64)
    with pytest.raises(ValueError, match="as many values as keys, 4"):
        mine.assign(keys, np.zeros(3))
    with pytest.raises(ValueError, match="as many values as keys, 4"):
        mine.assign(keys, senders=np.zeros(5, np.int64))
    with pytest.raises(ValueError, match="senders must be below 2"):
        mine.assign(keys, senders=np.array([0, 1, 2, 0]))
    assert mine.tuples == mine.loads.sum() == 0


def test_more_workers_than_there_are_numbers_are_refused() -> None:
    make_partitioner("hash", MOST_WORKERS)
    with pytest.raises(ValueError, match="workers must be at most 65535, not 65536"):
        make_partitioner("hash", MOST_WORKERS + 1)
