"""A small plan for the tests of what is shown of plans."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import RoutingPlan, Space, Text
from ps2stream.space.grid import Grid


def shown_plan(made: dict[str, Any] | None = None) -> RoutingPlan:
    """4 x 2 cells: worker 0 has three, 1 has two; three are divided by text among 1 and 2."""
    leaves = (Space(0), Text((1, 2), {"storm": 2, "flood": 0, "rain": 2}), Space(1))
    cells = np.array([0, 0, 1, 1, 0, 2, 2, 1], np.uint32)
    return RoutingPlan(
        3, Analysis(salt=0), Grid(2, 1), leaves, cells, {"storm": 5}, made=made or {}
    )
