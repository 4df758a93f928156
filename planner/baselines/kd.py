"""kd-tree: the heaviest leaf is halved at its objects' median until each worker has one."""

from __future__ import annotations

from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import Partition, PartitionOptions
from ps2stream.planner.split import Lines, space_split
from ps2stream.planner.statistics import Statistics
from ps2stream.planner.tree import build_partition


def kd(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Divides space only. Fewer leaves than workers, where lines divide no further, are a
    warning."""
    model = CostModel(stats, options)
    lines: Lines = {}
    leaves = space_split(model, model.root(), workers, lines)
    return build_partition(model, leaves, range(len(leaves)), lines, workers)
