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
