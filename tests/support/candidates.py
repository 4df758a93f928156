"""Jobs that are candidates for one plan."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps2stream.planner.job import PlanJob
from ps2stream.planner.partition import PartitionOptions
from ps2stream.space.grid import Grid
from tests.support.samples import GRID, batch, some_sample

COARSE = Grid(2, 1, 16)


def some_jobs(**settings: Any) -> list[PlanJob]:
    """Candidates of each kind: two grids, one refined, an algorithm that needs rows, one that a
    delta concerns."""
    objects, rows = some_sample(4, 900, 90)
    first = PlanJob(posts=[objects], updates=[batch(rows)], workers=3, engine="numpy", **settings)
    varied: list[dict[str, Any]] = [
        {"algorithm": "kdtree"},
        {"algorithm": "hybrid-paper", "options": PartitionOptions(delta=0.9)},
        {"algorithm": "hybrid", "options": PartitionOptions(delta=0.1)},
        {"algorithm": "hybrid", "grid": COARSE, "refine": True},
        {"algorithm": "hybrid+", "grid": COARSE},
        {"algorithm": "hybrid+", "grid": COARSE, "refine": True},
    ]
    return [dataclasses.replace(first, **{"grid": GRID} | more) for more in varied]
