"""Tiles: a cover of the grid by light rectangles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.planner.tiles import GridTile, tiles


def test_tiles_cover_the_grid_once_and_are_light_or_single() -> None:
    rng = np.random.default_rng(2)
    load = rng.pareto(1.0, (9, 17))
    found = tiles(load, 5.0)
    covered = np.zeros(load.shape, int)
    for tile in found:
        covered[tile.top : tile.bottom, tile.left : tile.right] += 1
        part = load[tile.top : tile.bottom, tile.left : tile.right].sum()
        assert part <= 5.0 + 1e-9 or tile.single
    assert (covered == 1).all()
    assert len(tiles(load, np.inf)) == 1


def test_a_tile_is_halved_where_its_halves_are_most_even() -> None:
    load = np.array([[1.0, 1, 6, 1, 1], [1, 1, 6, 1, 1]])
    assert tiles(load, 10.0) == [GridTile(0, 1, 0, 5), GridTile(1, 2, 0, 5)]
    load = np.array([[4.0, 4, 1, 1, 6]])
    assert tiles(load, 8.0) == [GridTile(0, 1, 0, 2), GridTile(0, 1, 2, 5)]


@pytest.mark.parametrize("limit", [0.0, 1.0, 7.9])
def test_only_single_cells_are_above_the_limit(limit: float) -> None:
    load = np.array([[8.0, 0.0], [0.0, 0.0]])
    found = tiles(load, limit)
    assert [tile for tile in found if load[tile.top : tile.bottom, tile.left : tile.right].sum()] \
        == [GridTile(0, 1, 0, 1)]  # fmt: skip


def test_a_run_of_tiles_is_connected() -> None:
    """Most neighbours in the order are neighbours in the plane, so that runs are compact."""
    found = tiles(np.ones((16, 16)), 4.0)
    near = [
        max(a.left, b.left) <= min(a.right, b.right)
        and max(a.top, b.top) <= min(a.bottom, b.bottom)
        for a, b in itertools.pairwise(found)
    ]
    assert len(found) == 64
    assert sum(near) > 0.7 * len(near)
