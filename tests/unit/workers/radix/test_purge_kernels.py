"""Lazy deletion in the radix GI2: bounded steps, which leave nothing behind."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.purge_kernels import rehash_directory, sweep_slots
from tests.support.crowds import GRID, TERMS, Crowd, draw_crowd


def filled(n: int) -> RadixGI2:
    index = RadixGI2(GRID)
    index.insert(*draw_crowd(np.random.default_rng(1), n, 1.0, 0.1).rows(0, n))
    return index


def test_a_sweep_does_as_much_as_it_may_and_goes_on_later() -> None:
    index, n = filled(3000), 3000
    index.delete(np.arange(1, n + 1), np.full(n, n + 1))
    assert index.sweep(1 << 20) == 0
    index.purge(n + 1)
    marking = 0
    while index.sweep(4) == 0:  # all that may go is marked first
        marking += 1
    assert marking <= n / (4 * 32)
    steps = 1
    while index.stats().tombstones:
        before = index.stats().tombstones
        assert index.sweep(4) > 0
        assert before - index.stats().tombstones <= 32
        steps += 1
    assert steps >= n // 32
    assert index.stats()[:3] == (0, 0, 0)


def test_a_million_dead_queries_on_one_point_go_in_linear_time() -> None:
    """Ten thousand instead: a walk for each over all the others would take a hundred times as
    long as one for all."""
    n = 10_000
    crowd = draw_crowd(np.random.default_rng(1), n, 0.0, 0.0)
    crowd.rect[:], crowd.term[:] = (1.0, 1.0, 1.0, 1.0), 0
    crowd.rect[:, 2] += np.arange(n) * 1e-9  # or they were stored once
    times = []
    for part in (n // 4, n):
        index = RadixGI2(GRID)
        index.insert(*crowd.rows(0, part))
        index.delete(np.arange(1, part + 1), np.full(part, n + 1))
        index.purge(n + 1)
        start = time.process_time()
        while index.sweep(1 << 20):
            pass
        times.append(time.process_time() - start)
        assert index.stats()[:3] == (0, 0, 0)
    assert times[1] < 10 * times[0] + 0.05


def crowd_one_point(n: int, spread: float) -> Crowd:
    """Queries under one word that begin at one point, or within so many degrees of it."""
    rng = np.random.default_rng(2)
    crowd = draw_crowd(rng, n, 0.0, 0.0)
    crowd.rect[:], crowd.term[:] = (1.0, 1.0, 1.0, 1.0), 0
    crowd.rect[:, 2] += np.arange(n) * 1e-9  # or they were stored once
    crowd.rect[::3] += spread * rng.random((len(crowd.rect[::3]), 1))
    return crowd


@pytest.mark.parametrize("spread", [0.0, 40.0])
def test_a_long_leaf_is_walked_once_for_all_that_is_dead(spread: float) -> None:
    """Each of a call's dead queries would search it from end to end otherwise, and a sweep with a
    budget of less than a leaf would fall behind the deletes. Others stay and match."""
    n, each = 6_000, 100
    crowd = crowd_one_point(n, spread)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, n))
    some = np.random.default_rng(3).permutation(n) + 1
    for first in range(0, 10 * each, each):
        part = some[first : first + each]
        index.delete(part, np.full(each, n + 1))
        index.purge(n + 1)
        index._mark_ripe(each)
        while index.stats().tombstones:
            slots, addresses = index._dead[0], index._locate_updates()
            done, searched = sweep_slots(slots, 1 << 20, index._lines, addresses)
            assert done == len(slots)
            assert searched <= 2 * n // 64 + 12 * each
            index._dead.popleft()
    left = np.setdiff1d(some, some[: 10 * each])
    found = index.match(n + 2, np.ones(1), np.ones(1), np.array([0, 1]), TERMS[:1])
    here = np.flatnonzero((crowd.rect[:, 0] == 1.0) & (crowd.rect[:, 1] == 1.0)) + 1
    assert sorted(found.handle.tolist()) == np.intersect1d(left, here).tolist()
    assert index.stats().live == n - 10 * each


def test_a_sweep_with_less_than_a_leaf_keeps_up_with_deletes() -> None:
    """A walk through the leaf takes more than the whole budget, but all that is dead is out of it
    then."""
    n, each = 6_000, 50
    index = RadixGI2(GRID)
    index.insert(*crowd_one_point(n, 0.0).rows(0, n))
    for first in range(1, 20 * each, each):
        index.delete(np.arange(first, first + each), np.full(each, n + 1))
        index.purge(n + 1)
        index.sweep(8)  # 64 blocks, and the leaf has 94
        assert index.stats().tombstones == 0
    assert index.stats().live == n - 20 * each


def test_a_larger_directory_has_the_trees_and_no_empty_entries() -> None:
    old, directory = np.zeros((13, 8), np.uint64), np.zeros((26, 8), np.uint64)
    old[3:8, :4] = np.arange(20).reshape(5, 4)
    old[3:8, 4:] = (np.arange(1, 21) | 7 << 32).reshape(5, 4)
    old[9:11, 4:] = 9 << 32
    assert rehash_directory(old, directory) == 20
    found = [
        (int(bucket[i]), int(bucket[4 + i]))
        for bucket in directory
        for i in range(4)
        if bucket[4 + i]
    ]
    assert sorted(found) == [(i, i + 1 | 7 << 32) for i in range(20)]
