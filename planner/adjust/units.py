"""What the workers measured: the load of every part of every cell in a period.

A part is what one worker owns of a cell: all of it, or the terms that the plan gives to that
worker there. It is the unit that moves. Loads are Definition 1's, by cells (algorithms.md 1.11,
7.12), in microseconds of the period.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ps2stream.planner.adjust.adjustment import PartMove
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import F64, I64, U32
from ps2stream.protocol.messages.loads import LoadReport
from ps2stream.routing.costs import Costs
from ps2stream.routing.unit_kernels import LEVEL_SHIFT

COUNTS = ("objects", "queries", "checks", "inserts", "deletes")
_NOTHING = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class PartLoads:
    """The measured parts, one row each, by cell and worker.

    cell uint32[u], level << 28 | cell of that level; worker int32[u]. Of the period, float64[u]:
    objects sent to the part (n_o), postings stored on average (n_q), checks (objects met with a
    posting of a term that they have; n_o * n_q is Definition 3's bound of it), postings inserted
    and deleted. bytes int64[u]: the size of its queries at the end (S_g).
    """

    cell: U32
    worker: I32
    objects: F64
    queries: F64
    checks: F64
    inserts: F64
    deletes: F64
    bytes: I64

    def __len__(self) -> int:
        return len(self.cell)

    @classmethod
    def of(
        cls, cell: U32, worker: I32, objects: F64, queries: F64, checks: F64, inserts: F64,
        deletes: F64, bytes: I64,
    ) -> PartLoads:  # fmt: skip
        """Builds the units from rows in any order; rows of the same part are summed. Raises
        ValueError for columns of different lengths and for values below zero or not finite."""
        columns = (objects, queries, checks, inserts, deletes, bytes)
        for name, column in zip((*COUNTS, "bytes"), columns, strict=True):
            if len(column) != len(cell) or len(worker) != len(cell):
                raise ValueError(f"{name} has {len(column)} rows, cell has {len(cell)}")
            if not (np.isfinite(column).all() and (np.asarray(column) >= 0).all()):
                raise ValueError(f"{name} has values below zero or not finite")
        keys, row = np.unique(_make_keys(cell, worker), return_inverse=True)
        summed = [np.bincount(row, column, len(keys)).astype(np.float64) for column in columns[:-1]]
        held = np.zeros(len(keys), np.int64)
        np.add.at(held, row, bytes)
        return _build_units(keys, summed, held)

    def take(self, rows: NDArray[np.bool_]) -> PartLoads:
        """Returns the rows where the mask is true."""
        return PartLoads(*(getattr(self, f.name)[rows] for f in dataclasses.fields(self)))

    @property
    def movable(self) -> NDArray[np.bool_]:
        """The parts of base-level cells, as a mask; coarser levels belong to all workers by a
        hash."""
        return np.asarray(self.cell >> LEVEL_SHIFT == 0, np.bool_)

    def load(self, costs: Costs) -> F64:
        """Returns L_g of each part, float64[u], microseconds."""
        return (
            costs.c1 * self.checks + costs.c2 * self.objects
            + costs.c3 * self.inserts + costs.c4 * self.deletes
        )  # fmt: skip

    def loads(self, workers: int, costs: Costs) -> F64:
        """Returns L_i of each worker, float64[workers], microseconds."""
        return np.bincount(self.worker, self.load(costs), workers).astype(np.float64)

    def definition1(self, workers: int, costs: Costs) -> F64:
        """Returns L_i exactly as Definition 1 has it, float64[workers], microseconds: all objects
        of a worker times all its postings, without regard to cells (algorithms.md 7.12)."""

        def of(values: F64) -> F64:
            return np.bincount(self.worker, values, workers).astype(np.float64)

        objects = of(self.objects)
        return (
            costs.c1 * objects * of(self.queries) + costs.c2 * objects
            + costs.c3 * of(self.inserts) + costs.c4 * of(self.deletes)
        )  # fmt: skip


def smoothed(before: PartLoads | None, period: PartLoads, alpha: float = 0.5) -> PartLoads:
    """Returns the counts of the period weighted by `alpha` plus the earlier ones weighted by the
    rest (algorithms.md 7.22). A part that the period does not name decays, and is dropped at a
    thousandth; bytes are those of the period. alpha in (0, 1]."""
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be above 0 and at most 1, got {alpha}")
    if before is None:
        return period
    key, new = _make_keys(before.cell, before.worker), _make_keys(period.cell, period.worker)
    keys = np.union1d(key, new)
    old_at, new_at = np.searchsorted(keys, key), np.searchsorted(keys, new)
    columns = []
    for name in COUNTS:
        out = np.zeros(len(keys))
        out[old_at] = (1 - alpha) * getattr(before, name)
        out[new_at] += alpha * getattr(period, name)
        columns.append(out)
    held = np.zeros(len(keys), np.int64)
    held[new_at] = period.bytes
    some = (np.stack(columns) > _NOTHING).any(axis=0) | (held > 0)
    return _build_units(keys[some], [column[some] for column in columns], held[some])


def carried(units: PartLoads, moves: Iterable[PartMove], costs: Costs) -> PartLoads:
    """Returns the units as if these moves had been made before, so that the counts of a part move
    with it. The listed terms of a split take the share of its objects and checks that their load
    is, and the share of everything else that their bytes are."""
    row = {key: i for i, key in enumerate(_make_keys(units.cell, units.worker).tolist())}
    load = units.load(costs)
    kept = np.ones((2, len(units)))
    taken, share, target = [], [], []
    for move in moves:
        if (at := row.get(move.cell << 16 | move.source)) is not None:
            taken.append(at)
            size = move.bytes / max(int(units.bytes[at]), 1)
            work = move.load / load[at] if load[at] > 0 else size
            share.append((1.0, 1.0) if move.terms is None else (min(work, 1.0), min(size, 1.0)))
            target.append(move.target)
            kept[:, at] -= share[-1]
    rows = np.r_[np.arange(len(units)), np.array(taken, np.int64)]
    by = np.hstack([np.maximum(kept, 0.0), np.array(share).reshape(-1, 2).T])
    worker = np.r_[units.worker, np.array(target, np.int32)]
    some = by.any(axis=0)
    rows, (work_by, size_by) = rows[some], by[:, some]
    held = np.rint(size_by * units.bytes[rows]).astype(np.int64)
    return PartLoads.of(
        units.cell[rows], worker[some], work_by * units.objects[rows],
        size_by * units.queries[rows], work_by * units.checks[rows],
        size_by * units.inserts[rows], size_by * units.deletes[rows], held,
    )  # fmt: skip


def units_of(reports: list[LoadReport]) -> PartLoads:
    """Returns the units of these load reports, each reduced to one period."""

    def column(of: Callable[[LoadReport], object]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.concatenate([np.asarray(of(r), np.float64) for r in reports])

    worker = np.concatenate([np.full(len(r.cell), r.worker, np.int32) for r in reports])
    return PartLoads.of(
        np.concatenate([r.cell for r in reports]),
        worker,
        column(lambda r: r.objects / r.periods),
        column(lambda r: r.queries),
        column(lambda r: r.checks / r.periods),
        column(lambda r: r.inserts / r.periods),
        column(lambda r: r.deletes / r.periods),
        np.concatenate([r.bytes for r in reports]),
    )


def _make_keys(cell: U32, worker: I32) -> I64:
    return cell.astype(np.int64) << 16 | worker


def _build_units(keys: I64, counts: Sequence[F64], held: I64) -> PartLoads:
    cell, worker = (keys >> 16).astype(np.uint32), (keys & 0xFFFF).astype(np.int32)
    objects, queries, checks, inserts, deletes = counts
    return PartLoads(cell, worker, objects, queries, checks, inserts, deletes, held)
