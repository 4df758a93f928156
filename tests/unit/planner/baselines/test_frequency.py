"""frequency: terms by descending frequency, each to the least loaded worker."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.baselines.frequency import frequency, lightest_first
from ps2stream.planner.partition import PartitionOptions
from tests.support.baselines_by_hand import assert_lightest_first, frequency_of, term_owner
from tests.support.by_hand import some_stats


@pytest.mark.parametrize("seed", range(3))
def test_frequency_balances_occurrences(seed: int) -> None:
    stats = some_stats(seed)
    owner = term_owner(frequency(stats, 3, PartitionOptions()), stats)
    assert_lightest_first(frequency_of(stats), owner, 3)


@pytest.mark.parametrize("workers", [1, 3, 7])
@pytest.mark.parametrize("seed", range(5))
def test_the_heaviest_item_goes_to_the_lightest_worker(seed: int, workers: int) -> None:
    load = np.random.default_rng(seed).integers(0, 9, 40).astype(float)
    owner = lightest_first(load, workers)
    items = dict(enumerate(load.tolist()))
    assert_lightest_first(items, dict(enumerate(owner.tolist())), workers)
    held = np.bincount(owner, load, workers)
    assert held.max() - held.min() <= load.max()


def test_items_without_load_are_dealt_out_in_turn() -> None:
    assert lightest_first(np.zeros(7), 3).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert lightest_first(np.array([0.0, 0.0, 5.0, 0.0]), 3).tolist() == [0, 1, 0, 0]
