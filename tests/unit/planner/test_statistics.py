"""The tables of a sample, assembled."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.planner.statistics import CellTable, SignatureTable, Statistics, UnitTable
from ps2stream.space.grid import Grid


def test_an_empty_sample_is_refused() -> None:
    none, empty = np.zeros(0), np.zeros(0, np.int64)
    with pytest.raises(PlanError, match="empty"):
        Statistics.of(
            Grid(5, 4),
            CellTable(empty, none),
            UnitTable(empty, [], none, none, none, none),
            SignatureTable(empty, []),
        )
