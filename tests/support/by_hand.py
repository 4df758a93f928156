"""Samples, and the loads of workers on them worked out anew on sets of units and objects."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.statistics import Statistics
from ps2stream.space.grid import Grid
from tests.support.statistics_of import words

GRID = Grid(4, 3)
COLUMNS = 16
BOTH = [PartitionOptions(), PartitionOptions(load="definition1")]
Cells = frozenset[int]  # numbers in Statistics


def some_stats(seed: int, objects: int = 600) -> Statistics:
    rng = np.random.default_rng(seed)
    return words(GRID, rng, rng.choice(128, 30, replace=False).tolist(), objects)


def load_of(stats: Statistics, units: set[int], options: PartitionOptions) -> float:
    """Definition 1, or by cells, of a worker with these units: each object once."""
    costs, at = options.costs, stats.unit_cell()
    objects = 0.0
    for row, cell in enumerate(np.repeat(np.arange(stats.cells), np.diff(stats.row_off)).tolist()):
        held = stats.row_unit[stats.row_start[row] : stats.row_start[row + 1]].tolist()
        assert {int(at[u]) for u in held} == {cell}
        objects += float(stats.weight[cell]) * bool(units & set(held))
    mine = sorted(units)
    queries = float(stats.q[mine].sum())
    met = objects * queries
    if options.load == "cells":
        met = sum(float(stats.o[u]) * float(stats.q[u]) for u in mine)
    inserts, deletes = float(stats.inserts[mine].sum()), float(stats.deletes[mine].sum())
    return costs.c1 * met + costs.c2 * objects + costs.c3 * inserts + costs.c4 * deletes


def units_in(stats: Statistics, cells: Cells) -> set[int]:
    return {u for u, c in enumerate(stats.unit_cell().tolist()) if c in cells}
