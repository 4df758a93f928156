"""Tiles: rectangles of cells of about equal load, in an order that keeps neighbours close.

Space is halved by load, line after line, until a tile is light enough or one cell. The order is
that of the tree's leaves, so that a run of tiles is a compact region.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import F64


class GridTile(NamedTuple):
    """A rectangle of the grid: rows top..bottom - 1 and columns left..right - 1."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def single(self) -> bool:
        return self.bottom - self.top == 1 and self.right - self.left == 1


def tiles(load: F64, limit: float) -> list[GridTile]:
    """Divides a grid of loads, float64[rows, columns], into tiles of at most `limit` each, except
    for single cells that are above it."""
    integral = np.zeros((load.shape[0] + 1, load.shape[1] + 1))
    integral[1:, 1:] = load.cumsum(0).cumsum(1)
    found: list[GridTile] = []
    pending = [GridTile(0, load.shape[0], 0, load.shape[1])]
    while pending:
        tile = pending.pop()
        halves = _halve_tile(integral, tile, limit)
        if halves is None:
            found.append(tile)
        else:
            pending += halves
    return found


def _halve_tile(integral: F64, tile: GridTile, limit: float) -> tuple[GridTile, GridTile] | None:
    """Returns the halves, the first one last; None if the tile stays as it is."""
    top, bottom, left, right = tile
    if tile.single:
        return None
    down = integral[top : bottom + 1, right] - integral[top : bottom + 1, left]
    along = integral[bottom, left : right + 1] - integral[top, left : right + 1]
    down, along = down - down[0], along - along[0]
    total = down[-1]
    if total <= limit:
        return None
    row, row_error = _find_median_line(down, total)
    column, column_error = _find_median_line(along, total)
    # Of equally good lines the one across the longer side; cells are about square.
    longer = 0.02 if bottom - top > right - left else -0.02
    if row_error - longer < column_error:
        return GridTile(top + row, bottom, left, right), GridTile(top, top + row, left, right)
    return GridTile(top, bottom, left + column, right), GridTile(top, bottom, left, left + column)


def _find_median_line(below: F64, total: float) -> tuple[int, float]:
    """Returns (the inner line nearest to half of the load, its distance from half as a share)."""
    inner = below[1:-1]
    if not len(inner):
        return 1, np.inf
    i = int(np.argmin(np.abs(inner - total / 2)))
    return i + 1, abs(float(inner[i]) / total - 0.5)
