"""What the workers of a plan would measure, if the stream were what a sample says."""

from __future__ import annotations

import numpy as np

from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.units import PartLoads
from ps2stream.planner.statistics import Statistics
from ps2stream.routing.plan import RoutingPlan, hash_units

POSTING = 96  # bytes


def measured(stats: Statistics, plan: RoutingPlan) -> PartLoads:
    """One period; bytes by postings."""
    analyzer = Analyzer(plan.analysis)
    at = stats.unit_cell()
    cell = stats.cell[at].astype(np.uint32)
    owner = plan.compile(analyzer).owners(cell, hash_units(analyzer, stats.terms)[stats.term])
    worker = owner.astype(np.int32)
    row_cell = np.repeat(np.arange(stats.cells), np.diff(stats.row_off))
    row = np.repeat(np.arange(len(row_cell)), np.diff(stats.row_start))
    sent = np.unique(np.stack([row, worker[stats.row_unit]]), axis=1)
    at_cell = row_cell[sent[0]]
    weight = stats.weight[at_cell]
    none, some = np.zeros(len(weight)), np.zeros(len(cell))
    return PartLoads.of(
        np.concatenate([cell, stats.cell[at_cell].astype(np.uint32)]),
        np.concatenate([worker, sent[1].astype(np.int32)]),
        np.concatenate([some, weight]),
        np.concatenate([stats.q, none]),
        np.concatenate([stats.o * stats.q, none]),
        np.concatenate([stats.inserts, none]),
        np.concatenate([stats.deletes, none]),
        np.concatenate([POSTING * stats.q, none]).astype(np.int64),
    )
