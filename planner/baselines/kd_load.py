"""kd-tree by load: the heaviest leaf is halved at the median of its load.

So do AQWA and Tornado, which divide space by the cost of the queries and not by the number of
objects alone; `kdtree` is the plain one of the paper's comparison.
"""

from __future__ import annotations

import numpy as np

from ps2stream.planner.load import cell_load
from ps2stream.planner.nodes import CostModel, KdtNode
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.split import GridLine, Lines
from ps2stream.planner.statistics import Statistics
from ps2stream.planner.tree import build_partition
from ps2stream.protocol.frame import F64


def kd_load(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Divides space only. Fewer leaves than workers, where lines divide no further, are a
    warning."""
    model, load, lines = CostModel(stats, options), cell_load(stats, options.costs), Lines()
    leaves, fixed = [model.root()], [False]
    weights = [float(load.sum())]
    while len(leaves) < workers and not all(fixed):
        i = max((i for i in range(len(leaves)) if not fixed[i]), key=lambda i: weights[i])
        if (line := find_even_line(model, leaves[i], load)) is None:
            fixed[i] = True
            continue
        lines[leaves[i].rect] = line
        pair = model.cut(leaves[i], *line)
        leaves[i : i + 1], fixed[i : i + 1] = pair, (False, False)
        weights[i : i + 1] = [float(load[node.cells].sum()) for node in pair]
    return build_partition(model, leaves, range(len(leaves)), lines, workers)


def find_even_line(model: CostModel, node: KdtNode, load: F64) -> GridLine | None:
    """Returns the line whose heavier side is lightest; None if no line divides the node's cells.
    load: of each cell."""
    best: tuple[float, GridLine] | None = None
    for axis in (1, 0):
        strip = (model.row_of, model.column_of)[axis][node.cells]
        first, last = int(strip.min()), int(strip.max())
        if first == last:
            continue
        below = np.cumsum(np.bincount(strip - first, load[node.cells], last - first + 1))
        heavier = np.maximum(below[:-1], below[-1] - below[:-1])
        at = int(np.argmin(heavier))
        if best is None or heavier[at] < best[0]:
            best = float(heavier[at]), GridLine(axis, first + 1 + at)
    return None if best is None else best[1]
