"""Refinement of the grid: no cell holds more than 1/(4m) of the load where space can be divided.

A cell with more than an even share of the load has one owner under every algorithm that divides by
space alone, and where its posts share a term, under all. So grids are sampled in turn whose lines
are closer where there is more load, until no cell has too much, or the next one helps no more. What
is known of a cell is its load, so lines are drawn as if that were even within; the next sample
tells. Queries may touch more cells in return, or they would leave for the coarser levels, which no
plan places (semantics of `max_cells`: space/grid.py).

Columns and rows are shared out by the root of the density of the load on their axis: a place that
is dense on both axes gets cells in proportion to its load, and what is around it is not starved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ps2stream.errors import InvalidArgument
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.sample import PlannerSample
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import F64, I64
from ps2stream.routing.costs import Costs
from ps2stream.space.grid import CELLS_MAX, Grid
from ps2stream.space.sphere import KM_PER_DEGREE

CELLS_PER_SHARE = 4
"""Cells that the load of one worker should be divided into at least."""
OBJECTS_A_CELL = 16
"""Objects of the sample that a cell may hold at any rate: with fewer, chance decides."""
AXIS_BITS = 14
LEAST_BITS = 3  # per axis, or lines could not be closer anywhere
MORE_BITS = 2  # per axis after each fruitless try, as nobody knows how small the place is
SPAN_BITS = 6
"""The meridians (parallels) of a grid are 2^6 + 1 at most."""
EVEN_SHARE = 1 / 8
"""The share of columns and rows that are spread evenly over the world, for what no sample has."""
LUMPS = 4.0
"""How much fuller the fullest part of a cell may be than its mean, as long as nothing is known."""
COARSER = 0.1
"""The share of the load that may be in cells of more than twice the size of those before."""
TRIES = 6  # each is a sample of its own
FRUITLESS = 3
"""Tries in a row after which no further one is made if they brought less than WORTH."""
QUERY_CELLS_MAX = 1024
"""The most cells of the base level that a query may touch in a grid that was refined."""
COARSE_SHARE = 0.01
"""The share of the queries that may leave for coarser levels for it, or as many as before."""
POSTINGS_MAX = 20_000_000
"""The most postings that the sample may have on a finer grid, as estimated before it is tried."""
WORTH = 1.1
"""A coarser grid is taken if its fullest cell holds at most this many times what that of the best
one does."""


@dataclass(frozen=True, slots=True)
class FullestCell:
    """The cell with the most load: its number on the base level, its share of the load of all
    cells, its middle in degrees, and its sides in km."""

    cell: int
    share: float
    lon: float
    lat: float
    wide_km: float
    high_km: float

    @classmethod
    def of(cls, stats: Statistics, costs: Costs) -> FullestCell:
        """Finds it; without any load, the share is 0."""
        load = cell_load(stats, costs)
        at, total = int(np.argmax(load)), float(load.sum())
        west, south, width, height = stats.grid.bounds(int(stats.cell[at]))
        share = float(load[at]) / total if total else 0.0
        lon, lat = west + width / 2, south + height / 2
        wide = width * math.cos(math.radians(lat)) * KM_PER_DEGREE
        return cls(int(stats.cell[at]), share, lon, lat, wide, height * KM_PER_DEGREE)

    def describe(self) -> str:
        """Returns the cell in words."""
        return (
            f"cell {self.cell} of the grid (around {self.lat:.3f}, {self.lon:.3f}, "
            f"{self.wide_km:.3g} x {self.high_km:.3g} km) holds {self.share:.1%} of the load"
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
    most_bits, refused = CELLS_MAX.bit_length() - 1, 0
    while fullest.share > limit:
        fruitless = _count_fruitless([one["share"] for one in tried])
        if len(tried) + refused > TRIES or fruitless == FRUITLESS:
            stopped = stopped or "closer lines divide it no further"
            break
        bits = range(LEAST_BITS + MORE_BITS * fruitless, most_bits + 1)
        grid, growth = _draw_grid(sample.stats, first.stats.grid, options.costs, limit, bits)
        if grid is None:
            stopped = stopped or f"a grid has at most {CELLS_MAX:,} cells"
            break
        if float(sample.stats.q.sum()) * growth > POSTINGS_MAX:
            stopped = f"the sample would have more than {POSTINGS_MAX:,} postings"
            break
        options.progress(
            f"{fullest.describe()}, over {limit:.1%}: trying {grid.columns():,} x {grid.rows():,} "
            "cells whose lines are closer there"
        )
        drawn = take(grid)
        if drawn.coarse > max(first.coarse, COARSE_SHARE * drawn.live):
            stopped = f"closer lines would have queries touch more than {QUERY_CELLS_MAX:,} cells"
            refused += 1
            most_bits = grid.lon_bits + grid.lat_bits - 1  # the same lines could still be elsewhere
            continue
        sample = drawn
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


def _count_fruitless(shares: list[float]) -> int:
    """Returns how many of the last tries brought too little."""
    best = [min(shares[: n + 1]) for n in range(len(shares))]
    useful = [n for n in range(1, len(shares)) if shares[n] * WORTH <= best[n - 1]]
    return len(shares) - 1 - (useful[-1] if useful else 0)


def _describe_try(fullest: FullestCell, sample: PlannerSample) -> dict[str, Any]:
    return {
        **sample.stats.grid.to_dict(),
        "share": fullest.share,
        "km": [fullest.wide_km, fullest.high_km],
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
    if len(sample.refinement["tried"]) == 1:
        return f"{cause}: no finer grid was tried, as {sample.refinement['stopped']}"
    wide, high = last["km"]
    return (
        f"{cause}, and cells of {wide:.3g} x {high:.3g} km there do not divide it much further "
        f"({last['share']:.1%}): its posts are close together or at one place, and only terms "
        "divide them"
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """The columns (rows) of a grid: the degrees between which they are, the width of each, and the
    share of the new lines that it is to get."""

    lines: F64
    width: F64
    share: F64

    @classmethod
    def of(cls, lines: F64, at: I64, load: F64) -> _Axis:
        """at: the columns or rows of the cells with these loads."""
        width = np.diff(lines)
        weight = np.sqrt(np.bincount(at, load, len(width)) * width)
        even = EVEN_SHARE * width / width.sum()
        return cls(lines, width, (1 - EVEN_SHARE) * weight / weight.sum() + even)

    def draw_lines(self, bits: int) -> tuple[float, ...]:
        """Returns 2^bits + 1 degrees with equal shares between them."""
        wanted = np.arange(1, 1 << bits) / (1 << bits)
        inner = np.interp(wanted, np.r_[0.0, np.cumsum(self.share)], self.lines)
        return (float(self.lines[0]), *np.round(inner, 7).tolist(), float(self.lines[-1]))


def _list_bits(slant: float, bits: range) -> list[tuple[int, int]]:
    """Returns the bits that a grid may have on its axes, coarse ones first, such that cells are
    about as high as wide, and of equally coarse ones those first which come closest. slant: the
    binary logarithm of width over height if both axes had as many; bits: the least of an axis, and
    behind the most of both."""
    return sorted(
        (
            (lon_bits, lat_bits)
            for lon_bits in range(bits.start, AXIS_BITS + 1)
            for lat_bits in range(bits.start, AXIS_BITS + 1)
            if lon_bits + lat_bits < bits.stop and abs(slant - lon_bits + lat_bits) <= 1
        ),
        key=lambda bits: (sum(bits), abs(slant - bits[0] + bits[1])),
    )


def _draw_grid(
    stats: Statistics, before: Grid, costs: Costs, limit: float, bits: range
) -> tuple[Grid | None, float]:
    """Returns the coarsest grid, with lines by the load of these cells, of which no cell should
    hold more than `limit`, else the finest, and by how much the postings of the sample may grow on
    it; None if there is none. before: the grid that suits the queries; where the load is, cells get
    no coarser. bits: as for `_list_bits`."""
    grid, load = stats.grid, cell_load(stats, costs)
    load = load / load.sum()
    row, column = np.divmod(stats.cell, grid.columns())
    lon = _Axis.of(grid.find_meridians(np.arange(grid.columns() + 1)), column, load)
    lat = _Axis.of(grid.find_parallels(np.arange(grid.rows() + 1)), row, load)
    middle = (
        (lon.lines[column] + lon.lines[column + 1]) / 2, (lat.lines[row] + lat.lines[row + 1]) / 2
    )  # fmt: skip
    former = lon.width[column] * lat.width[row] * (before.size / (360.0 * 180.0))
    wide = lon.width[column] / lon.share[column] * np.cos(np.radians(middle[1]))
    high = lat.width[row] / lat.share[row]
    slant = float((load * np.log2(np.maximum(wide, 1e-3 * high) / high)).sum())
    choices = _list_bits(slant, bits)
    for lon_bits, lat_bits in choices:
        is_last = (lon_bits, lat_bits) == choices[-1]
        wide, high = lon.share[column] * (1 << lon_bits), lat.share[row] * (1 << lat_bits)
        parts, whole = wide * high, np.maximum(wide, 1.0) * np.maximum(high, 1.0)
        fullest = load * np.minimum(LUMPS, whole) / whole
        coarser = load[2 * parts < former].sum()
        if not is_last and (coarser > COARSER or fullest.max() > limit):
            continue
        try:
            drawn = Grid(
                lon_bits, lat_bits, before.max_cells,
                lon.draw_lines(min(lon_bits, SPAN_BITS)), lat.draw_lines(min(lat_bits, SPAN_BITS)),
            )  # fmt: skip
        except InvalidArgument:  # lines too close to be told apart
            return None, 0.0
        if not is_last and np.bincount(drawn.cells(*middle, 0), fullest).max() > limit:
            continue
        most = before.max_cells * float((load * parts / former).sum())
        most = max(before.max_cells, min(int(most), QUERY_CELLS_MAX))
        q = np.bincount(stats.unit_cell(), stats.q, stats.cells)
        growth = float((q * np.maximum(parts, 1.0)).sum()) / max(float(q.sum()), 1.0)
        return replace(drawn, max_cells=most), growth
    return None, 0.0
