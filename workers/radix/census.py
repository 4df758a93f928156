"""The census of a radix GI2, from the counts that it keeps by tag cell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps2stream.protocol.frame import I64, U32
from ps2stream.space.space_kernels import CELL_MASK, LEVEL_SHIFT
from ps2stream.workers.index import StoredCensus

_LEAST = 1 << 13
"""Rows of the table that a step looks at if there are so many; a tenth of a ms."""


def take_census(
    cells: U32, counts: I64, level: int, bits: tuple[int, int], steps: int = 1
) -> Iterator[StoredCensus | None]:
    """Yields, in at most `steps` steps, the counts by cell of `level`, or of a coarser one where
    they are of such, and None before. What changes between the steps is counted as it was or as it
    is.

    cells uint32[n]: tag cells, or NO_CELL, each once and fewer than half of n; counts int64[n, 2]:
    live postings, and their bytes; bits: of the columns and rows of level 0.
    """
    rows, n = len(cells), 0
    step = max(-(-rows // steps), _LEAST)
    cell: U32 = np.empty(rows // 2 + 1, np.uint32)
    by: I64 = np.empty((rows // 2 + 1, 2), np.int64)
    for first in range(0, rows, step):
        used = first + np.flatnonzero(counts[first : first + step, 0])
        part = slice(n, n + len(used))
        cell[part], by[part] = cells[used], counts[used]
        n += len(used)
        if first + step < rows:
            yield None
    if level == 0:
        yield StoredCensus(cell[:n], by[:n, 0], by[:n, 1])
        return
    out, at = np.unique(raise_cells(cell[:n].astype(np.int64), level, bits), return_inverse=True)
    sums = np.zeros((len(out), 2), np.int64)
    np.add.at(sums, at, by[:n])
    yield StoredCensus(out.astype(np.uint32), sums[:, 0], sums[:, 1])


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
