"""The text split of one cell."""

from __future__ import annotations

import dataclasses

import pytest

from ps2stream.planner.hotspots import divide
from ps2stream.planner.load import worker_loads
from ps2stream.planner.nodes import UNSEEN
from ps2stream.routing.costs import Costs, balance
from tests.support.statistics_of import texts_in_cells


def test_the_parts_of_a_cell_have_the_load_that_the_model_gives_them() -> None:
    stats = texts_in_cells(3, 1, 30)
    part, loads = divide(stats, 0, 4, Costs())
    assert set(part.tolist()) == {0, 1, 2, 3}
    foreseen = dataclasses.replace(stats, o=stats.o + UNSEEN)
    assert loads == pytest.approx(worker_loads(foreseen, part, 4, Costs()))
    assert balance(loads) < 1.5
