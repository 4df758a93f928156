"""lpt: cells by load."""

from __future__ import annotations

import pytest

from ps2stream.planner.baselines.lpt import lpt
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import PartitionOptions
from tests.support.baselines_by_hand import assert_lightest_first, cells_of_leaves
from tests.support.by_hand import some_stats
from tests.support.statistics_of import hostile


@pytest.mark.parametrize("seed", range(3))
def test_cells_go_by_load_to_the_lightest(seed: int) -> None:
    stats, options = some_stats(seed), PartitionOptions()
    partition = lpt(stats, 4, options)
    load = dict(enumerate(cell_load(stats, options.costs).tolist()))
    assert_lightest_first(load, cells_of_leaves(partition, stats), 4)
    assert not partition.warnings


def test_cells_without_load_are_dealt_out() -> None:
    partition = lpt(some_stats(1), 4, PartitionOptions())
    assert {*partition.cells.tolist()} == {0, 1, 2, 3}


def test_fewer_cells_than_workers_are_a_warning() -> None:
    partition = lpt(hostile(1)["two corners"], 5, PartitionOptions())
    assert partition.warnings == ("3 of 5 workers have no load",)
