"""frequency: terms by descending frequency, each to the least loaded worker."""

from __future__ import annotations

import pytest

from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import PartitionOptions
from tests.support.baselines_by_hand import assert_lightest_first, frequency_of, term_owner
from tests.support.by_hand import some_stats


@pytest.mark.parametrize("seed", range(3))
def test_frequency_balances_occurrences(seed: int) -> None:
    stats = some_stats(seed)
    owner = term_owner(ALGORITHMS["frequency"](stats, 3, PartitionOptions()), stats)
    assert_lightest_first(frequency_of(stats), owner, 3)
