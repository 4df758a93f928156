"""The grid of the whole world, its levels, and the cells that queries touch.

gridt and GI2 share this grid (algorithms.md 1.6, 1.7). Level l has 2^(lon_bits - 2 l) columns
and 2^(lat_bits - 2 l) rows, never less than one of each: four by four cells of a level
make one cell of the next. A query lives on one level, the finest on which it touches at most
`max_cells` cells, so routing an object looks at one cell per level (algorithms.md 7.7).
"""

from __future__ import annotations

import dataclasses
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
_CELLS_PER_SIDE = 1.5  # a cell's side over the median query's


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """The sizes of a grid over the whole world.

    A cell is half-open, so that each point lies in exactly one; the last row is closed. Longitude
    180 counts as -180, and at a pole every longitude counts as -180. Raises InvalidArgument."""

    lon_bits: int = 9
    lat_bits: int = 8
    max_cells: int = 64

    def __post_init__(self) -> None:
        problems = [
            Violation(f"grid.{name}", f"{bits} is not in 0..{_BITS_MAX}")
            for name, bits in (("lon_bits", self.lon_bits), ("lat_bits", self.lat_bits))
            if not 0 <= bits <= _BITS_MAX
        ]
        if self.max_cells < 1:
            problems.append(Violation("grid.max_cells", f"{self.max_cells} is below 1"))
        if problems:
            raise InvalidArgument(problems)

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
        kernels.find_cells(sealed(lon), sealed(lat), self.lon_bits, self.lat_bits, level, out)
        return out

    def cover(self, box_off: I64, box: F64) -> tuple[I64, U32]:
        """Returns the tag cells that each query touches on its one level, ascending, each once,
        as a ragged column (int64[n + 1], uint32[]). Boxes are as in QueryRows and closed: a box
        that ends on a border touches the next cell too."""
        n = len(box_off) - 1
        box_off, box = sealed(box_off), sealed(box)
        level = np.empty(n, np.uint8)
        off = np.empty(n + 1, np.int64)
        kernels.cover_sizes(box_off, box, self.lon_bits, self.lat_bits, self.max_cells, level, off)
        out = np.empty(off[-1], np.uint32)
        kernels.cover_cells(box_off, box, self.lon_bits, self.lat_bits, level, off, out)
        return off, out

    def bounds(self, tag_cell: int) -> tuple[float, float, float, float]:
        """Returns (lon0, lat0, width, height) of a cell in degrees."""
        lon, lat, width, height = kernels.cell_bounds(tag_cell, self.lon_bits, self.lat_bits)
        return float(lon), float(lat), float(width), float(height)

    def to_dict(self) -> dict[str, int]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Reads what `to_dict` returns. Raises InvalidArgument for missing or unknown fields."""
        names = [f.name for f in dataclasses.fields(cls)]
        problems = [
            Violation(f"grid.{name}", "is not an integer")
            for name in names
            if type(data.get(name)) is not int
        ]
        problems += [Violation(f"grid.{name}", "is unknown") for name in data if name not in names]
        if problems:
            raise InvalidArgument(problems)
        return cls(**data)

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
        return cls(*bits)


def cells_of(grid: Grid) -> str:
    """Describes the grid in words, for errors."""
    return f"{1 << grid.lon_bits} x {1 << grid.lat_bits} cells (max_cells {grid.max_cells})"
