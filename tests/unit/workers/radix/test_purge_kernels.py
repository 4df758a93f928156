"""Lazy deletion in the radix GI2: bounded steps, which leave nothing behind."""

from __future__ import annotations

import time

import numpy as np

from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.purge_kernels import rehash_directory
from tests.support.crowds import GRID, draw_crowd


def filled(n: int) -> RadixGI2:
    index = RadixGI2(GRID)
    index.insert(*draw_crowd(np.random.default_rng(1), n, 1.0, 0.1).rows(0, n))
    return index


def test_a_sweep_does_as_much_as_it_may_and_goes_on_later() -> None:
    index, n = filled(3000), 3000
    index.delete(np.arange(1, n + 1), np.full(n, n + 1))
    assert index.sweep(1 << 20) == 0
    index.purge(n + 1)
    steps = 0
    while index.stats().tombstones:
        before = index.stats().tombstones
        assert index.sweep(64) > 0
        assert before - index.stats().tombstones <= 4
        steps += 1
    assert steps >= n // 4
    assert index.stats()[:3] == (0, 0, 0)


def test_a_million_dead_queries_on_one_point_go_in_linear_time() -> None:
    """Ten thousand instead: a walk for each over all the others would take a hundred times as
    long as one for all."""
    n = 10_000
    crowd = draw_crowd(np.random.default_rng(1), n, 0.0, 0.0)
    crowd.rect[:], crowd.term[:] = (1.0, 1.0, 1.0, 1.0), 0
    times = []
    for part in (n // 4, n):
        index = RadixGI2(GRID)
        index.insert(*crowd.rows(0, part))
        index.delete(np.arange(1, part + 1), np.full(part, n + 1))
        index.purge(n + 1)
        start = time.perf_counter()
        while index.sweep(1 << 20):
            pass
        times.append(time.perf_counter() - start)
        assert index.stats()[:3] == (0, 0, 0)
    assert times[1] < 10 * times[0] + 0.05


def test_a_larger_directory_has_the_trees_and_no_empty_entries() -> None:
    old = np.zeros((50, 2), np.uint64)
    old[3:23, 0] = np.arange(20)
    old[3:23, 1] = np.arange(1, 21) | 7 << 32
    old[30:40, 1] = 9 << 32
    directory = np.zeros((101, 2), np.uint64)
    assert rehash_directory(old, directory) == 20
    used = directory[directory[:, 1] > 0]
    assert sorted(map(tuple, used.tolist())) == sorted(map(tuple, old[3:23].tolist()))
