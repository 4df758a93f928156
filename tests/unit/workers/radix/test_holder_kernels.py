"""Queries that are alike are stored once, and each holder comes and goes by itself."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from ps2stream.protocol.rows import NEVER
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.holder_kernels import count_holding, list_holding
from tests.support.crowds import GRID, Crowd, brute_force, draw_crowd, draw_objects, pairs_of
from tests.support.radix import holders_of_slot


def draw_alike(rng: np.random.Generator, n: int, kinds: int) -> Crowd:
    """n queries, each like one of the first `kinds`."""
    crowd, like = draw_crowd(rng, kinds, 1.0, 0.2), np.arange(n) % kinds
    crowd.rect[:, 0] -= np.arange(kinds) * 1e-7  # no two kinds are alike
    return Crowd(
        crowd.rect[like],
        crowd.term[like],
        crowd.every[like],
        np.stack([np.arange(1, n + 1), np.full(n, NEVER)], 1),
    )


def held_by(index: RadixGI2) -> list[list[int]]:
    """The sorted handles of each slot."""
    held = [sorted(holders_of_slot(index, s)) for s in range(int(index._state[layout.SLOT_TOP]))]
    return sorted(h for h in held if h)


def test_queries_that_are_alike_take_one_slot() -> None:
    crowd = draw_alike(np.random.default_rng(1), 900, 30)
    index = RadixGI2(GRID)
    for first, last in pairwise((0, 1, 31, 60, 500, 900)):
        index.insert(*crowd.rows(first, last))
    assert held_by(index) == [list(range(k + 1, 901, 30)) for k in range(30)]
    assert index.stats().live == 900
    whole = RadixGI2(GRID)
    crowd.rect[:] += np.c_[np.arange(900)] * 1e-9
    whole.insert(*crowd.rows(0, 900))
    assert len(held_by(whole)) == 900
    assert index.stats().postings == whole.stats().postings
    assert index.postings(500) == whole.postings(500)
    assert index.stats().bytes < whole.stats().bytes - 900 * 64


@pytest.mark.parametrize("seed", range(4))
def test_each_holder_goes_at_its_own_lsn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 600
    crowd = draw_alike(rng, n, 4)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, n))
    order, watermark, pairs = rng.permutation(n), 0, 0
    for part in np.split(order, 12):
        lsns = rng.integers(max(n, watermark), max(n, watermark) + 200, len(part)) + 1
        crowd.lsns[part, 1] = lsns
        index.delete(part + 1, lsns)
        as_of = int(rng.integers(watermark, lsns.max() + 1))
        objects, has = draw_objects(rng, crowd, 20)
        want = brute_force(crowd, as_of, objects, has)
        found = index.match(as_of, *objects)
        assert pairs_of(found) == want
        assert (found.session == found.handle % 7).all()
        pairs += len(want)
        watermark = int(rng.integers(watermark, lsns.max() + 1))
        index.purge(watermark)
        gone = crowd.lsns[:, 1] <= watermark
        assert sorted(h for held in held_by(index) for h in held if not gone[h - 1]) == sorted(
            crowd.lsns[~gone, 0].tolist()
        )
        assert index.stats().live == int((crowd.lsns[:, 1] == NEVER).sum())
        index.sweep(1 << 20)
    assert pairs > 500


def test_a_chunk_that_is_freed_is_taken_again() -> None:
    rng, n = np.random.default_rng(2), 400
    crowd = draw_alike(rng, n, 1)
    index, tops = RadixGI2(GRID), set()
    for _ in range(5):
        index.insert(*crowd.rows(0, n))
        tops.add(int(index._state[layout.HOLDER_TOP]))
        index.delete(crowd.lsns[:, 0], np.full(n, n + 1))
        index.purge(n + 1)
        while index.sweep(1 << 10):
            pass
        assert index.stats()[:3] == (0, 0, 0)
        crowd.lsns[:, 0] += n
    assert len(tops) == 1


def test_a_hundred_thousand_holders_of_one_alert_come_and_go_in_linear_time() -> None:
    times = []
    for n in (10_000, 100_000):
        crowd = draw_alike(np.random.default_rng(1), n, 1)
        rows = crowd.rows(0, n)
        order = np.random.default_rng(2).permutation(n) + 1
        start = time.process_time()
        index = RadixGI2(GRID)
        index.insert(*rows)
        index.delete(order, np.full(n, n + 1))
        index.purge(n + 1)
        while index.sweep(1 << 20):
            pass
        times.append(time.process_time() - start)
        assert index.stats()[:3] == (0, 0, 0)
    assert times[1] < 30 * times[0] + 0.2


def test_a_match_of_a_shared_slot_is_one_of_each_live_holder() -> None:
    n = 40
    crowd = draw_alike(np.random.default_rng(3), n, 2)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, n))
    crowd.lsns[4:20, 1] = 60
    index.delete(np.arange(5, 21), np.full(16, 60))
    arrays = index._arrays
    extras = arrays.slots_i[:2, layout.SECOND]
    chunks = arrays.pool[extras + layout.X_DELETED].astype(np.int64)
    assert (chunks < 0).all()
    row = np.array([5, 6, 7], np.uint32)
    handle, session = np.array([1, 99, 2]), np.array([chunks[0], 77, chunks[1]])
    for as_of in (1, 20, 59, 60):
        want = [(6, 99, 77)]
        for born, gone in crowd.lsns.tolist():
            if born <= as_of < gone:
                want.append((5 if born % 2 else 7, born, born % 7))
        size = int(count_holding(as_of, session, arrays.holders, arrays.pool))
        out = np.empty(size, np.uint32), np.empty(size, np.int64), np.empty(size, np.int64)
        list_holding(as_of, row, handle, session, arrays.holders, arrays.pool, *out)
        found = zip(*(column.tolist() for column in out), strict=True)
        assert sorted(found) == sorted(want)
