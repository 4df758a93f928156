"""Nodes of the kdt-tree: their loads, and the two sides of a line."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.load import worker_loads
from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import PartitionOptions
from tests.support.by_hand import BOTH
from tests.support.statistics_of import hostile

STATS = hostile(1)["many cells"]


@pytest.mark.parametrize("options", BOTH)
def test_the_root_has_the_load_of_one_worker(options: PartitionOptions) -> None:
    root = CostModel(STATS, options).root()
    owner = np.zeros(STATS.units, np.int32)
    alone = worker_loads(STATS, owner, 1, options.costs, options.load)[0]
    assert root.load == pytest.approx(alone)
