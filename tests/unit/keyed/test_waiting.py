"""Assignment by waiting time against its naive twin and the paper's example."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.keyed.waiting import WaitingTimes
from tests.support.keyed_twins import NaiveWaiting

ALL_FOUR = (np.array([0, 4]), np.arange(4, dtype=np.uint16))


def test_the_papers_example() -> None:
    """Waiting times of 50, 40, 100 and 60: the 40 is taken, though the last has fewer tuples (its
    figure 7; workers 3 and 4 take twice as long for one)."""
    waiting = WaitingTimes(np.array([1.0, 1.0, 2.0, 2.0]))
    waiting.correct(np.array([50.0, 40.0, 50.0, 30.0]), now=500.0)
    assert waiting.waits(500.0).tolist() == [50.0, 40.0, 100.0, 60.0]
    assert waiting.assign(*ALL_FOUR, np.array([500.0])).tolist() == [1]
    assert waiting.waits(500.0).tolist() == [50.0, 41.0, 100.0, 60.0]


@pytest.mark.parametrize("sources", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_random_tuples_go_where_the_twin_sends_them(sources: int, seed: int) -> None:
    """All times are sums of powers of two, so that both drain without rounding."""
    rng = np.random.default_rng(seed)
    seconds = rng.choice([0.25, 0.5, 1.0, 2.0], 6)
    degrees = rng.integers(1, 7, 400)
    workers = np.concatenate([rng.permutation(6)[:d] for d in degrees]).astype(np.uint16)
    off = np.r_[0, np.cumsum(degrees)]
    arrivals = np.cumsum(rng.integers(0, 4, 400) / 16.0)
    twin = NaiveWaiting(seconds.tolist(), sources)
    want = [
        twin.assign(workers[off[i] : off[i + 1]].tolist(), float(arrivals[i])) for i in range(400)
    ]
    mine = WaitingTimes(seconds, sources)
    got: list[int] = []
    for a, b in ((0, 1), (1, 250), (250, 400)):
        got += mine.assign(off[a : b + 1], workers, arrivals[a:b]).tolist()
    assert got == want
    assert (mine.waits(twin.now) / seconds).tolist() == twin.backlog


def test_a_fast_worker_gets_more() -> None:
    """Half as long for a tuple: twice as many tuples."""
    waiting = WaitingTimes(np.array([1.0, 1.0, 2.0, 2.0]))
    off = np.arange(0, 4 * 3001, 4)
    candidates = np.tile(ALL_FOUR[1], 3000)
    chosen = waiting.assign(off, candidates, np.arange(3000) / 3.0)
    np.testing.assert_allclose(np.bincount(chosen), [1000, 1000, 500, 500], atol=2)


def test_time_does_not_go_back() -> None:
    waiting = WaitingTimes(np.ones(4))
    waiting.assign(*ALL_FOUR, np.array([10.0]))
    waiting.assign(*ALL_FOUR, np.array([3.0]))
    assert waiting.now == 10.0
    assert waiting.waits(3.0).sum() == 2.0


def test_a_new_time_of_a_tuple_counts_from_now_on() -> None:
    waiting = WaitingTimes(np.ones(2))
    waiting.correct(np.array([10.0, 10.0]), now=0.0)
    waiting.waits(4.0)
    waiting.learn(np.array([1.0, 3.0]))
    assert waiting.waits(4.0).tolist() == [6.0, 18.0]
    assert waiting.waits(7.0).tolist() == [3.0, 15.0]


def test_a_time_that_is_not_above_nothing_is_refused() -> None:
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="above 0"):
            WaitingTimes(np.array([1.0, bad]))
