"""Decayed SpaceSaving and the degrees of hot keys, against their naive twin and the papers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.keyed.counter_kernels import least_degree, single_degree
from ps2stream.keyed.counters import CounterOptions, HotKeyCounters, HotRule
from ps2stream.protocol.frame import U64
from tests.support.keyed_twins import NaiveCounters, naive_single


def skewed(rng: np.random.Generator, n: int, keys: int = 60) -> U64:
    """A stream whose hot keys change half way."""
    key = np.minimum(rng.zipf(1.5, n), keys)
    key[n // 2 :] = keys + 1 - key[n // 2 :]
    return key.astype(np.uint64)


@pytest.mark.parametrize("rule", ["chk", "all", "single"])
@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_counters_and_degrees_are_those_of_the_twin(rule: HotRule, alpha: float) -> None:
    """Powers of two decay without rounding, so that ties are ties in both."""
    rng = np.random.default_rng(3)
    for workers, capacity, epoch, cool in ((16, 20, 50, 2), (5, 7, 13, 0), (1, 3, 5, 1)):
        options = CounterOptions(alpha, epoch, capacity, 1 / 24, rule, cool)
        mine = HotKeyCounters(workers, options, seed=5)
        twin = NaiveCounters(workers, alpha, epoch, capacity, 1 / 24, rule, cool)
        keys = skewed(rng, 2000)
        for part in np.array_split(keys, [1, 2, 700, 1999]):
            degrees = mine.count(part)
            assert degrees.tolist() == [twin.add(int(key)) for key in part]
            held, counts = mine.counts()
            assert dict(zip(held.tolist(), counts.tolist(), strict=True)) == twin.count
            assert mine.total == twin.total
        hot, share, _ = mine.hot()
        assert set(hot.tolist()) == {key for key in twin.slots if twin.is_hot(key)}
        assert share.tolist() == sorted(share.tolist(), reverse=True)


def test_frequencies_with_the_papers_alpha_are_those_of_the_twin() -> None:
    keys = skewed(np.random.default_rng(4), 5000)
    mine = HotKeyCounters(8, CounterOptions(capacity=200, epoch=100))
    twin = NaiveCounters(8, 0.2, 100, 200, 1 / 32, "chk", 10)
    mine.count(keys)
    for key in keys:
        twin.add(int(key))
    asked = np.unique(keys)
    want = [twin.count.get(int(key), 0.0) / twin.total for key in asked]
    np.testing.assert_allclose(mine.frequencies(asked), want, rtol=1e-9)
    assert mine.frequencies(np.array([12345], np.uint64)).tolist() == [0.0]


def test_spacesaving_keeps_its_promises() -> None:
    """Without decay: counts sum to the tuples, none is too small, errors are at most the least
    count, and every key above tuples / capacity has a counter."""
    rng = np.random.default_rng(6)
    for capacity in (1, 5, 30):
        keys = skewed(rng, 3000, 500)
        mine = HotKeyCounters(4, CounterOptions(alpha=1.0, capacity=capacity))
        mine.count(keys)
        held, counts = mine.counts()
        counted = dict(zip(held.tolist(), counts.tolist(), strict=True))
        true = dict(zip(*(a.tolist() for a in np.unique(keys, return_counts=True)), strict=True))
        assert sum(counted.values()) == mine.total == len(keys)
        assert all(true[key] <= c <= true[key] + counts.min() for key, c in counted.items())
        assert all(key in counted for key, c in true.items() if c > len(keys) / capacity)


def test_the_total_is_the_decayed_number_of_tuples() -> None:
    mine = HotKeyCounters(4, CounterOptions(alpha=0.2, epoch=10, capacity=3))
    mine.count(skewed(np.random.default_rng(7), 35))
    assert mine.total == pytest.approx(5 + 10 * 0.2 + 10 * 0.2**2 + 10 * 0.2**3)
    assert mine.epoch == 3


def test_the_scale_begins_anew_before_it_overflows() -> None:
    """A thousand epochs at 1/alpha = 5 are beyond the range of a double."""
    mine = HotKeyCounters(4, CounterOptions(alpha=0.2, epoch=10, capacity=5))
    keys = skewed(np.random.default_rng(8), 10_000)
    mine.count(keys)
    fresh = HotKeyCounters(4, CounterOptions(alpha=0.2, epoch=10, capacity=5))
    fresh.count(keys[-2000:])
    assert mine.total == pytest.approx(10 / 0.8, rel=1e-9)
    held, counts = mine.counts()
    top = held[np.argmax(counts)]
    assert mine.frequencies(held).sum() == pytest.approx(1.0)
    assert mine.frequencies(held)[0] > 0
    assert top == fresh.hot()[0][0]


def test_the_papers_example_of_chk() -> None:
    """W = 16, f_top = 0.2, f_k = 0.06 > 1/64: index 1, so 8 workers."""
    keys = np.array([0] * 20 + [1] * 5 + list(range(10, 84)) + [1], np.uint64)
    mine = HotKeyCounters(16, CounterOptions(epoch=1000, capacity=1000))
    degrees = mine.count(keys)
    assert mine.frequencies(np.array([0, 1], np.uint64)).tolist() == [0.2, 0.06]
    assert mine.limits.theta == 1 / 64
    fresh = HotKeyCounters(16, CounterOptions(epoch=1000, capacity=1000))
    fresh.arrays.degree[:] = 0
    fresh.count(keys[:-1])
    fresh.arrays.degree[:] = 0  # what the key was given while the first tuples were all hot
    assert fresh.count(keys[-1:]).tolist() == [8]
    assert degrees[-1] >= 8


def test_a_degree_falls_when_the_key_has_cooled() -> None:
    """The paper's M_k only grows; ours falls after `cool` epochs that did not require it."""
    options = CounterOptions(alpha=0.0, epoch=16, capacity=10, theta=0.2, cool=2)
    mine = HotKeyCounters(16, options)
    epoch = np.array([0] * 8 + [10, 11, 12, 13] + [1] * 4, np.uint64)
    assert mine.count(np.array([1] * 16, np.uint64))[-1] == 16
    given = [mine.count(epoch)[-1] for _ in range(4)]
    # In the first of these, dmin is 16 from the epoch before. Then f_top = 1/2 and f_k = 1/4 give
    # 16 / 2 = 8, and dmin for two keys with 3/4 of the tuples is 11.
    assert given == [16, 16, 16, 11]
    assert least_degree(0.75, 2, 16) == 11


