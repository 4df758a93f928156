"""R-tree: packed tiles by load, and every other cell in the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps2stream.planner.baselines import rtree
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import PartitionOptions
from ps2stream.routing.plan import Space
from tests.support.baselines_by_hand import assert_lightest_first, cells_of_leaves
from tests.support.by_hand import some_stats


@pytest.mark.parametrize("seed", range(3))
def test_rtree_divides_packed_tiles_by_load(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, workers, options = some_stats(seed), 3, PartitionOptions()
    packed: list[tuple[set[tuple[int, int]], list[float]]] = []

    def leaves(x: Any, y: Any, count: int) -> Any:
        assert count == rtree.TILES * workers
        found = cut(x, y, count)
        packed.extend(({(int(x[i]), int(y[i])) for i in held}, box) for held, box in found)
        return found

    cut = rtree._pack_leaves
    monkeypatch.setattr(rtree, "_pack_leaves", leaves)
    partition = rtree.rtree(stats, workers, options)
    tile = cells_of_leaves(partition, stats)
    costs, load = cell_load(stats, options.costs), dict.fromkeys(tile.values(), 0.0)
    for cell, to in tile.items():
        load[to] += float(costs[cell])
    owner = {n: s.worker for n, s in enumerate(partition.leaves) if isinstance(s, Space)}
    assert_lightest_first(load, owner, workers)
    # Tiles hold about equally many objects, save where one cell has more.
    objects = dict.fromkeys(tile.values(), 0.0)
    for cell, to in tile.items():
        objects[to] += float(stats.objects[cell])
    share = float(stats.objects.sum()) / (rtree.TILES * workers)
    assert max(objects.values()) <= 2 * share + float(stats.objects.max())
    # A cell of the sample is in a leaf that holds it, any other in the nearest.
    at = {cell: (int(n % 16), int(n // 16)) for cell, n in enumerate(stats.cell)}
    last = {c: max(n for n, (held, _) in enumerate(packed) if at[c] in held) for c in tile}
    boxes = {to: packed[last[cell]][1] for cell, to in tile.items()}
    assert [last[c] for c in tile] == [sorted({*last.values()})[to] for to in tile.values()]
    for cell, to in enumerate(partition.cells.tolist()):
        if cell not in stats.cell:
            y, x = divmod(cell, 16)
            away = {
                n: np.hypot(max(left - x, x - right, 0), max(low - y, y - high, 0))
                for n, (left, low, right, high) in boxes.items()
            }
            assert away[to] <= min(away.values()) + 1e-9
