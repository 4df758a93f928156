"""Phase I: hot cells split by text, and parts of a cell merged (algorithms.md 1.8).

Both need to know which terms a cell's load comes from, and so a sample with terms; cells that it
does not know are left to Phase II. Terms are divided as the planner divides a node
(planner/split.py), also those of a part that was split before. The half with fewer bytes moves,
or the other one if only that lightens the slower of the two workers. Terms that the sample does
not know stay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.adjustment import PartMove
from ps2stream.planner.adjust.text import cell_index, saving, shares
from ps2stream.planner.adjust.units import PartLoads
from ps2stream.planner.nodes import CellRect, CostModel
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.split import text_split
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan, hash_units
from ps2stream.routing.unit_kernels import U16

GAIN = 0.1
"""The share of the gap between two workers that the slower one must gain at least."""
PARTS = 8
"""The most parts that a split part is divided into; one of them moves."""


class PhaseOneChange(NamedTuple):
    """A move, and the loads of its source and its target after it."""

    move: PartMove
    source: float
    target: float


class PhaseOne:
    """The splits and merges that a plan allows. stats: a sample with terms, on the plan's grid."""

    def __init__(
        self, units: PartLoads, plan: RoutingPlan, stats: Statistics, costs: Costs
    ) -> None:
        if stats.grid != plan.grid:
            raise ValueError(f"the sample is on the grid {stats.grid}, the plan on {plan.grid}")
        self._units, self._stats, self._costs = units, stats, costs
        self._load = units.load(costs)
        analyzer = Analyzer(plan.analysis)
        self._model = CostModel(stats, PartitionOptions(costs=costs))
        self._h1, self._hashes = plan.compile(analyzer), hash_units(analyzer, stats.terms)

    def split(self, unit: int, target: int, loads: F64) -> PhaseOneChange | None:
        """Returns a change that moves some terms of a part, if that lowers the total load and
        that of the slower of source and target. unit: a row of the units."""
        units, stats = self._units, self._stats
        source = int(units.worker[unit])
        if (cell := cell_index(stats, int(units.cell[unit]))) is None:
            return None
        gap = float(loads[source] - loads[target])
        if gap <= 0:
            return None
        wanted = 2 * float(self._load[unit]) / gap
        mine = self._find_owners(cell) == source
        if not mine.any():
            return None
        for part in self._divide_terms(cell, mine, int(min(max(round(wanted), 2), PARTS))):
            if (change := self._try_part(unit, target, loads, cell, part)) is not None:
                return change
        return None

    def _try_part(
        self, unit: int, target: int, loads: F64, cell: int, part: I32
    ) -> PhaseOneChange | None:
        """Returns a change that gives one of two parts to the target, if one pays."""
        units, source = self._units, int(self._units.worker[unit])
        if (share := shares(self._stats, cell, part)) is None:
            return None
        objects, queries = float(units.objects[unit]), float(units.queries[unit])
        if saving(objects, queries, share, self._costs) <= 0:
            return None
        updates = self._costs.c3 * units.inserts[unit] + self._costs.c4 * units.deletes[unit]
        load = (
            self._costs.c1 * units.checks[unit] * share.checks
            + self._costs.c2 * objects * share.objects + updates * share.updates
        )  # fmt: skip
        for k in np.argsort(share.queries, kind="stable").tolist():
            change = PhaseOneChange(
                PartMove(
                    cell=int(units.cell[unit]),
                    source=source,
                    target=target,
                    bytes=round(float(units.bytes[unit] * share.queries[k])),
                    load=float(load[k]),
                    terms=self._list_terms(cell, part == k),
                    kind="split",
                ),
                float(loads[source] - self._load[unit] + load[1 - k]),
                float(loads[target] + load[k]),
            )
            gap = float(loads[source] - loads[target])
            if max(change.source, change.target) < loads[source] - GAIN * gap:
                return change
        return None

    def merge(self, unit: int, other: int, loads: F64) -> PhaseOneChange | None:
        """Returns a change that moves a part to the owner of another part of its cell, if that
        lowers the total load and that of the slower of the two. unit, other: rows of the units.
        """
        units, stats = self._units, self._stats
        if (cell := cell_index(stats, int(units.cell[unit]))) is None:
            return None
        source, target = int(units.worker[unit]), int(units.worker[other])
        owner = self._find_owners(cell)
        part = np.where(owner == source, 0, np.where(owner == target, 1, -1)).astype(np.int32)
        if (share := shares(stats, cell, part)) is None:
            return None
        # The sample knows the share of objects that are in both parts, the workers their number.
        sent = float(units.objects[unit] + units.objects[other])
        together = sent / float(share.objects.sum())
        queries = float(units.queries[unit] + units.queries[other])
        if saving(together, queries, share, self._costs) >= 0:
            return None
        load = float(self._load[unit]) - self._costs.c2 * (sent - together)
        move = PartMove(
            int(units.cell[unit]), source, target, int(units.bytes[unit]), load, kind="merge"
        )
        change = PhaseOneChange(
            move, float(loads[source] - self._load[unit]), float(loads[target]) + load
        )
        return change if max(change.source, change.target) < loads[source] else None

    def _find_owners(self, cell: int) -> U16:
        """Returns the worker of each unit of a cell, given by its index; of a replicated unit the
        number of its group, which is no worker's, so that it belongs to no part."""
        units = slice(*self._stats.unit_off[cell : cell + 2].tolist())
        terms = self._stats.term[units]
        tag = np.full(len(terms), self._stats.cell[cell], np.uint32)
        return self._h1.holders(tag, self._hashes[terms])

    def _divide_terms(self, cell: int, mine: NDArray[np.bool_], many: int) -> list[I32]:
        """Divides the units of a cell that are `mine` into `many` parts by the planner's text
        split (planner/split.py), those with the fewest queries first. Each result marks one part:
        0 for its units, 1 for the rest of mine, -1 for the others. Of two parts one is returned,
        and of one part none."""
        stats, model = self._stats, self._model
        first = int(stats.unit_off[cell])
        row, column = int(model.row_of[cell]), int(model.column_of[cell])
        node = model.node(
            CellRect(row, row + 1, column, column + 1),
            np.array([cell]),
            (first + np.flatnonzero(mine)).astype(np.int32),
            np.arange(stats.row_off[cell], stats.row_off[cell + 1]),
            whole=False,
        )
        parts = sorted(text_split(model, node, many), key=lambda part: part.queries)
        found = []
        for one in parts if len(parts) > 2 else parts[: len(parts) - 1]:
            part = np.where(mine, 1, -1).astype(np.int32)
            part[one.units - first] = 0
            found.append(part)
        return found

    def _list_terms(self, cell: int, mine: NDArray[np.bool_]) -> tuple[str, ...]:
        first = int(self._stats.unit_off[cell])
        numbers = self._stats.term[first + np.flatnonzero(mine)]
        return tuple(self._stats.terms[n] for n in numbers.tolist())
