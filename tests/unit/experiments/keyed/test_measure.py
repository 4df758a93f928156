"""Imbalance, states and times against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.keyed.measure import (
    QUEUE,
    RunClock,
    count_states,
    measure_imbalance,
    measure_times,
    steady_arrivals,
)
from ps2stream.experiments.keyed.streams import KeyStream
from ps2stream.keyed.partitioner import make_partitioner


@pytest.mark.parametrize("seed", range(5))
def test_the_imbalance_is_that_of_every_moment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, workers = 200, int(rng.integers(1, 9))
    chosen = rng.integers(0, workers, n).astype(np.uint16)
    loads, at = [0] * workers, []
    for worker in chosen:
        loads[worker] += 1
        at.append(max(loads) - sum(loads) / workers)
    found = measure_imbalance(chosen, workers)
    assert found.final == pytest.approx(at[-1] / n)
    assert found.average == pytest.approx(sum(at) / n / n)
    assert found.worst == pytest.approx(max(at[t - 1] / t for t in range(21, n + 1)))


@pytest.mark.parametrize("workers", [1, 63, 64, 65, 130])
def test_states_are_distinct_pairs(workers: int) -> None:
    rng = np.random.default_rng(workers)
    keys = rng.integers(0, 30, 500).astype(np.uint64)
    chosen = rng.integers(0, workers, 500).astype(np.uint16)
    want = len(set(zip(keys.tolist(), chosen.tolist(), strict=True)))
    assert count_states(KeyStream("x", keys, 30), chosen, workers) == want


@pytest.mark.parametrize("seed", range(5))
def test_workers_handle_their_tuples_in_turn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, 3, 100).astype(np.uint16)
    arrivals = np.cumsum(rng.random(100))
    seconds = np.array([1.0, 0.5, 3.0])
    free, delays = [0.0, 0.0, 0.0], []
    for worker, now in zip(chosen.tolist(), arrivals.tolist(), strict=True):
        free[worker] = max(free[worker], now) + float(seconds[worker])
        delays.append(free[worker] - now)
    found = measure_times(chosen, arrivals, seconds)
    assert found.done == pytest.approx(max(free))
    assert found.mean == pytest.approx(sum(delays) / 100)


@pytest.mark.parametrize("seed", range(5))
def test_a_full_queue_holds_up_the_stream(seed: int) -> None:
    """Against queues of tuples that are counted one by one."""
    rng = np.random.default_rng(seed)
    chosen = (rng.random(3000) < 0.1).astype(np.uint16) * rng.integers(0, 3, 3000).astype(np.uint16)
    arrivals = np.arange(3000) / 2.0
    ends: list[list[float]] = [[], [], []]
    now = 0.0
    for worker, arrival in zip(chosen.tolist(), arrivals.tolist(), strict=True):
        mine, now = ends[worker], max(now, arrival)
        if len(mine) >= QUEUE + 1:  # one is being handled, and QUEUE wait
            now = max(now, mine[-QUEUE - 1])
        mine.append(max(now, mine[-1] if mine else 0.0) + 1.0)
    found = measure_times(chosen, arrivals, np.ones(3))
    assert found.bounded == pytest.approx(max(mine[-1] for mine in ends))
    assert found.bounded >= found.done


def test_steady_tuples_need_the_given_part_of_all_time() -> None:
    arrivals = steady_arrivals(1000, np.array([1.0, 0.5]), 0.5)
    assert np.diff(arrivals) == pytest.approx(1 / 1.5)


def test_the_clock_adds_up_tuples() -> None:
    clock = RunClock()
    stream = KeyStream("x", np.arange(100, dtype=np.uint64), 100)
    chosen = clock.assign(make_partitioner("shuffle", 4), stream)
    assert np.bincount(chosen).tolist() == [25] * 4
    assert clock.tuples == 100
    assert clock.note().startswith("100 tuples assigned in")
