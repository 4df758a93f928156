"""Loads of workers and cells against Definition 1, worked out on sets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.planner.load import cell_load, copies, lower_bound, unit_load, worker_loads
from ps2stream.planner.partition import PartitionOptions
from ps2stream.routing.costs import Costs
from tests.support.by_hand import BOTH, load_of, some_stats, units_in
from tests.support.statistics_of import texts_in_cells


@pytest.mark.parametrize("options", BOTH)
def test_loads_are_definition_one_or_its_sum_over_cells(options: PartitionOptions) -> None:
    stats = some_stats(5)
    stats = dataclasses.replace(stats, weight=np.linspace(0.5, 3.0, stats.cells))
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


COSTS = Costs(c1=0.5, c2=2.0, c3=3.0, c4=0.25)


def test_the_load_of_a_cell_is_that_of_one_owner() -> None:
    stats, options = some_stats(1), PartitionOptions(costs=COSTS)
    for cell, load in enumerate(cell_load(stats, COSTS).tolist()):
        assert load == pytest.approx(load_of(stats, units_in(stats, frozenset([cell])), options))


def test_the_load_of_a_unit_is_without_copies_of_objects() -> None:
    stats = some_stats(1)
    free = PartitionOptions(costs=Costs(c1=0.5, c2=0.0, c3=3.0, c4=0.25))
    for unit, load in enumerate(unit_load(stats, COSTS).tolist()):
        assert load == pytest.approx(load_of(stats, {unit}, free))


@pytest.mark.parametrize("seed", range(5))
def test_no_division_is_below_the_bound(seed: int) -> None:
    stats = some_stats(1)
    bound = lower_bound(stats, 4, COSTS)
    assert bound == pytest.approx(cell_load(stats, COSTS).sum() / 4)
    rng = np.random.default_rng(seed)
    by_cell = rng.integers(0, 4, stats.cells)[stats.unit_cell()].astype(np.int32)
    by_unit = rng.integers(0, 4, stats.units).astype(np.int32)
    assert worker_loads(stats, by_cell, 4, COSTS).sum() == pytest.approx(4 * bound)
    assert worker_loads(stats, by_unit, 4, COSTS).sum() > 4 * bound
    assert worker_loads(stats, by_cell, 4, COSTS).max() >= bound
