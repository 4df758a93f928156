"""The census of a radix GI2, from the counts that it keeps by tag cell."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import I64, U32
from ps2stream.space.space_kernels import CELL_MASK, LEVEL_SHIFT
from ps2stream.workers.index import StoredCensus


def take_census(cells: U32, counts: I64, level: int, bits: tuple[int, int]) -> StoredCensus:
    """Returns the counts by cell of `level`, or of a coarser one where they are of such.

    cells uint32[n]: tag cells, or NO_CELL; counts int64[n, 2]: live postings, and their bytes;
    bits: of the columns and rows of level 0.
    """
    used = np.flatnonzero(counts[:, 0])
    cell, by = raise_cells(cells[used].astype(np.int64), level, bits), counts[used]
    out, at = np.unique(cell, return_inverse=True)
    sums = np.zeros((len(out), 2), np.int64)
    np.add.at(sums, at, by)
    return StoredCensus(out.astype(np.uint32), sums[:, 0], sums[:, 1])


def raise_cells(tag: I64, level: int, bits: tuple[int, int]) -> I64:
    """Returns the cells of `level` that finer tag cells lie in, and coarser ones themselves."""
    own = tag >> LEVEL_SHIFT
    lon_left, lon_above = np.maximum(bits[0] - 2 * own, 0), max(bits[0] - 2 * level, 0)
    lat_left, lat_above = np.maximum(bits[1] - 2 * own, 0), max(bits[1] - 2 * level, 0)
    line = tag & CELL_MASK
    row = line >> lon_left >> np.maximum(lat_left - lat_above, 0)
    column = (line & ((1 << lon_left) - 1)) >> np.maximum(lon_left - lon_above, 0)
    above = level << LEVEL_SHIFT | row << lon_above | column
    return np.where(own >= level, tag, above)
