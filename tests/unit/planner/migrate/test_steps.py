"""The order of cells, and the steps that they make."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.migrate.parts import CellLoads, CellMoves
from ps2stream.planner.migrate.steps import StepCells, merge_steps, order_cells
from ps2stream.space.grid import Grid

GRID = Grid(4, 3)


def moves_of(rows: list[tuple[int, int, int, float]]) -> CellMoves:
    """From (source, target, bytes, load), numbered as cells."""
    source, target, size, load = (np.array(column) for column in zip(*rows, strict=True))
    cell = np.arange(len(rows))
    change = CellLoads(
        np.repeat(cell, 2),
        np.column_stack([source, target]).ravel(),
        np.column_stack([-load, load]).ravel().astype(np.float64),
    )
    return CellMoves(cell, source, target, size, change)


@pytest.mark.parametrize("seed", range(5))
def test_every_cell_moves_once_and_no_step_exceeds_its_bytes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        (a, (a + 1 + int(rng.integers(3))) % 4, int(rng.integers(0, 900)), float(rng.uniform(0, 9)))
        for a in rng.integers(0, 4, 80).tolist()
    ]
    moves, loads = moves_of(rows), np.full(4, 200.0)
    steps = order_cells(moves, GRID, loads, 1000.0, 800)
    assert sorted(np.concatenate([s.cells for s in steps]).tolist()) == list(range(80))
    for before, step in zip((None, *steps), steps, strict=False):
        assert moves.bytes[step.cells].sum() <= 800 or len(step.cells) == 1
        was = loads if before is None else before.loads
        for cell in step.cells:
            source, target, _, load = rows[cell]
            was = was + np.bincount([source, target], [-load, load], 4)
        assert np.allclose(step.loads, was)


def test_a_worker_gives_before_it_takes() -> None:
    rows = [(0, 1, 10, 30.0), (1, 2, 10, 30.0)]
    loads = np.array([100.0, 90.0, 60.0])
    steps = order_cells(moves_of(rows), GRID, loads, 100.0, 10)
    assert [s.cells.tolist() for s in steps] == [[1], [0]]
    assert max(s.loads.max() for s in steps) <= 100
    # Where the bound allows it, those two go first whose loads are furthest apart.
    free = order_cells(moves_of(rows), GRID, np.array([100.0, 60.0, 50.0]), 100.0, 10)
    assert [s.cells.tolist() for s in free] == [[0], [1]]


def test_a_bound_that_no_order_keeps_is_exceeded_least() -> None:
    rows = [(0, 1, 10, 50.0), (1, 0, 10, 40.0)]
    steps = order_cells(moves_of(rows), GRID, np.array([100.0, 100.0]), 105.0, 10)
    assert [s.cells.tolist() for s in steps] == [[1], [0]]
    assert steps[0].loads.tolist() == [140.0, 60.0]


def test_neighbours_move_together() -> None:
    rows = [(0, 1, 10, 1.0)] * (GRID.columns() * GRID.rows())
    steps = order_cells(moves_of(rows), GRID, np.array([500.0, 0.0]), 1000.0, 160)
    for step in steps:
        row, column = np.divmod(step.cells, GRID.columns())
        assert (np.ptp(row), np.ptp(column)) == (3, 3)


def test_a_step_stays_with_two_workers_while_it_may() -> None:
    rows = [(0, 1, 10, 9.0), (2, 3, 10, 9.0)] * 4
    steps = order_cells(moves_of(rows), GRID, np.array([50.0, 0.0, 49.0, 0.0]), 100.0, 40)
    assert [sorted(step.cells.tolist()) for step in steps] == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_steps_that_fit_together_are_joined() -> None:
    steps = [StepCells(np.array([n]), np.array([float(n)])) for n in range(6)]
    found = merge_steps(steps, np.array([40, 50, 20, 130, 0, 100]), 100)
    assert [step.cells.tolist() for step in found] == [[0, 1], [2], [3], [4, 5]]
    assert [step.loads.tolist() for step in found] == [[1.0], [2.0], [3.0], [5.0]]


def test_nothing_is_no_step() -> None:
    none = np.zeros(0, np.int64)
    moves = CellMoves(none, none, none, none, CellLoads(none, none, np.zeros(0)))
    assert order_cells(moves, GRID, np.ones(2), 2.0, 10) == []
