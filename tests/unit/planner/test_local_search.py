"""Local search over tiles: borders, balance, then short borders."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.local_search import balanced, borders, rounded
from ps2stream.planner.tiles import GridTile, tiles


def test_borders_weigh_the_fewer_queries_of_two_neighbouring_cells() -> None:
    queries = np.array([[5.0, 2.0, 7.0], [1.0, 9.0, 0.0]])
    found = [GridTile(0, 2, 0, 1), GridTile(0, 1, 1, 3), GridTile(1, 2, 1, 3)]
    edges = borders(found, queries)
    weights = {(a, b): w for a, b, w in zip(*map(np.ndarray.tolist, edges), strict=True)}
    assert weights == {(0, 1): 2, (1, 0): 2, (0, 2): 1, (2, 0): 1, (1, 2): 2, (2, 1): 2}
    assert edges.cut(np.array([0, 1, 1])) == 3
    assert edges.cut(np.array([0, 0, 0])) == 0


def test_the_local_search_balances_and_then_shortens_borders() -> None:
    rng = np.random.default_rng(9)
    plane = rng.pareto(1.5, (32, 32))
    found = tiles(plane, plane.sum() / 150)
    load = np.array([plane[t.top : t.bottom, t.left : t.right].sum() for t in found])
    level = np.array([0.0, plane.sum() / 10, 0.0, 0.0])
    edges = borders(found, plane)
    scattered = rng.integers(0, 4, len(found))
    even = balanced(load, scattered, level, 0.02)
    total = level + np.bincount(even, load, 4)
    assert total.max() - total.min() <= 0.02 * total.mean()
    compact = rounded(load, even, level, edges, 0.02)
    total = level + np.bincount(compact, load, 4)
    assert total.max() <= 1.02 * total.mean() + 1e-9
    assert edges.cut(compact) < 0.8 * edges.cut(even)