@pytest.mark.parametrize("workers", [2, 5, 16, 128])
def test_dmin_is_the_smallest_that_covers_the_hot_share(workers: int) -> None:
    for hot, share in itertools.product((1, 3, 40), (0.05, 0.4, 0.95, 1.0)):
        d = least_degree(share, hot, workers)

        def covered(d: int, hot: int = hot) -> float:
            return 1 - float((1 - 1 / workers) ** (d * hot))

        assert 2 <= d <= workers
        assert d == workers or covered(d) >= share - 1e-12
        assert d == 2 or covered(d - 1) < share + 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_the_degree_of_d_choices_is_the_smallest_that_meets_the_condition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 100))
    p = np.arange(1, 300) ** -rng.uniform(0.5, 2.0)
    p /= p.sum()
    head = np.ascontiguousarray(p[p >= 1 / (5 * n)])
    want = naive_single(head.tolist(), 1 - head.sum(), n)
    assert single_degree(head, len(head), 1 - head.sum(), n) == want
    assert single_degree(head, 0, 1.0, n) == 2


def test_options_out_of_range_are_refused() -> None:
    for bad in ({"alpha": 1.5}, {"alpha": -0.1}, {"epoch": 0}, {"capacity": 0}, {"cool": -1}):
        with pytest.raises(ValueError, match="must be"):
            CounterOptions(**bad)


def test_fewer_workers_cap_the_degrees() -> None:
    mine = HotKeyCounters(16)
    keys = np.zeros(100, np.uint64)
    assert mine.count(keys)[-1] == 16
    mine.resize(3)
    assert mine.count(keys)[-1] == 3
