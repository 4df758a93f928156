"""The text split of one cell."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.planner.hotspots import divide
from ps2stream.planner.load import worker_loads
from ps2stream.planner.nodes import UNSEEN
from ps2stream.routing.costs import Costs, balance
from ps2stream.space.grid import Grid
from tests.support.statistics_of import Unit, tables, texts_in_cells


def test_the_parts_of_a_cell_have_the_load_that_the_model_gives_them() -> None:
    stats = texts_in_cells(3, 1, 30)
    part, loads = divide(stats, 0, 4, Costs())
    assert set(part.tolist()) == {0, 1, 2, 3}
    foreseen = dataclasses.replace(stats, o=stats.o + UNSEEN)
    assert loads == pytest.approx(worker_loads(foreseen, part, 4, Costs()))
    assert balance(loads) < 1.5


def test_terms_that_no_object_has_are_divided_too() -> None:
    """If they were free, one part would get all of them."""
    units: list[Unit] = [(0, f"w{i:02}", 0.0, 10.0, 0.0, 0.0) for i in range(12)]
    stats = tables(Grid(0, 0), {0: 5.0}, units, [])
    part, loads = divide(stats, 0, 3, Costs(c1=1.0))
    assert np.bincount(part).tolist() == [4, 4, 4]
    assert loads.tolist() == [4 * 10 * UNSEEN] * 3
