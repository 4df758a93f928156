"""Statistics of a period of a workload."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ps2stream.batch import I64, U32, U64, row_of
from ps2stream.bench.engine import tags_of
from ps2stream.experiments.evaluate import Objects
from ps2stream.grid import Grid
from ps2stream.planner.statistics import (
    SIGNATURES,
    TOP_TERM,
    CellTable,
    SignatureTable,
    Statistics,
    UnitTable,
)
from ps2stream.rows import QueryRows
from ps2stream.terms import TOP, Analyzer


def statistics_of(
    grid: Grid, analyzer: Analyzer, names: Mapping[int, str], live: QueryRows,
    inserts: QueryRows, deletes: QueryRows, objects: Objects,
) -> Statistics:  # fmt: skip
    """names: the term of each hash."""
    names = {**names, int(TOP): TOP_TERM}
    sets = [tags_of(rows, grid) for rows in (live, inserts, deletes)]
    base = grid.rows() * grid.columns()
    parts = [_keys(tags.cell, tags.term, base) for tags in sets]
    cell = np.concatenate([p[0] for p in parts])
    term = np.concatenate([p[1] for p in parts])
    terms, at = np.unique(term, return_inverse=True)
    unit, which = np.unique(cell.astype(np.int64) * len(terms) + at, return_inverse=True)
    kind = np.repeat(np.arange(3), [len(p[0]) for p in parts])
    count = [
        np.bincount(which[kind == k], minlength=len(unit)).astype(np.float64) for k in range(3)
    ]
    where = grid.cells(objects.lon, objects.lat, 0).astype(np.int64)
    row = row_of(objects.term_off)
    number = np.minimum(np.searchsorted(terms, objects.term), max(len(terms) - 1, 0))
    key = where[row] * len(terms) + number
    slot = np.minimum(np.searchsorted(unit, key), len(unit) - 1)
    met = (unit[slot] == key) & (terms[number] == objects.term)
    held = np.bincount(slot[met], minlength=len(unit)).astype(np.float64)
    cells, n = np.unique(where, return_counts=True)
    words = [names[t] for t in terms.tolist()]
    rows, sets_of = _signatures(where, row[met], objects.term[met], names)
    return Statistics.of(
        grid,
        CellTable(cells, n.astype(np.float64)),
        UnitTable(
            unit // len(terms), [words[i] for i in (unit % len(terms)).tolist()], held, *count
        ),
        SignatureTable(rows, sets_of),
    )


def _keys(cell: U32, term: U64, base: int) -> tuple[U32, U64]:
    """The tags of the base level."""
    here = cell < base
    return cell[here], term[here]


def _signatures(
    where: I64, row: I64, term: U64, names: Mapping[int, str]
) -> tuple[I64, list[list[str]]]:
    """At most SIGNATURES objects a cell with their posted terms; objects come shuffled."""
    start = np.flatnonzero(np.r_[True, row[1:] != row[:-1]]) if len(row) else row
    first = row[start]
    order = np.argsort(where[first], kind="stable")
    cell = where[first][order]
    rank = np.arange(len(cell)) - np.searchsorted(cell, cell)
    kept = order[rank < SIGNATURES]
    end = np.r_[start[1:], len(row)]
    flat = term.tolist()
    sets = [
        [names[t] for t in flat[a:b]]
        for a, b in zip(start[kept].tolist(), end[kept].tolist(), strict=True)
    ]
    return where[first][kept], sets
