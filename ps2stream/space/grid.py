"""The grid of the whole world, its levels, and the cells that queries touch.

gridt and GI2 share this grid (algorithms.md 1.6, 1.7). Level l has 2^(lon_bits - 2 l) columns
and 2^(lat_bits - 2 l) rows, never less than one of each: four by four cells of a level
make one cell of the next. A query lives on one level, the finest on which it touches at most
`max_cells` cells, so routing an object looks at one cell per level (algorithms.md 7.7).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ps2stream.errors import InvalidArgument, Violation
from ps2stream.protocol.frame import F64, I64, U32, sealed
from ps2stream.space import space_kernels as kernels

CELLS_MAX = 1 << 24
"""The most cells of a grid that a plan may bring to a running service: a map of them takes 64 MiB
in each actor."""
_BITS_MAX = 14  # per axis: 28 bits for a cell, eight levels
_FINEST = (11, 10)  # 20 km: smaller cells cost memory and gain nothing (speed.md 4)
_COARSEST = (5, 4)
_SPAN_MIN = 1e-6  # degrees between two meridians or parallels: a tenth of a metre
_CELLS_PER_SIDE = 1.5  # a cell's side over the median query's


WORLD_MERIDIANS = (-180.0, 180.0)
WORLD_PARALLELS = (-90.0, 90.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """The sizes of a grid over the whole world, and where its lines are.

    meridians and parallels, degrees, ascending, from side to side of the world: between two of them
    columns (rows) are equally wide, as many as between any two; their number is 2^k + 1, so that
    there is one column at least. By default all cells are equal. A cell is half-open, so that each
    point lies in exactly one; the last row is closed. Longitude 180 counts as -180, and at a pole
    every longitude counts as -180. Raises InvalidArgument."""

    lon_bits: int = 9
    lat_bits: int = 8
    max_cells: int = 64
    meridians: tuple[float, ...] = WORLD_MERIDIANS
    parallels: tuple[float, ...] = WORLD_PARALLELS
    lines: F64 = dataclasses.field(init=False, repr=False, compare=False)
    """The grid as kernels take it, float64[]: the bits of columns and rows, the spans between the
    meridians and the parallels, and these."""

    def __post_init__(self) -> None:
        problems = [
            Violation(f"grid.{name}", f"{bits} is not in 0..{_BITS_MAX}")
            for name, bits in (("lon_bits", self.lon_bits), ("lat_bits", self.lat_bits))
            if not 0 <= bits <= _BITS_MAX
        ]
        if self.max_cells < 1:
            problems.append(Violation("grid.max_cells", f"{self.max_cells} is below 1"))
        if not problems:
            problems = [
                Violation(f"grid.{name}", problem)
                for name, lines, sides, bits in (
                    ("meridians", self.meridians, WORLD_MERIDIANS, self.lon_bits),
                    ("parallels", self.parallels, WORLD_PARALLELS, self.lat_bits),
                )
                if (problem := _find_problem(lines, sides, bits))
            ]
        if problems:
            raise InvalidArgument(problems)
        numbers = [self.lon_bits, self.lat_bits, len(self.meridians) - 1, len(self.parallels) - 1]
        lines = np.array([*numbers, *self.meridians, *self.parallels], np.float64)
        object.__setattr__(self, "lines", sealed(lines))

    def __reduce__(self) -> tuple[Any, ...]:  # or the lines would come back as another type
        return type(self), tuple(
            getattr(self, f.name) for f in dataclasses.fields(self) if f.init
        )  # fmt: skip

    @property
    def is_even(self) -> bool:
        """Whether all cells of a level are equal, in degrees, and their lines exact."""
        return self.meridians == WORLD_MERIDIANS and self.parallels == WORLD_PARALLELS

    @property
    def bits(self) -> tuple[int, int]:
        """Those of the columns and of the rows of the base level."""
        return self.lon_bits, self.lat_bits

    @property
    def levels(self) -> int:
        """The number of levels, at most 8; the last level is a single cell."""
        return (max(self.lon_bits, self.lat_bits) + 1) // 2 + 1

    @property
    def size(self) -> int:
        """The number of cells of the base level."""
        return 1 << (self.lon_bits + self.lat_bits)

    def columns(self, level: int = 0) -> int:
        """Returns the number of columns of a level."""
        return 1 << max(self.lon_bits - 2 * level, 0)

    def rows(self, level: int = 0) -> int:
        """Returns the number of rows of a level."""
        return 1 << max(self.lat_bits - 2 * level, 0)

    def cells(self, lon: F64, lat: F64, level: int) -> U32:
        """Returns the tag cells uint32[n] (level << 28 | row * columns + column) of valid points,
        float64[n] degrees."""
        out = np.empty(len(lon), np.uint32)
        kernels.find_cells(sealed(lon), sealed(lat), self.lines, level, out)
        return out

    def cover(self, box_off: I64, box: F64) -> tuple[I64, U32]:
        """Returns the tag cells that each query touches on its one level, ascending, each once,
        as a ragged column (int64[n + 1], uint32[]). Boxes are as in QueryRows and closed: a box
        that ends on a border touches the next cell too."""
        n = len(box_off) - 1
        box_off, box = sealed(box_off), sealed(box)
        level = np.empty(n, np.uint8)
        off = np.empty(n + 1, np.int64)
        kernels.cover_sizes(box_off, box, self.lines, self.max_cells, level, off)
        out = np.empty(off[-1], np.uint32)
        kernels.cover_cells(box_off, box, self.lines, level, off, out)
        return off, out

    def find_meridians(self, column: I64) -> F64:
        """Returns the longitudes where columns of the base level begin, of 0..columns, float64[n]
        degrees; that of `columns()` is where the last one ends."""
        return _place_lines(column, self.meridians, self.columns())

    def find_parallels(self, row: I64) -> F64:
        """Returns the latitudes where rows of the base level begin, like `find_meridians`."""
        return _place_lines(row, self.parallels, self.rows())

    def bounds(self, tag_cell: int) -> tuple[float, float, float, float]:
        """Returns (lon0, lat0, width, height) of a cell in degrees. A point that rounds up to a
        border lies in the upper cell, so clamp offsets to 0..width and 0..height."""
        level, line = tag_cell >> kernels.LEVEL_SHIFT, tag_cell & kernels.CELL_MASK
        columns, rows = self.columns(level), self.rows(level)
        sides = np.array([0, 1])
        west, east = self.find_meridians((line % columns + sides) * (self.columns() // columns))
        south, north = self.find_parallels((line // columns + sides) * (self.rows() // rows))
        return float(west), float(south), float(east - west), float(north - south)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, JSON-able; the lines only where cells are not equal."""
        found: dict[str, Any] = {
            "lon_bits": self.lon_bits, "lat_bits": self.lat_bits, "max_cells": self.max_cells
        }  # fmt: skip
        if self.meridians != WORLD_MERIDIANS:
            found["meridians"] = list(self.meridians)
        if self.parallels != WORLD_PARALLELS:
            found["parallels"] = list(self.parallels)
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Reads what `to_dict` returns. Raises InvalidArgument for missing or unknown fields."""
        sizes, lines = ("lon_bits", "lat_bits", "max_cells"), ("meridians", "parallels")
        problems = [
            Violation(f"grid.{name}", "is not an integer")
            for name in sizes
            if type(data.get(name)) is not int
        ]
        problems += [
            Violation(f"grid.{name}", "is not a list of numbers")
            for name in lines
            if name in data
            and not (
                isinstance(data[name], list) and all(type(v) in (int, float) for v in data[name])
            )
        ]
        problems += [
            Violation(f"grid.{name}", "is unknown") for name in data if name not in (*sizes, *lines)
        ]
        if problems:
            raise InvalidArgument(problems)
        given: dict[str, Any] = {n: tuple(map(float, data[n])) for n in lines if n in data}
        return cls(**{name: data[name] for name in sizes}, **given)

    @classmethod
    def for_queries(cls, median_width_deg: float, median_height_deg: float) -> Self:
        """Returns the grid whose cells are nearest to 1.5 times the median query box, in degrees:
        25-50 km for the paper's Q1 and Q2 (speed.md 4). It is the default grid
        if nothing is known (a median that is not a positive number)."""
        sides = (median_width_deg, median_height_deg)
        if not all(math.isfinite(s) and s > 0 for s in sides):
            return cls()
        bits = [
            min(max(round(math.log2(span / (_CELLS_PER_SIDE * side))), low), high)
            for span, side, low, high in zip((360.0, 180.0), sides, _COARSEST, _FINEST, strict=True)
        ]
        return cls(bits[0], bits[1])


def cells_of(grid: Grid) -> str:
    """Describes the grid in words, for errors."""
    cells = f"{1 << grid.lon_bits} x {1 << grid.lat_bits} cells"
    return f"{cells}{'' if grid.is_even else ' of unequal sizes'} (max_cells {grid.max_cells})"


def _find_problem(lines: tuple[float, ...], sides: tuple[float, ...], bits: int) -> str:
    """Returns what is wrong with the meridians or parallels of a grid; "" if nothing is."""
    spans = len(lines) - 1
    if spans < 1 or spans & (spans - 1) or spans > 1 << bits:
        return f"{len(lines)} are not 2^k + 1, with k in 0..{bits}"
    if (lines[0], lines[-1]) != sides:
        return (
            f"go from {lines[0]:g} to {lines[-1]:g} degrees, not from {sides[0]:g} to {sides[1]:g}"
        )
    if not all(b - a >= _SPAN_MIN for a, b in itertools.pairwise(lines)):
        return f"are not ascending by at least {_SPAN_MIN:g} degrees"
    return ""


def _place_lines(line: I64, borders: tuple[float, ...], lines: int) -> F64:
    """Returns where these of 0..lines lines are, between borders with as many lines each."""
    at, each = np.array(borders), lines // (len(borders) - 1)
    span = np.minimum(line // each, len(borders) - 2)
    found: F64 = at[span] + (line - span * each) * (at[span + 1] - at[span]) / each
    return found
