"""The tables of a sample, assembled."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.planner.statistics import (
    MAX_SIGNATURES,
    SIGNATURES,
    CellTable,
    NumberedSignatures,
    NumberedUnits,
    SignatureTable,
    Statistics,
    UnitTable,
    limit_signatures,
)
from ps2stream.space.grid import Grid
from tests.support.statistics_of import tables


def test_an_empty_sample_is_refused() -> None:
    none, empty = np.zeros(0), np.zeros(0, np.int64)
    with pytest.raises(PlanError, match="empty"):
        Statistics.of(
            Grid(5, 4),
            CellTable(empty, none),
            UnitTable(empty, [], none, none, none, none),
            SignatureTable(empty, []),
        )


def test_rows_in_any_order_give_the_same_statistics() -> None:
    """Cells, units and signatures are sorted; what a signature stands for follows from sums."""
    grid = Grid(2, 1)
    units = [
        (5, "b", 4.0, 1.0, 2.0, 3.0),
        (2, "b", 1.0, 9.0, 0.0, 0.0),
        (5, "a", 6.0, 7.0, 0.0, 1.0),
    ]
    stats = tables(grid, {5: 8.0, 7: 2.0}, units, [(5, ["b", "a"]), (2, ["b"]), (5, ["a"])])
    assert stats.terms == ("a", "b")
    assert stats.cell.tolist() == [2, 5, 7]
    assert stats.objects.tolist() == [0.0, 8.0, 2.0]
    assert stats.unit_off.tolist() == [0, 1, 3, 3]
    assert stats.term.tolist() == [1, 0, 1]
    columns = (stats.o, stats.q, stats.inserts, stats.deletes)
    assert [c.tolist() for c in columns] == [[1, 6, 4], [9, 7, 1], [0, 0, 2], [0, 1, 3]]
    assert stats.unit_cell().tolist() == [0, 1, 1]
    assert stats.row_off.tolist() == [0, 1, 3, 3]
    rows = np.split(stats.row_unit, stats.row_start[1:-1])
    assert [row.tolist() for row in rows] == [[0], [1], [1, 2]]
    # Ten hits of units in cell 5, in signatures that have three.
    assert stats.weight.tolist() == pytest.approx([1.0, 10 / 3, 0.0])
    assert (stats.cells, stats.units) == (3, 3)


def test_a_cell_that_is_named_twice_has_the_sum_of_its_objects() -> None:
    none = UnitTable(np.zeros(0, np.int64), [], *[np.zeros(0)] * 4)
    cells = CellTable(np.array([3, 1, 3]), np.array([2.0, 1.0, 5.0]))
    stats = Statistics.of(Grid(2, 1), cells, none, SignatureTable(np.zeros(0, np.int64), []))
    assert stats.cell.tolist() == [1, 3]
    assert stats.objects.tolist() == [1.0, 7.0]


def test_cells_keep_fewer_signatures_only_where_all_would_be_too_many() -> None:
    assert limit_signatures(np.full(9, 1e9)) == SIGNATURES
    few = np.full(100_000, 9.0)  # below the limit, however many cells there are
    assert limit_signatures(few) == SIGNATURES
    for objects in (np.full(100_000, 30.0), np.arange(200_000.0)):
        limit = limit_signatures(objects)
        assert np.minimum(objects, limit).sum() <= MAX_SIGNATURES
        assert np.minimum(objects, 2 * limit).sum() > MAX_SIGNATURES
    assert limit_signatures(np.full(2_000_000, 30.0)) == 1


@pytest.mark.parametrize("cell", [-1, 8])
def test_a_cell_that_the_grid_does_not_have_is_refused(cell: int) -> None:
    with pytest.raises(PlanError, match="a cell that the grid"):
        tables(Grid(2, 1), {cell: 1.0}, [], [])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_signatures_are_ordered_as_python_orders_lists(seed: int) -> None:
    """Numbers beyond a byte, lists of which one begins another, equal ones and empty ones."""
    rng = np.random.default_rng(seed)
    count = 700
    cell = np.sort(rng.integers(0, 8, count)).astype(np.int32)
    one = rng.integers(0, 9, count).astype(np.float64)
    terms = tuple(f"{i:03}" for i in range(count))
    units = NumberedUnits(terms, cell, np.arange(count, dtype=np.int32), one, one, one, one)
    pool = [0, 1, 255, 256, 257, 699]
    rows = [(int(rng.integers(8)), rng.choice(pool, rng.integers(0, 5)).tolist()) for _ in terms]
    off = np.concatenate([[0], np.cumsum([len(r) for _, r in rows])])
    flat = np.array([u for _, r in rows for u in r], np.int64)
    given = NumberedSignatures(np.array([c for c, _ in rows]), off, flat)
    cells = CellTable(np.arange(8), np.ones(8))
    stats = Statistics.number(Grid(2, 1), cells, units, given)
    found = [part.tolist() for part in np.split(stats.row_unit, stats.row_start[1:-1])]
    at = np.repeat(np.arange(8), np.diff(stats.row_off)).tolist()
    assert list(zip(at, found, strict=True)) == sorted((c, sorted(r)) for c, r in rows)
