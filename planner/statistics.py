"""The statistics that plans are made of: a sample of objects and query updates as counts per
unit.

A unit is a (cell, term) of the grid's base level under which some query is posted. Every table is
bounded by cells and terms, never by rows of the sample: counts per cell and per unit, and per
cell at most `SIGNATURES` objects as sets of units, which serve to estimate the objects that two
workers must both receive.

Both Spark (planner/spark.py) and NumPy (planner/sample.py) aggregate these tables; equal tables
give equal statistics, and so equal plans.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.errors import PlanError
from ps2stream.protocol.frame import F64, I64
from ps2stream.routing.plan import TOP_TERM
from ps2stream.space.grid import Grid

if TYPE_CHECKING:
    from ps2stream.planner.sample_rows import SampleRows

__all__ = [
    "I32",
    "SIGNATURES",
    "TOP_TERM",
    "CellTable",
    "SignatureTable",
    "Statistics",
    "UnitTable",
]

I32 = NDArray[np.int32]
SIGNATURES = 512
"""The most objects per cell that are kept as sets of units."""


class CellTable(NamedTuple):
    """The cells with objects, one row each: cell int64[c], objects float64[c] of the period."""

    cell: I64
    objects: F64


class UnitTable(NamedTuple):
    """The units with postings, one row each: cell int64[u]; term the string; objects of the
    period with that term; live postings; postings of the period's inserts and deletes,
    float64[u]."""

    cell: I64
    term: Sequence[str]
    objects: F64
    live: F64
    inserts: F64
    deletes: F64


class SignatureTable(NamedTuple):
    """The objects with the smallest hashes, at most SIGNATURES rows per cell: cell int64[r];
    terms: those of each object that are posted in its cell (at least one)."""

    cell: I64
    terms: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """The sample by cell, unit and signature.

    cell int64[c] ascending, with objects or postings; objects float64[c]. Units of cell i are at
    unit_off[i]:unit_off[i + 1], by term: term int32[u] indexes `terms` (ascending), o objects
    with the term, q live postings, inserts, deletes float64[u]. Signatures of cell i are at
    row_off[i]:row_off[i + 1]; row r has the units row_unit[row_start[r]:row_start[r + 1]], and
    each stands for weight[i] objects. rows: the sample row by row, for algorithms that need it.
    """

    grid: Grid
    terms: tuple[str, ...]
    cell: I64
    objects: F64
    unit_off: I64
    term: I32
    o: F64
    q: F64
    inserts: F64
    deletes: F64
    row_off: I64
    weight: F64
    row_start: I64
    row_unit: I32
    rows: SampleRows | None = None

    @property
    def cells(self) -> int:
        """The number of cells with objects or postings."""
        return len(self.cell)

    @property
    def units(self) -> int:
        return len(self.term)

    def unit_cell(self) -> I64:
        """Returns the index (not the number) of the cell of each unit, int64[u]."""
        return np.repeat(np.arange(self.cells), np.diff(self.unit_off))

    @classmethod
    def of(
        cls, grid: Grid, cells: CellTable, units: UnitTable, signatures: SignatureTable
    ) -> Statistics:
        """Assembles the tables, in any order. Raises PlanError if nothing was sampled, and for a
        cell that the grid does not have."""
        if not len(cells.cell) and not len(units.cell):
            raise PlanError("the sample is empty: it has neither objects nor queries")
        cell = np.unique(np.concatenate([cells.cell, units.cell]))
        if len(cell) and not 0 <= cell[0] <= cell[-1] < grid.rows() * grid.columns():
            raise PlanError(f"the sample names a cell that the grid {grid} does not have")
        objects = np.zeros(len(cell))
        np.add.at(objects, np.searchsorted(cell, cells.cell), cells.objects)
        terms = tuple(sorted(set(units.term)))
        number = {term: i for i, term in enumerate(terms)}
        at = np.searchsorted(cell, units.cell)
        term = np.fromiter(map(number.__getitem__, units.term), np.int32, len(units.term))
        order = np.lexsort((term, at))
        at, term = at[order], term[order]
        unit_off = np.searchsorted(at, np.arange(len(cell) + 1))
        rows = _build_rows(cell, at, term, len(terms), number, signatures)
        row_cell, row_start, row_unit = rows
        row_off = np.searchsorted(row_cell, np.arange(len(cell) + 1))
        posted = np.zeros(len(cell))
        np.add.at(posted, at, units.objects[order])
        return cls(
            grid,
            terms,
            cell,
            objects,
            unit_off,
            term,
            units.objects[order],
            units.live[order],
            units.inserts[order],
            units.deletes[order],
            row_off,
            _compute_weights(row_off, row_start, posted),
            row_start,
            row_unit,
        )


def _compute_weights(row_off: I64, row_start: I64, posted: F64) -> F64:
    """Returns the objects that a signature stands for, so that the sums equal the units' object
    counts."""
    held = (row_start[row_off[1:]] - row_start[row_off[:-1]]).astype(np.float64)
    return np.divide(posted, held, out=np.zeros(len(posted)), where=held > 0)


def _build_rows(
    cell: I64,
    unit_at: I64,
    unit_term: I32,
    terms: int,
    number: dict[str, int],
    signatures: SignatureTable,
) -> tuple[I64, I64, I32]:
    """Returns (cell index of each row, row offsets, units), rows in a canonical order."""
    size = np.fromiter(map(len, signatures.terms), np.int64, len(signatures.terms))
    flat = np.fromiter(
        (number[t] for row in signatures.terms for t in row), np.int64, int(size.sum())
    )
    at = np.searchsorted(cell, signatures.cell)
    key = unit_at * max(terms, 1) + unit_term
    unit = np.searchsorted(key, np.repeat(at, size) * max(terms, 1) + flat).astype(np.int32)
    cut = np.cumsum(size)[:-1]
    rows = sorted(
        (int(a), tuple(sorted(part.tolist())))
        for a, part in zip(at, np.split(unit, cut) if len(size) else [], strict=True)
    )
    start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(units) for _, units in rows], out=start[1:])
    return (
        np.array([a for a, _ in rows], np.int64),
        start,
        np.array([u for _, units in rows for u in units], np.int32),
    )
