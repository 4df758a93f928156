"""Plans and measured loads for the tests of local load adjustment."""

from __future__ import annotations

import numpy as np

from ps2stream.language.analyzer import Analysis
from ps2stream.planner.adjust.units import PartLoads
from ps2stream.planner.statistics import Statistics
from ps2stream.routing.costs import Costs
from ps2stream.routing.leaves import Space, Text
from ps2stream.routing.plan import RoutingPlan
from ps2stream.space.grid import Grid
from tests.support.statistics_of import Unit, tables

ANALYSIS = Analysis(salt=3)
GRID = Grid(4, 3, 16)
CELLS = 1 << 7
WORKERS = 4
COSTS = Costs(c1=1.0, c2=0.0, c3=0.0, c4=0.0)


def parts(cells: list[int], workers: list[int], loads: list[float], bytes: list[int]) -> PartLoads:
    """Loads as checks, which cost 1 in COSTS."""
    none = np.zeros(len(cells))
    return PartLoads.of(
        np.array(cells, np.uint32), np.array(workers, np.int32), none, none,
        np.array(loads), none, none, np.array(bytes, np.int64),
    )  # fmt: skip


def blocks() -> RoutingPlan:
    """A quarter of the cells to each worker, in order."""
    cells = np.arange(CELLS, dtype=np.uint32) // (CELLS // WORKERS)
    return RoutingPlan(WORKERS, ANALYSIS, GRID, tuple(map(Space, range(WORKERS))), cells)


def divided() -> RoutingPlan:
    """As blocks, but cell 5 is divided between workers 0 and 1."""
    plan = blocks()
    cells = plan.cells.copy()
    cells[5] = WORKERS
    leaf = Text((0, 1), {f"w{i}": i % 2 for i in range(8)})
    return RoutingPlan(WORKERS, ANALYSIS, GRID, (*plan.leaves, leaf), cells)


def hot(shared: bool, queries: float) -> Statistics:
    """Cell 5 with eight words; its objects have all of them or one each."""
    names = [f"w{i}" for i in range(8)]
    rows = [(5, names)] * 40 if shared else [(5, [name]) for name in names for _ in range(5)]
    units: list[Unit] = [
        (5, n, 40.0 if shared else 5.0, queries * (i + 1), 0.0, 0.0) for i, n in enumerate(names)
    ]
    units += [(c, "w0", 4.0, 3.0, 0.0, 0.0) for c in (40, 70, 100)]
    return tables(GRID, {5: 40.0, 40: 4.0, 70: 4.0, 100: 4.0}, units,
                  rows + [(c, ["w0"]) for c in (40, 70, 100) for _ in range(4)])  # fmt: skip
