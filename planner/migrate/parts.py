"""What differs between two plans, cell by cell, and which of it need not move.

A target balances the workers by what flows between each two of them. Much of that goes to and fro:
one gives the other some cells and gets others for them. Only the difference must move. Minimum
Cost Migration (planner/adjust/selection.py) selects, among the cells that the pair's giver would
lose, those that carry this load for the fewest bytes; the rest of the pair's cells stay. As loads
by cells add up, each worker ends with the load that the target gives it, within `SLACK`. Where no
such set exists the pair follows the target as a whole. So do cells of which several parts change
their owners: they are what the target changes beside the balance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.adjust.selection import select
from ps2stream.planner.load import unit_load
from ps2stream.planner.migrate.mixing import Mask
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import F64, I64, row_of
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan, hash_units

Selection = Literal["gr", "gr+", "dp", "si", "ra", "all"]
SLACK = 0.02
"""The load, as a share of the mean load of a worker, by which all selections that concern a worker
may miss what it needs: selected cells are whole."""
PAIRS = pa.schema(
    [
        ("pair", pa.int64()),  # lower worker << 16 | higher one
        ("cell", pa.int64()),
        ("forth", pa.bool_()),  # from the lower worker to the higher one
        ("load", pa.float64()),
        ("bytes", pa.int64()),
    ]
)
CHOSEN = pa.schema([("cell", pa.int64())])


@dataclasses.dataclass(frozen=True, eq=False)
class CellLoads:
    """The load of each worker in each cell, where it has any, by cell and worker: cell, worker
    int64[n], load float64[n], microseconds of the sample."""

    cell: I64
    worker: I64
    load: F64

    def total(self, workers: int) -> F64:
        """Returns the load of each worker, float64[workers]."""
        return np.bincount(self.worker, self.load, workers).astype(np.float64)

    def less(self, other: CellLoads) -> CellLoads:
        """Returns by how much these loads exceed others."""
        return _sum_loads(
            np.concatenate([self.cell, other.cell]),
            np.concatenate([self.worker, other.worker]),
            np.concatenate([self.load, -other.load]),
        )


def cell_loads(stats: Statistics, plan: RoutingPlan, costs: Costs) -> CellLoads:
    """Returns what `worker_loads` sums, by cell (load.py). A unit with replicas counts for its
    first worker."""
    h1 = plan.compile(analyzer := Analyzer(plan.analysis))
    of_unit = stats.unit_cell()
    hashes = hash_units(analyzer, stats.terms)
    owner = h1.owners(stats.cell[of_unit].astype(np.uint32), hashes[stats.term]).astype(np.int64)
    row = row_of(stats.row_start)
    copy = np.unique(row * plan.workers + owner[stats.row_unit])
    at = row_of(stats.row_off)[copy // plan.workers]
    return _sum_loads(
        stats.cell[np.concatenate([of_unit, at])],
        np.concatenate([owner, copy % plan.workers]),
        np.concatenate([unit_load(stats, costs), costs.c2 * stats.weight[at]]),
    )


def _sum_loads(cell: I64, worker: I64, load: F64) -> CellLoads:
    keys, at = np.unique(cell << 16 | worker, return_inverse=True)
    summed = np.bincount(at, load, len(keys)).astype(np.float64)
    return CellLoads(keys >> 16, keys & 0xFFFF, summed)


@dataclasses.dataclass(frozen=True, eq=False)
class CellMoves:
    """The cells that change their owners, by number: cell int64[k]; source, target int64[k]: the
    two workers of a cell of which one part moves, -1 where several do; bytes int64[k]: what is
    fetched for it alone; change: by how much the loads of workers rise."""

    cell: I64
    source: I64
    target: I64
    bytes: I64
    change: CellLoads

    @property
    def simple(self) -> Mask:
        """The cells of which one part moves."""
        return np.asarray(self.source >= 0, np.bool_)

    def take(self, cells: I64) -> CellMoves:
        """Returns these cells alone."""
        kept, loads = np.isin(self.cell, cells), np.isin(self.change.cell, cells)
        rise = self.change
        change = CellLoads(rise.cell[loads], rise.worker[loads], rise.load[loads])
        return CellMoves(
            self.cell[kept], self.source[kept], self.target[kept], self.bytes[kept], change
        )

    def gains(self) -> F64:
        """Returns the load that the target of each cell gains, float64[k]; 0 where there are
        several, or none."""
        keys = self.change.cell << 16 | self.change.worker
        return _look_up(keys, self.change.load, self.cell << 16 | np.maximum(self.target, 0)) * (
            self.simple
        )


def find_moves(parts: Any, change: CellLoads) -> CellMoves:
    """Returns the cells of a table of measure.PARTS. change: by how much the loads of the target
    exceed those of the plan in force."""
    columns = (parts[name].to_numpy() for name in ("cell", "source", "target", "bytes"))
    cell, source, target, size = (column.astype(np.int64) for column in columns)
    cells, first, at, count = np.unique(
        cell, return_index=True, return_inverse=True, return_counts=True
    )
    total = np.zeros(len(cells), np.int64)
    np.add.at(total, at, size)
    one = count == 1
    givers, takers = (np.where(one, each[first], -1) for each in (source, target))
    return CellMoves(cells, givers, takers, total, change).take(cells)


def list_pairs(moves: CellMoves) -> Any:
    """Returns PAIRS of the cells of which one part moves, by pair and cell."""
    at = np.flatnonzero(moves.simple)
    low = np.minimum(moves.source, moves.target)[at]
    pair = low << 16 | np.maximum(moves.source, moves.target)[at]
    order = np.lexsort((moves.cell[at], pair))
    at = at[order]
    columns = moves.cell[at], moves.source[at] == low[order], np.maximum(moves.gains()[at], 0.0)
    return pa.table([pair[order], *columns, moves.bytes[at]], schema=PAIRS)


def select_cells(algorithm: str, slack: float, seed: int, parts: Iterator[Any]) -> Iterator[Any]:
    """Yields CHOSEN of whole pairs, tables of PAIRS. slack: microseconds; see SLACK."""
    for part in parts:
        columns = {name: part[name].to_numpy(zero_copy_only=False) for name in PAIRS.names}
        order = np.argsort(columns["cell"])
        columns = {name: column[order] for name, column in columns.items()}
        chosen = _select_pair(columns, algorithm, slack, seed)
        yield pa.record_batch([columns["cell"][chosen].astype(np.int64)], CHOSEN)


def _select_pair(columns: dict[str, Any], algorithm: str, slack: float, seed: int) -> I64:
    load, size, forth = columns["load"], columns["bytes"], columns["forth"].astype(np.bool_)
    net = float(load[forth].sum() - load[~forth].sum())
    everything = np.arange(len(load))
    if algorithm == "all":
        return everything
    if abs(net) <= slack:
        return everything[:0]
    giving = np.flatnonzero(forth == (net > 0))
    chosen = select(SELECTIONS[algorithm], load[giving], size[giving], abs(net), seed)
    if chosen is None or load[giving[chosen]].sum() > abs(net) + slack:
        return everything
    return giving[chosen]


def _look_up(keys: I64, values: F64, wanted: I64) -> F64:
    """Returns the values of these keys, 0 for one that is not there. keys: ascending."""
    if not len(keys):
        return np.zeros(len(wanted))
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0.0)
