"""Text splits and merges of one cell: what they would save (algorithms.md 1.8, Phase I).

How terms and objects divide is known from a sample with terms; how much there is of both is known
from what the workers measured. The sample thus gives shares only, and may be of any size and
period. The test is the paper's, in products per part as Definition 3 has them:

    n_o1 n_q1 + n_o2 n_q2 + c2/c1 (extra object copies) < n_o n_q

A split must pass it, a merge its opposite, so that no cell is split and merged in turn. Queries
are counted by their postings, of which a split makes no more: there are no extra query copies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs


class PartShares(NamedTuple):
    """The share that each of two parts has of the objects, postings, checks and updates of some
    terms of a cell, float64[2]. An object with terms of both parts counts in both: objects add up
    to 1 or more, the others to 1. Updates that are not in the sample are divided like the
    postings."""

    objects: F64
    queries: F64
    checks: F64
    updates: F64


def cell_index(stats: Statistics, cell: int) -> int | None:
    """Returns the index of a base-level cell in the statistics, or None if they do not have it."""
    at = int(np.searchsorted(stats.cell, cell))
    return at if at < stats.cells and stats.cell[at] == cell else None


def shares(stats: Statistics, cell: int, part: I32) -> PartShares | None:
    """Returns the shares of two parts of a cell, or None if the sample has no objects or no
    queries for one of them. cell: an index; part int32[units of the cell]: 0, 1, or -1 for terms
    that neither has."""
    first, last = int(stats.unit_off[cell]), int(stats.unit_off[cell + 1])
    rows = stats.row_start[stats.row_off[cell] : stats.row_off[cell + 1] + 1]
    row = np.repeat(np.arange(len(rows) - 1), np.diff(rows))
    of = part[stats.row_unit[rows[0] : rows[-1]] - first]
    met = np.zeros((2, len(rows) - 1), np.bool_)
    for k in (0, 1):
        met[k, row[of == k]] = True
    objects = met.sum(axis=1) / max(int(met.any(axis=0).sum()), 1)
    o, q = stats.o[first:last], stats.q[first:last]
    updated = (stats.inserts + stats.deletes)[first:last]
    queries, checks, updates = (
        np.array([of[part == k].sum() for k in (0, 1)]) for of in (q, o * q, updated)
    )
    if not (objects.all() and queries.all()):
        return None
    queries = queries / queries.sum()
    checks, updates = (s / s.sum() if s.sum() > 0 else queries for s in (checks, updates))
    return PartShares(objects, queries, checks, updates)


def saving(objects: float, queries: float, share: PartShares, costs: Costs) -> float:
    """Returns what two parts cost less than one part with both, in microseconds of the period;
    below zero if one part is better. objects: n_o of both together; queries: n_q."""
    fewer = objects * queries * (1.0 - float(share.objects @ share.queries))
    copies = objects * (float(share.objects.sum()) - 1.0)
    return costs.c1 * fewer - costs.c2 * copies
