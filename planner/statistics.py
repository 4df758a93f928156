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
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.errors import PlanError
from ps2stream.protocol.frame import F64, I64, concat_ragged, row_of, take_ragged
from ps2stream.routing.plan import TOP_TERM
from ps2stream.space.grid import Grid

if TYPE_CHECKING:
    from ps2stream.planner.sample_rows import SampleRows

__all__ = [
    "I32",
    "REST_TERMS",
    "SIGNATURES",
    "TOP_TERM",
    "CellTable",
    "NumberedSignatures",
    "NumberedUnits",
    "SignatureTable",
    "Statistics",
    "UnitTable",
]

I32 = NDArray[np.int32]
SIGNATURES = 512
"""The most objects per cell that are kept as sets of units."""
REST_TERMS = tuple(f"[rest {part:02}]" for part in range(16))
"""The terms of the units that are sums of many (planner/rest.py), by part, as many as a power of
two; no query can have them."""
MAX_SIGNATURES = 1_000_000
"""About the most of them in all: where cells have more, each keeps fewer."""
_ROWS = 1 << 15  # of signatures


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


class NumberedUnits(NamedTuple):
    """UnitTable in integers, by cell and term: terms, the distinct ones, ascending; cell[u]; term
    int32[u], a number in `terms`; counts of any type, [u]. candidates float64[u]: the pairs of an
    object and a posting that meet; None: objects * live."""

    terms: tuple[str, ...]
    cell: I64 | I32
    term: I32
    objects: F64 | I64
    live: F64 | I32
    inserts: F64 | I32
    deletes: F64 | I32
    candidates: F64 | None = None


