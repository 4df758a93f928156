"""Text split of one cell: its terms are divided among parts that share its load.

The rule is that of PartitionNode's text split (salb.py), terms by descending load. A term that no
sampled object has is assumed to be in half an object: if such terms were free, all of them would
go to one part, which would then get everything that the sample did not foresee.
"""

from __future__ import annotations

import numpy as np

from ps2stream.planner.load import unit_load
from ps2stream.planner.nodes import UNSEEN
from ps2stream.planner.salb import WordOccurrences, inverted
from ps2stream.planner.salb import divide as salb
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs

MAX_PARTS = 64
"""The most parts that are tried: the copies of more would cost what they save."""


def divide(stats: Statistics, cell: int, parts: int, costs: Costs) -> tuple[I32, F64]:
    """Returns (the part of each unit of the cell with this index, int32[u]; the load of each
    part, float64[parts]), in microseconds."""
    units = slice(int(stats.unit_off[cell]), int(stats.unit_off[cell + 1]))
    rows = int(stats.row_off[cell]), int(stats.row_off[cell + 1])
    q = stats.q[units]
    fixed = unit_load(stats, costs)[units] + costs.c1 * UNSEEN * q
    word = np.full(stats.units, -1, np.int32)
    word[units] = np.arange(len(q))
    off, row = inverted(stats.row_start, stats.row_unit, np.arange(*rows), word, len(q))
    weight = np.full(rows[1] - rows[0], stats.weight[cell])
    order = np.argsort(-(fixed + costs.c2 * stats.weight[cell] * np.diff(off)), kind="stable")
    part = salb(WordOccurrences(off, row, weight, q, fixed), order, parts, 0.0, costs.c2, 1.0)
    sent = np.unique(part[np.repeat(np.arange(len(q)), np.diff(off))] * np.int64(len(weight)) + row)
    copies = np.bincount(sent // max(len(weight), 1), minlength=parts) * stats.weight[cell]
    return part, np.bincount(part, fixed, parts) + costs.c2 * copies
