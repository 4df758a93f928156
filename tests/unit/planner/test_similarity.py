"""The similarity of words against the cosine worked out by hand."""

from __future__ import annotations

import math

import pytest

from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.similarity import simt
from ps2stream.space.grid import Grid
from tests.support.statistics_of import hostile, tables


def test_similarity_is_the_cosine_of_the_counts() -> None:
    units = [
        (0, "a", 3.0, 4.0, 0.0, 0.0),
        (0, "b", 1.0, 0.0, 0.0, 0.0),
        (1, "a", 1.0, 0.0, 0.0, 0.0),
    ]
    stats = tables(Grid(1, 0), {0: 4.0, 1: 2.0}, units, [(0, ["a"]), (0, ["a", "b"]), (1, ["a"])])
    root = CostModel(stats, PartitionOptions()).root()
    assert simt(stats, root) == pytest.approx(4 / math.hypot(4, 1))
    nothing = hostile(1)["no queries"]
    assert simt(nothing, CostModel(nothing, PartitionOptions()).root()) == 0.0
