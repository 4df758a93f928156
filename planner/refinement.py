"""Refinement of the grid: no cell holds more than 1/(4m) of the load where space can be divided.

A cell with more than an even share of the load has one owner under every algorithm that divides by
space alone, and where its posts share a term, under all. Finer grids are sampled in turn, by whole
bits of the axis along which the fullest cell is longer, until it is light enough or a limit is
reached. Queries may touch more cells in return, or they would leave for the coarser levels, which
no plan places (semantics of `max_cells`: space/grid.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.sample import PlannerSample
from ps2stream.planner.statistics import Statistics
from ps2stream.routing.costs import Costs
from ps2stream.space.grid import CELLS_MAX, Grid

CELLS_PER_SHARE = 4
"""Cells that the load of one worker should be divided into at least."""
OBJECTS_A_CELL = 16
"""Objects of the sample that a cell may hold at any rate: with fewer, chance decides."""
LEAST_BITS = 2
"""Bits that a finer grid has more at least: each is a sample of its own."""
AXIS_BITS = 14
QUERY_CELLS_MAX = 1024
"""The most cells of the base level that a query may touch in a grid that was refined."""
POSTINGS_MAX = 20_000_000
"""The most postings that the sample may have on a finer grid, as estimated before it is tried."""
WORTH = 1.1
"""A coarser grid is taken if its fullest cell holds at most this many times what that of the best
one does."""


@dataclass(frozen=True, slots=True)
class FullestCell:
    """The cell with the most load: its number on the base level, its share of the load of all
    cells, and its middle in degrees."""

    cell: int
    share: float
    lon: float
    lat: float

    @classmethod
    def of(cls, stats: Statistics, costs: Costs) -> FullestCell:
        """Finds it; without any load, the share is 0."""
        load = cell_load(stats, costs)
        at, total = int(np.argmax(load)), float(load.sum())
        west, south, width, height = stats.grid.bounds(int(stats.cell[at]))
        share = float(load[at]) / total if total else 0.0
        return cls(int(stats.cell[at]), share, west + width / 2, south + height / 2)

    def describe(self) -> str:
        """Returns the cell in words."""
        return (
            f"cell {self.cell} of the grid (around {self.lat:.3f}, {self.lon:.3f}) holds "
            f"{self.share:.1%} of the load"
        )


def find_limit(workers: int, objects: float) -> float:
    """Returns the share of the load that a cell should hold at most, by a sample of so many
    objects: for many workers a small one says nothing about so small a share."""
    return max(1 / (CELLS_PER_SHARE * workers), OBJECTS_A_CELL / max(objects, OBJECTS_A_CELL))


def refine(
    first: PlannerSample,
    workers: int,
    options: PartitionOptions,
    take: Callable[[Grid], PlannerSample],
) -> PlannerSample:
    """Returns the sample on the grid that is chosen for this number of workers; `first` is that
    on the grid to begin with, and `take` samples the same on another one. Its `refinement` says
    what was tried (JSON-able)."""
    limit = find_limit(workers, float(first.stats.objects.sum()))
    fullest, sample = FullestCell.of(first.stats, options.costs), first
    tried, held, stopped = [_describe_try(fullest, sample)], [(fullest, sample)], ""
    while fullest.share > limit:
        grid = _find_finer(sample.stats.grid, fullest, limit)
        if grid is None:
            stopped = f"a grid has at most {CELLS_MAX:,} cells and {AXIS_BITS} bits per axis"
            break
        growth = 1 << (grid.lon_bits + grid.lat_bits - _count_bits(sample.stats.grid))
        if float(sample.stats.q.sum()) * growth > POSTINGS_MAX:
            stopped = f"the sample would have more than {POSTINGS_MAX:,} postings"
            break
        options.progress(
            f"{fullest.describe()}, over {limit:.1%}: trying {grid.columns():,} x {grid.rows():,} "
            "cells"
        )
        sample = take(grid)
        fullest = FullestCell.of(sample.stats, options.costs)
        tried.append(_describe_try(fullest, sample))
        # What is too full now will not be chosen, so its sample need not be held.
        wanted = max(limit, WORTH * min(one["share"] for one in tried))
        held = [pair for pair in [*held, (fullest, sample)] if pair[0].share <= wanted]
    fullest, chosen = held[0]
    facts: dict[str, Any] = {"limit": limit, "share": fullest.share, "tried": tried}
    if fullest.share > limit:
        facts["stopped"] = stopped
    return replace(chosen, refinement=facts)


def _describe_try(fullest: FullestCell, sample: PlannerSample) -> dict[str, Any]:
    return {
        **sample.stats.grid.to_dict(),
        "share": fullest.share,
        "postings": int(sample.stats.q.sum()),
        "coarse": sample.coarse,
    }


def explain_imbalance(sample: PlannerSample, workers: int, costs: Costs) -> str:
    """Returns why no division of space can balance the sample: a cell that holds more than an even
    share of the load, and what to do about it; "" if none does."""
    fullest = FullestCell.of(sample.stats, costs)
    if fullest.share <= 1 / workers:
        return ""
    cause = f"{fullest.describe()}, more than the even share of {1 / workers:.1%}"
    if not sample.refinement:
        return (
            f"{cause}: a finer grid may divide it (`ps2stream plan --grid refine`; a running "
            "service takes it by `apply --regrid` and a restart)"
        )
    if "stopped" not in sample.refinement:
        return f"{cause}: a finer grid needs a larger sample than {sample.objects:,} objects"
    last = sample.refinement["tried"][-1]
    if Grid(last["lon_bits"], last["lat_bits"], last["max_cells"]) == sample.stats.grid:
        return f"{cause}: no finer grid was tried, as {sample.refinement['stopped']}"
    return (
        f"{cause}, and finer grids, to {1 << last['lon_bits']:,} x {1 << last['lat_bits']:,} "
        f"cells, do not divide it much further ({last['share']:.1%}): its posts are close "
        "together or at one place, and only terms divide them"
    )


def _find_finer(grid: Grid, fullest: FullestCell, limit: float) -> Grid | None:
    """Returns the next grid to try; None if a limit is reached. A line halves what is in a cell at
    best, so fewer bits than the share demands would not do."""
    bits = max(LEAST_BITS, math.ceil(math.log2(fullest.share / limit)))
    lon_bits, lat_bits, added = grid.lon_bits, grid.lat_bits, 0
    narrowing = math.cos(math.radians(min(abs(fullest.lat), 89.0)))
    while added < bits and 1 << (lon_bits + lat_bits + 1) <= CELLS_MAX:
        width, height = 360.0 / (1 << lon_bits) * narrowing, 180.0 / (1 << lat_bits)
        can_lon, can_lat = lon_bits < AXIS_BITS, lat_bits < AXIS_BITS
        if can_lon and (width > height or not can_lat):
            lon_bits += 1
        elif can_lat:
            lat_bits += 1
        else:
            break
        added += 1
    if not added:
        return None
    most = max(grid.max_cells, min(grid.max_cells << added, QUERY_CELLS_MAX))
    return Grid(lon_bits, lat_bits, most)


def _count_bits(grid: Grid) -> int:
    return grid.lon_bits + grid.lat_bits
