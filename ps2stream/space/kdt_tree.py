"""kdt-tree values, and the kd-tree by load from which the built-in plan is made.

A kdt-tree (algorithms.md 1.4) divides space by lines and a leaf's terms by workers. Lines
are gridt lines, so that a cell lies in one leaf and the tree flattens to a map of cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ps2stream.protocol.frame import F64, U32

UNEVEN = 1.3  # a split that gives a worker more than this times its fair share is rejected


@dataclass(frozen=True, slots=True)
class KdtLeaf:
    """A leaf rectangle: a single worker owns it, several workers divide its terms by hash."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KdtSplit:
    """An inner node: `low` has the columns (axis lon) or rows (axis lat) below `at`."""

    axis: Literal["lon", "lat"]
    at: int
    low: Kdt
    high: Kdt


Kdt = KdtLeaf | KdtSplit


def tree_to_dict(tree: Kdt) -> dict[str, Any]:
    """Returns a JSON-ready dict: {"workers": [...]} or {"axis", "at", "low", "high"}."""
    if isinstance(tree, KdtLeaf):
        return {"workers": list(tree.workers)}
    below = {"low": tree_to_dict(tree.low), "high": tree_to_dict(tree.high)}
    return {"axis": tree.axis, "at": tree.at, **below}


def kd_tree(load: F64, workers: int) -> Kdt:
    """Divides a grid of loads (float64[rows, columns], >= 0) among `workers`.

    Each split takes the line that divides the load most evenly per worker; of equally
    good ones, the most central line across the longer side. If every line gives some
    worker more than UNEVEN times its share of the whole - a hot cell - the workers divide the
    rectangle by text instead.
    """
    # A little load everywhere: empty land is divided too, and no sum is zero.
    smooth = load + max(load.mean(), 1.0) * 1e-6
    return _divide_load(smooth * workers / smooth.sum(), 0, 0, tuple(range(workers)))


def _divide_load(load: F64, row: int, column: int, workers: tuple[int, ...]) -> Kdt:
    """Divides `load`, measured in fair shares of one worker, whose first cell is (row, column)."""
    m = len(workers)
    if m == 1:
        return KdtLeaf(workers)
    best: tuple[float, int, int, int] | None = None
    for axis in (1, 0) if load.shape[1] >= load.shape[0] else (0, 1):
        if load.shape[axis] < 2:
            continue
        below = np.cumsum(load.sum(axis=1 - axis))
        below, total = below[:-1], below[-1]
        k = np.clip(np.rint(below / total * m), 1, m - 1)
        heaviest = np.maximum(below / k, (total - below) / (m - k))
        i = int(np.argmin(heaviest + 0.1 * np.abs(below / total - 0.5)))
        found = (float(heaviest[i]), axis, i + 1, int(k[i]))
        if best is None or found[0] < best[0] - 0.01:
            best = found
    if best is None or best[0] > UNEVEN:
        return KdtLeaf(workers)
    _, axis, at, k_low = best
    if axis == 1:
        low = _divide_load(load[:, :at], row, column, workers[:k_low])
        high = _divide_load(load[:, at:], row, column + at, workers[k_low:])
        return KdtSplit("lon", column + at, low, high)
    low = _divide_load(load[:at], row, column, workers[:k_low])
    high = _divide_load(load[at:], row + at, column, workers[k_low:])
    return KdtSplit("lat", row + at, low, high)


def flatten(tree: Kdt, rows: int, columns: int) -> tuple[U32, tuple[KdtLeaf, ...]]:
    """Returns (the leaf number of each cell, uint32[rows * columns] row-major; the leaves)."""
    cells = np.zeros((rows, columns), np.uint32)
    leaves: list[KdtLeaf] = []

    def paint(node: Kdt, top: int, bottom: int, left: int, right: int) -> None:
        if isinstance(node, KdtLeaf):
            cells[top:bottom, left:right] = len(leaves)
            leaves.append(node)
        elif node.axis == "lon":
            paint(node.low, top, bottom, left, node.at)
            paint(node.high, top, bottom, node.at, right)
        else:
            paint(node.low, top, node.at, left, right)
            paint(node.high, node.at, bottom, left, right)

    paint(tree, 0, rows, 0, columns)
    return cells.ravel(), tuple(leaves)
