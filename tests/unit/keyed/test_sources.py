"""Sources: seeds, tables of remembered keys, and the estimate that probing corrects."""

from __future__ import annotations

import numpy as np

from ps2stream.keyed.counters import CounterOptions
from ps2stream.keyed.sources import (
    FIRST_ROOM,
    GreedySource,
    HeadSource,
    RememberingSource,
    draw_seeds,
)
from tests.support.keyed_twins import NaiveMemory

NO_TIMES = np.zeros(0)


def test_more_seeds_begin_with_the_fewer_ones() -> None:
    assert draw_seeds(5, 9)[:4].tolist() == draw_seeds(5, 4).tolist()
    assert draw_seeds(5, 2).tolist() != draw_seeds(6, 2).tolist()


def test_a_table_of_remembered_keys_grows_and_forgets_none() -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**63, 3 * FIRST_ROOM).astype(np.uint64)
    source = RememberingSource(6, 1, 2)
    twin = NaiveMemory(6, draw_seeds(1, 2).tolist())
    want = [twin.route(key) for key in keys.tolist()]
    assert source.route(keys, NO_TIMES).tolist() == want
    assert source.used == len(set(keys.tolist()))
    assert 2 * source.used <= len(source.table)
    assert source.route(keys, NO_TIMES).tolist() == want


def test_more_keys_than_the_first_table_holds_may_be_placed_before_the_stream() -> None:
    keys = np.arange(2 * FIRST_ROOM, dtype=np.uint64)
    weights = np.random.default_rng(2).integers(1, 50, len(keys))
    source = RememberingSource(5, 1, 0)
    source.place(keys, weights)
    twin = NaiveMemory(5, [])
    twin.place(dict(zip(keys.tolist(), weights.tolist(), strict=True)))
    assert source.route(keys, NO_TIMES).tolist() == [twin.owner[key] for key in keys.tolist()]


def test_true_loads_take_the_place_of_an_estimate() -> None:
    loads = np.array([100, 0, 100])
    keys = np.arange(50, dtype=np.uint64)
    greedy = GreedySource(3, 1, choices=2)
    head = HeadSource(3, 1, CounterOptions(alpha=1.0, theta=0.0, rule="all"))
    for source in (greedy, head):
        source.correct(loads)
        chosen = source.route(keys, NO_TIMES)
        assert np.bincount(chosen, minlength=3)[1] > 25
    assert loads.tolist() == [100, 0, 100]