class NumberedSignatures(NamedTuple):
    """SignatureTable in integers: cell int64[r]; unit_off int64[r + 1], unit: the rows' units by
    their number in NumberedUnits; hits int64[r]: how many terms that are units' each object has,
    None: as many as units."""

    cell: I64
    unit_off: I64
    unit: I64 | I32
    hits: I64 | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """The sample by cell, unit and signature.

    cell int64[c] ascending, with objects or postings; objects float64[c]. Units of cell i are at
    unit_off[i]:unit_off[i + 1], by term: term int32[u] indexes `terms` (ascending), o objects
    with the term, q live postings, inserts, deletes float64[u]. Signatures of cell i are at
    row_off[i]:row_off[i + 1]; row r has the units row_unit[row_start[r]:row_start[r + 1]], and
    each stands for weight[i] objects. rows: the sample row by row, for algorithms that need it.
    summed float64[u]: the candidates of each unit where some are sums of many (planner/rest.py);
    None: o * q.
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
    summed: F64 | None = None

    @property
    def candidates(self) -> F64:
        """The pairs of an object and a live posting that meet in each unit, float64[u]."""
        return self.weigh_candidates(1.0)

    def weigh_candidates(self, cost: float) -> F64:
        """Returns the same times the cost of each."""
        return cost * self.o * self.q if self.summed is None else cost * self.summed

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
        """Assembles the tables, in any order. Raises PlanError as `number` does."""
        terms = tuple(sorted(set(units.term)))
        number = {term: i for i, term in enumerate(terms)}
        term = np.fromiter(map(number.__getitem__, units.term), np.int32, len(units.term))
        order = np.lexsort((term, units.cell))
        columns = (units.objects, units.live, units.inserts, units.deletes)
        listed = NumberedUnits(
            terms, units.cell[order], term[order], *(column[order] for column in columns)
        )
        off = np.zeros(len(signatures.terms) + 1, np.int64)
        np.cumsum([len(row) for row in signatures.terms], out=off[1:])
        words = np.fromiter((number[t] for row in signatures.terms for t in row), np.int64, off[-1])
        span = max(len(terms), 1)
        key = listed.cell.astype(np.int64) * span + listed.term
        unit = np.searchsorted(key, signatures.cell[row_of(off)] * span + words)
        return cls.number(grid, cells, listed, NumberedSignatures(signatures.cell, off, unit))

    @classmethod
    def number(
        cls, grid: Grid, cells: CellTable, units: NumberedUnits, signatures: NumberedSignatures
    ) -> Statistics:
        """Assembles cells and signatures in any order with units by cell and term. Raises PlanError
        if nothing was sampled, and for a cell that the grid does not have."""
        if not len(cells.cell) and not len(units.cell):
            raise PlanError("the sample is empty: it has neither objects nor queries")
        cell = np.unique(np.concatenate([cells.cell, units.cell])).astype(np.int64)
        if len(cell) and not 0 <= cell[0] <= cell[-1] < grid.rows() * grid.columns():
            raise PlanError(f"the sample names a cell that the grid {grid} does not have")
        objects = np.zeros(len(cell))
        np.add.at(objects, np.searchsorted(cell, cells.cell), cells.objects)
        row_cell = np.searchsorted(cell, signatures.cell)
        hits = np.diff(signatures.unit_off) if signatures.hits is None else signatures.hits
        held = np.bincount(row_cell, hits, len(cell))
        row_start, row_unit = _order_rows(row_cell, signatures.unit_off, signatures.unit)
        row_off = np.zeros(len(cell) + 1, np.int64)
        np.cumsum(np.bincount(row_cell, minlength=len(cell)), out=row_off[1:])
        at = np.searchsorted(cell, units.cell)
        posted = np.bincount(at, units.objects, len(cell)).astype(np.float64)
        unit_off = np.searchsorted(at, np.arange(len(cell) + 1))
        del at
        return cls(
            grid,
            units.terms,
            cell,
            objects,
            unit_off,
            units.term,
            np.asarray(units.objects, np.float64),
            np.asarray(units.live, np.float64),
            np.asarray(units.inserts, np.float64),
            np.asarray(units.deletes, np.float64),
            row_off,
            # So that what signatures stand for sums up to the units' counts of objects.
            np.divide(posted, held, out=np.zeros(len(posted)), where=held > 0),
            row_start,
            row_unit,
            summed=units.candidates,
        )


def limit_signatures(objects: F64, most: int = MAX_SIGNATURES) -> int:
    """Returns the most signatures that a cell keeps, a power of two, so that they are at most
    `most` in all or one per cell. objects: of each cell."""
    limit = SIGNATURES
    while limit > 1 and np.minimum(objects, limit).sum() > most:
        limit //= 2
    return limit


def _order_rows(at: I64, off: I64, unit: I64 | I32) -> tuple[I64, I32]:
    """Returns (row offsets, units): units ascending in each row, rows by cell and these units. at:
    the cell index of each row."""
    by_cell = np.argsort(at, kind="stable")
    at = at[by_cell]
    # Some whole cells at a time: on the way, each unit takes many times its bytes.
    first = np.unique(np.searchsorted(at, at[::_ROWS])).tolist()
    parts = [
        _order_block(at[a:b], *take_ragged(off, unit, by_cell[a:b]))
        for a, b in pairwise([*first, len(at)])
    ]
    start, units = concat_ragged(parts) if parts else (np.zeros(1, np.int64), unit)
    return start, units.astype(np.int32, copy=False)


def _order_block(at: I64, off: I64, unit: I64 | I32) -> tuple[I64, I32]:
    """Does what _order_rows says for rows of some cells, by cell."""
    held = unit.astype(np.int32)[np.lexsort((unit, row_of(off)))]
    # As big-endian bytes, which compare as the lists of numbers do.
    import pyarrow as pa  # here, as the controller imports this module and needs no Arrow
    import pyarrow.compute as pc

    keys = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(at),
        [None, pa.py_buffer(4 * off.astype(np.int64)), pa.py_buffer(held.astype(">u4"))],
    )
    order = pc.sort_indices(
        pa.table([pa.array(at), keys], ["cell", "units"]),
        sort_keys=[("cell", "ascending"), ("units", "ascending")],
    ).to_numpy()
    return take_ragged(off, held, order.astype(np.int64))
