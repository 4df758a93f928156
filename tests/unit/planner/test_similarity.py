"""The similarity of words against the cosine worked out by hand."""

from __future__ import annotations

import math

import pytest

from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.similarity import simt
from ps2stream.space.grid import Grid
from tests.support.by_hand import cosine, some_stats
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


@pytest.mark.parametrize("seed", range(4))
def test_it_is_that_of_the_words_of_all_cells_together(seed: int) -> None:
    stats = some_stats(seed)
    model = CostModel(stats, PartitionOptions())
    for node in (model.root(), *model.cut(model.root(), 1, 8), *model.cut(model.root(), 0, 4)):
        found = simt(stats, node)
        assert found == pytest.approx(cosine(stats, frozenset(node.cells.tolist())))
        assert 0.0 <= found <= 1.0


def test_words_that_are_alike_have_one_and_words_apart_none() -> None:
    units = [(0, "a", 3.0, 6.0, 0.0, 0.0), (1, "b", 1.0, 2.0, 0.0, 0.0)]
    alike = tables(Grid(1, 0), {0: 3.0, 1: 1.0}, units, [(0, ["a"]), (1, ["b"])])
    assert simt(alike, CostModel(alike, PartitionOptions()).root()) == pytest.approx(1.0)
    units = [(0, "a", 3.0, 0.0, 0.0, 0.0), (1, "b", 0.0, 2.0, 0.0, 0.0)]
    apart = tables(Grid(1, 0), {0: 3.0}, units, [(0, ["a"])])
    assert simt(apart, CostModel(apart, PartitionOptions()).root()) == 0.0
