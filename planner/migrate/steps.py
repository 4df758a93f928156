"""The steps of a migration: in which order cells move, and the plan after each step.

A step fetches at most a given number of bytes, or a single cell of more. It begins with the two
workers whose loads are furthest apart, and moves what goes from one to the other as long as that is
not too much: in the order of a curve through the grid, so that neighbouring cells go together. A
query that meets several of them is fetched again in each further step, which with cells in the
order of their loads nearly doubled the bytes. Where a worker would exceed the bound on the way
another cell goes first, so that it gives before it takes; if all would exceed it, the one that does
so least goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.planner.migrate.parts import CellMoves
from ps2stream.protocol.frame import F64, I64
from ps2stream.routing.plan import RoutingPlan
from ps2stream.space.grid import Grid


class StepCells(NamedTuple):
    """The cells of a step, int64[k], in the order in which they were put into it, and the loads of
    all workers after it, float64[workers], microseconds of the sample."""

    cells: I64
    loads: F64


@dataclasses.dataclass(frozen=True, eq=False)
class MigrationStep:
    """A plan that follows the one before, the queries and bytes that all workers fetch for it, how
    many cells change their owners, and the loads that it leads to, float64[workers]."""

    plan: RoutingPlan
    queries: int
    bytes: int
    cells: int
    loads: F64


@dataclasses.dataclass(frozen=True, eq=False)
class MigrationSteps:
    """The steps from `base` on. made: how they were found, for people; JSON-ready."""

    base: RoutingPlan
    steps: tuple[MigrationStep, ...]
    made: Mapping[str, Any]

    @property
    def bytes(self) -> int:
        """The bytes that all steps fetch."""
        return sum(step.bytes for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON of a file of migration steps (routing/steps_document.py)."""
        frequencies = dict(self.base.frequencies)
        steps = []
        for step in self.steps:
            body = step.plan.to_dict()
            if body["frequencies"] == frequencies:
                del body["frequencies"]
            figures = {"queries": step.queries, "bytes": step.bytes, "cells": step.cells}
            steps.append({**figures, "loads": step.loads.tolist(), "plan": body})
        return {
            "base_version": self.base.version,
            "base_route": self.base.route,
            "frequencies": frequencies,
            "steps": steps,
            "made": dict(self.made),
        }


def order_cells(
    moves: CellMoves, grid: Grid, loads: F64, bound: float, step_bytes: int
) -> list[StepCells]:
    """Divides all these cells of a grid into steps. loads: of each worker before, float64[workers];
    bound: of the load of each on the way, microseconds; step_bytes: of a step. A cell whose parts
    go to several workers is judged by the one that gains most."""
    queues = _MoveQueues(moves, grid, len(loads))
    now, out, cells, size = loads.copy(), list[StepCells](), list[int](), 0
    for _ in range(len(moves.cell)):
        row = queues.find_next(now, bound)
        if cells and size + moves.bytes[row] > step_bytes:
            out.append(StepCells(np.array(cells, np.int64), now.copy()))
            cells, size = [], 0
            queues.current = -1
            row = queues.find_next(now, bound)
        queues.take()
        cells.append(int(moves.cell[row]))
        size += int(moves.bytes[row])
        workers, change = queues.find_change(row)
        now[workers] += change
    if cells:
        out.append(StepCells(np.array(cells, np.int64), now))
    return out


def merge_steps(steps: Sequence[StepCells], size: I64, step_bytes: int) -> list[StepCells]:
    """Joins steps that follow each other as long as they fetch at most `step_bytes` together. size
    int64[steps]: what each was measured to fetch. Until then cells counted as if none had queries
    in common; and two steps together fetch no more than one after the other."""
    out, held = list[StepCells](), 0
    for step, bytes_ in zip(steps, size.tolist(), strict=True):
        if out and held + bytes_ <= step_bytes:
            out[-1] = StepCells(np.concatenate([out[-1].cells, step.cells]), step.loads)
            held += bytes_
        else:
            out.append(step)
            held = bytes_
    return out


class _MoveQueues:
    """The cells that are left, a queue for each two workers of which one gives and one takes.
    current: the queue that the next cell comes from if it may, -1 for any."""

    def __init__(self, moves: CellMoves, grid: Grid, workers: int) -> None:
        change, cells = moves.change, len(moves.cell)
        self._change = change
        self._first = np.searchsorted(change.cell, moves.cell)
        self._end = np.searchsorted(change.cell, moves.cell, "right")
        source, target, self._gain = (
            np.maximum(moves.source, 0), np.maximum(moves.target, 0), moves.gains(),
        )  # fmt: skip
        for row in np.flatnonzero(~moves.simple).tolist():
            named, rise = self.find_change(row)
            if len(named):
                source[row], target[row] = named[rise.argmin()], named[rise.argmax()]
                self._gain[row] = max(rise.max(), 0.0)
        key = source * workers + target
        self._order = np.lexsort((_find_places(moves.cell, grid), key))
        names, start = np.unique(key[self._order], return_index=True)
        self._source, self._target = names // workers, names % workers
        self._at, self._limit = start, np.append(start[1:], cells)
        self.current = -1

    def find_change(self, row: int) -> tuple[I64, F64]:
        """Returns the workers whose loads change with this cell, and by how much."""
        mine = slice(int(self._first[row]), int(self._end[row]))
        return self._change.worker[mine], self._change.load[mine]

    def find_next(self, loads: F64, bound: float) -> int:
        """Returns the row of the next cell, and makes its queue the current one."""
        left = np.flatnonzero(self._at < self._limit)
        head = self._order[self._at[left]]
        after = loads[self._target[left]] + self._gain[head]
        fits = after <= bound
        if (stays := (left == self.current) & fits).any():
            best = np.argmax(stays)
        elif fits.any():
            gap = loads[self._source[left]] - loads[self._target[left]]
            best = np.argmax(np.where(fits, gap, -np.inf))
        else:
            best = np.argmin(after)
        self.current = int(left[best])
        return int(head[best])

    def take(self) -> None:
        """Takes the cell that was found last."""
        self._at[self.current] += 1


def _find_places(cell: I64, grid: Grid) -> I64:
    """Returns the places of cells on a Z-order curve through the grid."""
    column, row = cell & (grid.columns() - 1), cell >> grid.lon_bits
    place = np.zeros(len(cell), np.int64)
    for bit in range(max(grid.lon_bits, grid.lat_bits)):
        place |= (column >> bit & 1) << 2 * bit | (row >> bit & 1) << 2 * bit + 1
    return place
