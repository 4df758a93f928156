"""Samples, and the loads of workers on them worked out anew on sets of units and objects."""

from __future__ import annotations

import math
from collections.abc import Iterable

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


def medians(stats: Statistics, cells: Cells) -> list[tuple[Cells, Cells]]:
    """Divides by the column, then by the row, whose line is nearest to half of the objects."""
    found = []
    for strip in (stats.cell % COLUMNS, stats.cell // COLUMNS):
        lines = sorted({int(strip[c]) for c in cells})
        lines = list(range(lines[0] + 1, lines[-1] + 1))
        half = sum(float(stats.objects[c]) for c in cells) / 2
        below = [frozenset(c for c in cells if strip[c] < at) for at in lines]
        if below:
            off = [abs(sum(float(stats.objects[c]) for c in low) - half) for low in below]
            low = below[off.index(min(off))]
            found.append((low, cells - low))
    return found


def by_space(stats: Statistics, k: int, options: PartitionOptions) -> set[Cells]:
    """Halves the heaviest part at a median, until there are k."""

    def load(cells: Cells) -> float:
        return load_of(stats, units_in(stats, cells), options)

    def price(pair: Iterable[Cells]) -> tuple[float, float]:
        loads = [load(cells) for cells in pair]
        return round(sum(loads), 6), round(max(loads), 6)

    parts = [frozenset(range(stats.cells))]
    while len(parts) < k:
        heaviest = max((p for p in parts if len(p) > 1), key=load)
        parts.remove(heaviest)
        parts += min(medians(stats, heaviest), key=price)
    return set(parts)


def cosine(stats: Statistics, cells: Cells) -> float:
    """The cosine of the objects and the queries by term, over some cells."""
    o: dict[int, float] = {}
    q: dict[int, float] = {}
    for u in units_in(stats, cells):
        t = int(stats.term[u])
        o[t] = o.get(t, 0.0) + float(stats.o[u])
        q[t] = q.get(t, 0.0) + float(stats.q[u])
    long = math.sqrt(sum(x * x for x in o.values()) * sum(x * x for x in q.values()))
    return sum(x * q[t] for t, x in o.items()) / long if long else 0.0
