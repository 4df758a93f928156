"""Tiles: a cover of the grid by light rectangles."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.tiles import tiles


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
