"""Statistics for the tests of partitioning algorithms, hostile ones among them."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.planner.sample_rows import SampleRows
from ps2stream.planner.statistics import TOP_TERM, CellTable, SignatureTable, Statistics, UnitTable
from ps2stream.space.grid import Grid

TEXTS_GRID = Grid(5, 4)
Unit = tuple[int, str, float, float, float, float]  # cell, term, o, q, inserts, deletes


def tables(
    grid: Grid, objects: dict[int, float], units: list[Unit], rows: list[tuple[int, list[str]]]
) -> Statistics:
    """From rows as a person would write them; also row by row."""
    cell, term, *counts = zip(*units, strict=True) if units else ([], [], [], [], [], [])
    columns = (np.array(c, np.float64) for c in counts)
    found = Statistics.of(
        grid,
        CellTable(np.array(list(objects), np.int64), np.array(list(objects.values()), np.float64)),
        UnitTable(np.array(cell, np.int64), list(term), *columns),
        SignatureTable(np.array([c for c, _ in rows], np.int64), [t for _, t in rows]),
    )
    return dataclasses.replace(found, rows=rows_of(found))


def rows_of(stats: Statistics) -> SampleRows:
    """The rows of whole numbers: every signature is an object, and every posting a query of one
    cell and one term."""
    objects = stats.cell[np.repeat(np.arange(stats.cells), np.diff(stats.row_off))]
    held = stats.row_start, stats.term[stats.row_unit]
    counts = [column.astype(int) for column in (stats.q, stats.inserts, stats.deletes)]
    unit = np.concatenate([np.repeat(np.arange(stats.units), n) for n in counts])
    kind = np.repeat(np.arange(3), [n.sum() for n in counts])
    each = np.arange(len(unit) + 1)
    words = each, stats.term[unit]
    flags = [(kind == k).astype(np.float64) for k in range(3)]
    cells = each, stats.cell[stats.unit_cell()[unit]]
    return SampleRows.number(len(stats.terms), objects, held, held, cells, words, words, *flags)


def words(grid: Grid, rng: np.random.Generator, cells: list[int], count: int) -> Statistics:
    """`count` objects with a few of twenty words over the given cells, and queries for
    these words and without any; some units have no objects, some no live queries."""
    vocabulary = [TOP_TERM, *(f"w{i}" for i in range(20))]
    share = 1.0 / np.arange(2, 22)
    posted = {c: {vocabulary[i] for i in rng.integers(0, 21, 8)} for c in cells}
    at = [cells[int(i)] for i in rng.integers(0, len(cells), count) ** 2 % len(cells)]
    rows, seen = [], {(c, t): 0.0 for c in cells for t in sorted(posted[c])}
    for c in at:
        drawn = rng.choice(vocabulary[1:], 4, p=share / share.sum()).tolist()
        held = sorted({TOP_TERM, *drawn} & posted[c])
        for term in held:
            seen[c, term] += 1
        rows += [(c, held)] * bool(held)
    units = [(c, t, n, *rng.integers(0, 30, 3).astype(float)) for (c, t), n in seen.items()]
    objects = {c: float(at.count(c)) for c in set(at)}
    return tables(grid, objects, units, rows)


def hostile(seed: int) -> dict[str, Statistics]:
    """By name: what an algorithm may trip over."""
    rng = np.random.default_rng(seed)
    grid = Grid(4, 3, 16)
    last = grid.rows() * grid.columns() - 1
    cells = rng.choice(last + 1, 30, replace=False).tolist()
    return {
        "many cells": words(grid, rng, cells, 400),
        "one point": words(grid, rng, [last], 60),
        "two corners": words(grid, rng, [0, last], 60),
        "one row": words(grid, rng, list(range(16, 32)), 200),
        "grid of one cell": words(Grid(0, 0), rng, [0], 50),
        "one unit": tables(
            grid, {3: 5.0}, [(3, "storm", 5.0, 9.0, 1.0, 1.0)], [(3, ["storm"])] * 5
        ),
        "no queries": tables(grid, {1: 4.0, 9: 2.0}, [], []),
        "no objects": tables(
            grid, {}, [(c, t, 0.0, 3.0, 1.0, 0.0) for c in cells[:5] for t in ("a", "b")], []
        ),
        "only queries without words": tables(
            grid, {1: 4.0, 9: 2.0}, [(c, TOP_TERM, 2.0, 5.0, 1.0, 1.0) for c in (1, 9)],
            [(c, [TOP_TERM]) for c in (1, 1, 9, 9)],
        ),
        "nothing weighs anything": tables(grid, {}, [(5, "a", 0.0, 0.0, 0.0, 0.0)], []),
        "no word meets another": tables(
            grid, {5: 60.0}, [(5, f"w{i}", 2.0, 4.0, 0.0, 0.0) for i in range(30)],
            [(5, [f"w{i}"]) for i in range(30)],
        ),
    }  # fmt: skip


def one_hot_cell(seed: int) -> Statistics:
    """A third of the objects in one cell, the others over fifty."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(2048, 50, replace=False).tolist()
    return words(Grid(6, 5), rng, [cells[0]] * 25 + cells[1:], 3000)


def texts_in_cells(
    seed: int, cells: int, vocabulary: int, per_cell: int = 60, skew: float = 0.0
) -> Statistics:
    """Objects of one to five words in random cells; every tenth query has no words."""
    rng = np.random.default_rng(seed)
    where = rng.choice(TEXTS_GRID.rows() * TEXTS_GRID.columns(), cells, replace=False)
    cell_rows, units, rows = [], [], []
    for rank, cell in enumerate(where.tolist()):
        n = max(1, int(per_cell * (rank + 1) ** -skew))
        posted = {f"w{w}" for w in rng.integers(0, vocabulary, vocabulary).tolist()}
        posted |= {TOP_TERM} if rng.random() < 0.1 else set()
        texts = [
            {f"w{w}" for w in rng.integers(0, vocabulary, 5).tolist()} | {TOP_TERM}
            for _ in range(n)
        ]
        cell_rows.append((cell, n))
        for term in sorted(posted):
            o = sum(term in text for text in texts)
            units.append((cell, term, o, int(rng.integers(1, 200)), 1.0, 1.0))
        rows += [(cell, sorted(text & posted)) for text in texts if text & posted]
    columns = list(zip(*units, strict=True))
    return Statistics.of(
        TEXTS_GRID,
        CellTable(*map(np.array, zip(*cell_rows, strict=True))),
        UnitTable(np.array(columns[0]), columns[1], *map(np.array, columns[2:])),
        SignatureTable(np.array([c for c, _ in rows], np.int64), [t for _, t in rows]),
    )
