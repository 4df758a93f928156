"""Load: what a partition costs each worker (algorithms.md 1.3, 1.11).

Costs are microseconds of the sample's period: candidates (an object met with a posting of a term
that it has), copies of objects, postings inserted and deleted. `cells` sums the candidates over
the units that a worker owns; `definition1` is the paper's global product of all its objects and
all its queries, which calls plans balanced that are not. There, queries are counted by their
postings: the sample's units do not record whose postings they hold.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit

from ps2stream.planner.statistics import I32, REST_TERMS, Statistics
from ps2stream.protocol.frame import F64, I64
from ps2stream.routing.costs import Costs

Kind = Literal["cells", "definition1"]


def unit_load(stats: Statistics, costs: Costs) -> F64:
    """Returns the load of each unit, without copies of objects, float64[u]. A worker that owns
    some units of a cell has their sum, and `c2` for each object that has one of their terms."""
    candidates = stats.weigh_candidates(costs.c1)
    return candidates + costs.c3 * stats.inserts + costs.c4 * stats.deletes


def cell_load(stats: Statistics, costs: Costs) -> F64:
    """Returns the load of each cell under one owner, float64[c]."""
    at = stats.unit_cell()
    units = np.bincount(at, unit_load(stats, costs), stats.cells)
    return units + costs.c2 * np.diff(stats.row_off) * stats.weight


def bound_error(stats: Statistics, divided: I64, costs: Costs) -> float:
    """Returns by how much the load of a worker may differ at most from what is predicted with the
    parts of a rest (planner/rest.py) as single terms, microseconds. divided: the numbers of the
    cells that are divided by terms."""
    listed = frozenset(REST_TERMS)
    of_term = np.fromiter((t in listed for t in stats.terms), np.bool_, len(stats.terms))
    some = of_term[stats.term] & np.isin(stats.cell, divided)[stats.unit_cell()]
    return float((unit_load(stats, costs) + costs.c2 * stats.o)[some].sum())


def copies(stats: Statistics, owner: I32, workers: int) -> F64:
    """Returns the objects that each worker is sent, float64[workers]; owner: of each unit."""
    out = np.zeros(workers)
    _count_copies(stats.row_off, stats.weight, stats.row_start, stats.row_unit, owner, out)
    return out


def worker_loads(
    stats: Statistics, owner: I32, workers: int, costs: Costs, kind: Kind = "cells"
) -> F64:
    """Returns L_i of each worker, float64[workers]; owner: of each unit, int32[u]."""
    objects = copies(stats, owner, workers)

    def of(values: F64) -> F64:
        return np.bincount(owner, values, workers).astype(np.float64)

    inserts = of(stats.inserts)
    candidates = of(stats.candidates) if kind == "cells" else objects * of(stats.q)
    return (
        costs.c1 * candidates + costs.c2 * objects + costs.c3 * inserts
        + costs.c4 * of(stats.deletes)
    )  # fmt: skip


def lower_bound(stats: Statistics, workers: int, costs: Costs) -> float:
    """Returns the least load of the slowest worker: no object copied twice, all balanced."""
    return float(cell_load(stats, costs).sum()) / workers


@njit(cache=True, nogil=True)
def _count_copies(
    row_off: I64, weight: F64, row_start: I64, row_unit: I32, owner: I32, out: F64
) -> None:
    seen = np.full(len(out), -1, np.int64)
    for cell in range(len(weight)):
        for row in range(row_off[cell], row_off[cell + 1]):
            for i in range(row_start[row], row_start[row + 1]):
                worker = owner[row_unit[i]]
                if seen[worker] != row:
                    seen[worker] = row
                    out[worker] += weight[cell]
