"""Local search over an assignment of tiles to workers: first balance, then short borders.

The leaves of hybrid are balanced by it too; it does not consider their borders.

A query on a border is stored on both sides, so the weight of a border is the number of queries
that may lie across it: the smaller number of live postings of two neighbouring cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.planner.tiles import GridTile
from ps2stream.protocol.frame import F64, I64

SLACK = 0.005
"""Share of the mean load: workers that differ by less count as equal."""
MOVES = 500
PASSES = 20


class TileBorders(NamedTuple):
    """Neighbouring tiles: a, b int64[e], each pair in both directions, weight float64[e]."""

    a: I64
    b: I64
    weight: F64

    def cut(self, worker: I64) -> float:
        """Returns the weight of the borders between different workers."""
        return float(self.weight[worker[self.a] != worker[self.b]].sum()) / 2


def borders(tiles: list[GridTile], queries: F64) -> TileBorders:
    """Returns the borders of tiles that cover the plane. queries: float64[rows, columns], live
    postings per cell."""
    label = np.empty(queries.shape, np.int64)
    for i, tile in enumerate(tiles):
        label[tile.top : tile.bottom, tile.left : tile.right] = i
    beside = label[:, :-1], label[:, 1:], np.minimum(queries[:, :-1], queries[:, 1:])
    below = label[:-1], label[1:], np.minimum(queries[:-1], queries[1:])
    a = np.concatenate([beside[0].ravel(), below[0].ravel()])
    b = np.concatenate([beside[1].ravel(), below[1].ravel()])
    weight = np.concatenate([beside[2].ravel(), below[2].ravel()])
    real = (a != b) & (weight > 0)
    a, b, weight = a[real], b[real], weight[real]
    pair, at = np.unique(
        np.concatenate([a * len(tiles) + b, b * len(tiles) + a]), return_inverse=True
    )
    both = np.bincount(at, np.r_[weight, weight], len(pair)).astype(np.float64)
    return TileBorders(pair // len(tiles), pair % len(tiles), both)


def balanced(load: F64, worker: I64, level: F64, slack: float) -> I64:
    """Moves or swaps one tile at a time between the heaviest and the lightest worker, until they
    differ by `slack` of the mean. level: the load of each worker besides the tiles."""
    worker = worker.copy()
    total = level + np.bincount(worker, load, len(level))
    for _ in range(MOVES):
        high, low = int(np.argmax(total)), int(np.argmin(total))
        gap = total[high] - total[low]
        if gap <= slack * total.mean():
            break
        in_heaviest = np.flatnonzero((worker == high) & (load > 0))
        in_lightest = np.flatnonzero(worker == low)
        # Column 0: a move; the others: a swap for that tile of the lightest.
        gain = load[in_heaviest][:, None] - np.r_[0.0, load[in_lightest]][None, :]
        off = np.abs(gain - gap / 2)
        if not off.size or off.min() >= gap / 2:
            break
        i, j = np.unravel_index(int(np.argmin(off)), off.shape)
        worker[in_heaviest[i]] = low
        if j:
            worker[in_lightest[j - 1]] = high
        total[high] -= gain[i, j]
        total[low] += gain[i, j]
    return worker


def rounded(load: F64, worker: I64, level: F64, edges: TileBorders, slack: float) -> I64:
    """Gives tiles to the worker that they share most of their border with, as long as no worker
    exceeds the heaviest, or the mean by `slack`."""
    worker = worker.copy()
    total = level + np.bincount(worker, load, len(level))
    limit = max(float(total.max()), (1 + slack) * float(total.mean()))
    start = np.searchsorted(edges.a, np.arange(len(load) + 1))
    for _ in range(PASSES):
        moved = False
        for tile in range(len(load)):
            around = slice(start[tile], start[tile + 1])
            near = np.bincount(worker[edges.b[around]], edges.weight[around], len(level))
            own = int(worker[tile])
            at_home = near[own]
            near[total + load[tile] > limit] = -1.0
            best = int(np.argmax(near))
            if near[best] > at_home:
                total[own] -= load[tile]
                total[best] += load[tile]
                worker[tile] = best
                moved = True
        if not moved:
            break
    return worker
