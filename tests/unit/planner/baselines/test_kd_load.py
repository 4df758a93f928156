"""kd-tree by load: each line against all lines."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.baselines.kd_load import find_even_line, kd_load
from ps2stream.planner.load import cell_load
from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import PartitionOptions
from ps2stream.space.kdt_tree import flatten
from tests.support.by_hand import COLUMNS, Cells, some_stats
from tests.support.statistics_of import hostile

OPTIONS = PartitionOptions()


def halved(weight: dict[int, float], cells: Cells, place: dict[int, int]) -> list[Cells]:
    """Both sides of the line whose heavier side is lightest."""
    ways = []
    for axis in (0, 1):
        for at in range(1, COLUMNS):
            low = frozenset(c for c in cells if divmod(place[c], COLUMNS)[1 - axis] < at)
            if low and low != cells:
                ways.append([low, cells - low])
    return min(ways, key=lambda w: max(sum(weight[c] for c in side) for side in w), default=[cells])


@pytest.mark.parametrize("seed", range(4))
def test_the_heaviest_leaf_is_halved_at_its_load(seed: int) -> None:
    stats = some_stats(seed)
    weight = dict(enumerate(cell_load(stats, OPTIONS.costs).tolist()))
    place = dict(enumerate(stats.cell.tolist()))
    for k in (2, 3, 6):
        want: list[Cells] = [frozenset(range(stats.cells))]
        while len(want) < k:
            heaviest = max(
                (c for c in want if len(c) > 1), key=lambda cells: sum(weight[c] for c in cells)
            )
            want.remove(heaviest)
            want += halved(weight, heaviest, place)
        partition = kd_load(stats, k, OPTIONS)
        leaf = partition.cells[stats.cell].tolist()
        found = {frozenset(c for c, n in enumerate(leaf) if n == of) for of in set(leaf)}
        assert found == set(want)
        assert not partition.warnings
        assert partition.tree is not None
        cells, _ = flatten(partition.tree, stats.grid.rows(), stats.grid.columns())
        assert np.array_equal(cells, partition.cells)


def test_fewer_leaves_than_workers_are_a_warning() -> None:
    partition = kd_load(hostile(1)["two corners"], 5, OPTIONS)
    assert len(partition.leaves) == 2
    assert partition.warnings == ("3 of 5 workers have no load",)


def test_no_line_divides_one_cell() -> None:
    stats = hostile(1)["one point"]
    model = CostModel(stats, OPTIONS)
    assert find_even_line(model, model.root(), cell_load(stats, OPTIONS.costs)) is None
