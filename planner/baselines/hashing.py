"""hash: every term goes to the worker that its hash gives, in every cell."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.partition import Partition, PartitionOptions, idle
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.plan import Text
from ps2stream.space.kdt_tree import KdtLeaf


def hashing(stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
    """Divides terms by hash; ignores the sample."""
    return _build_one_leaf(stats, Text(tuple(range(workers))))


def everywhere(stats: Statistics, workers: int, owner: I32, load: F64) -> Partition:
    """Returns the partition with one map of terms to workers in all cells. owner, load: of each
    of `stats.terms`; a term without load goes by hash, like unknown terms."""
    known = np.flatnonzero(load > 0).tolist()
    terms = {stats.terms[t]: int(owner[t]) for t in known}
    warnings = idle(terms.values(), workers) if len(known) == len(stats.terms) else ()
    return _build_one_leaf(stats, Text(tuple(range(workers)), terms), warnings)


def _build_one_leaf(stats: Statistics, leaf: Text, warnings: tuple[str, ...] = ()) -> Partition:
    cells = np.zeros(stats.grid.rows() * stats.grid.columns(), np.uint32)
    return Partition((leaf,), cells, KdtLeaf(leaf.workers), warnings)
