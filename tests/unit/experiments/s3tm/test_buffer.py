"""The simulated router against queues by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.s3tm.buffer import RankedPosts, measure_loads, simulate_router
from ps2stream.multicast.shedding_levels import BufferSegments, targets_at

NEVER = BufferSegments(-1.0, 1e12)
"""Segments in which the level stays as it is."""


def some_posts(rng: np.random.Generator, nodes: int, n: int = 300) -> RankedPosts:
    size = rng.integers(1, nodes + 1, n)
    rows = [rng.permutation(nodes)[:s] for s in size]
    return RankedPosts(np.r_[0, np.cumsum(size)], np.concatenate(rows))


def test_without_overload_everything_is_sent_at_once() -> None:
    posts = some_posts(np.random.default_rng(1), 5)
    took = simulate_router(posts, [100.0] * 30, NEVER, 10**9, 1e6, 5, 1)
    assert took.waiting.tolist() == [0] * 30
    assert took.sent.tolist() == took.came.tolist()
    assert took.shed.sum() == took.dropped.sum() == took.level.sum() == 0
    assert took.came.mean() == pytest.approx(100, abs=6)


def test_what_the_nodes_take_bounds_what_is_sent() -> None:
    """All posts go to one of two nodes: it sets the pace."""
    posts = RankedPosts(np.arange(0, 21, 2), np.tile([1, 0], 10))
    took = simulate_router(posts, [500.0] * 20, NEVER, 10**9, 100.0, 2, 1)
    assert took.sent.tolist() == [100] * 20
    assert took.waiting[-1] == took.came.sum() - 2000
    assert took.copies.tolist() == [200] * 20


def test_a_full_buffer_drops_and_no_post_is_lost_otherwise() -> None:
    posts = some_posts(np.random.default_rng(2), 4)
    took = simulate_router(posts, [300.0] * 50, NEVER, 1000, 100.0, 4, 1)
    assert took.waiting.max() == 1000
    assert took.came.sum() == took.sent.sum() + took.dropped.sum() + took.waiting[-1]
    assert took.dropped.sum() > 0


def test_the_level_rises_until_the_nodes_keep_up() -> None:
    posts = some_posts(np.random.default_rng(3), 12, 2000)
    loads = measure_loads(posts, 12, 8)
    took = simulate_router(
        posts, [1000.0] * 200, BufferSegments(1000, 2000), 10**9, 1000 * float(loads[5]), 12, 1
    )
    assert took.level.max() >= 5
    assert took.waiting[100:].max() < 12_000
    assert took.shed.sum() > 0
    sent = took.copies[1:] + took.shed[1:]
    assert (sent[took.level[:-1] == 0] == took.copies[1:][took.level[:-1] == 0]).all()


def test_loads_of_levels_are_those_of_the_first_targets() -> None:
    posts = some_posts(np.random.default_rng(4), 9)
    loads = measure_loads(posts, 9, 8)
    assert np.all(np.diff(loads) <= 0)
    for level in (0, 1, 8):
        most = int(min(round(targets_at(level), 9), 99))
        counts = np.zeros(9)
        for a, b in zip(posts.off[:-1].tolist(), posts.off[1:].tolist(), strict=True):
            np.add.at(counts, posts.node[a : min(b, a + most)], 1)
        assert loads[level] == pytest.approx(counts.max() / 300)


def test_fractions_are_drawn() -> None:
    posts = RankedPosts(np.arange(0, 41, 4), np.tile([0, 1, 2, 3], 10))
    took = simulate_router(posts, [2000.0] * 12, BufferSegments(-1.0, 0.0), 10**9, 1e3, 4, 1)
    assert took.level.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8]
    each = took.copies[7] / took.sent[7]  # sent at level 7
    assert each == pytest.approx(targets_at(7), abs=0.06)
