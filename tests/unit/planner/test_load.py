"""Loads of workers and cells against Definition 1, worked out on sets."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.load import copies, worker_loads
from ps2stream.planner.partition import PartitionOptions
from tests.support.by_hand import BOTH, load_of, some_stats
from tests.support.statistics_of import texts_in_cells


@pytest.mark.parametrize("options", BOTH)
def test_loads_are_definition_one_or_its_sum_over_cells(options: PartitionOptions) -> None:
    stats = some_stats(5)
    owner = np.random.default_rng(5).integers(0, 4, stats.units).astype(np.int32)
    want = [load_of(stats, set(np.flatnonzero(owner == w).tolist()), options) for w in range(4)]
    assert worker_loads(stats, owner, 4, options.costs, options.load) == pytest.approx(want)


def test_copies_count_an_object_once_a_worker() -> None:
    stats = texts_in_cells(4, 3, 10)
    everything = np.zeros(stats.units, np.int32)
    rows = np.diff(stats.row_off) * stats.weight
    assert copies(stats, everything, 2).tolist() == pytest.approx([rows.sum(), 0.0])
    spread = np.arange(stats.units, dtype=np.int32) % 2
    naive = np.zeros(2)
    for cell in range(stats.cells):
        for r in range(stats.row_off[cell], stats.row_off[cell + 1]):
            units = stats.row_unit[stats.row_start[r] : stats.row_start[r + 1]]
            for worker in {int(spread[u]) for u in units}:
                naive[worker] += stats.weight[cell]
    assert copies(stats, spread, 2) == pytest.approx(naive)
