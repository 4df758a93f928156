"""Counts of what a worker does, by cell, for the controller (algorithms.md 7.22).

A part is what one worker owns of a base-level cell, so counts by cell at each worker are counts
by part. The other levels of the grid do not migrate: each counts as one cell.

In a busy period not every object is counted: after the first EXACT objects, one in STRIDE stands
for all, or all of one small batch in STRIDE. Which one is drawn for each batch, as streams may
repeat themselves. The count of a part with n objects then has a relative error of about
sqrt((STRIDE - 1) / n), where small batches hold objects of many places.
"""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U32
from ps2stream.protocol.messages.loads import LoadReport, LoadRequest
from ps2stream.protocol.rows import UpdateKind
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.grid import Grid
from ps2stream.workers.by_cell import CellCounter, CellCounts
from ps2stream.workers.index import MetPostings, StoredCensus

OBJECTS, CHECKS, INSERTS, DELETES = range(4)
EXACT = 1 << 16
STRIDE = 7
_SMALL = 1 << 11  # objects: a smaller batch costs more as a batch than by its objects
_TOGETHER = 1 << 14  # objects counted at once: fewer are not worth a call


class LoadCounter:
    """Counts the load of worker `index` from its last report on."""

    def __init__(self, index: int, grid: Grid) -> None:
        self._index = index
        self._grid = grid
        self._last_request = self._last_report = (0, 0)  # epoch and number
        self._batches: list[tuple[F64, F64, I64]] = []  # matched, and to be counted together
        self._batched = 0  # objects in these
        self._matched = 0  # objects since the last report
        self._stride = 1  # objects that each in `_batches` stands for
        self._random = index
        self._turn, self._counted_turn = 0, 0  # of STRIDE small batches, which counts
        self._levels = np.zeros(1 << 32 - LEVEL_SHIFT, np.int64)  # checks on the other levels
        self._counts = CellCounter(4)

    def objects(self, lon: F64, lat: F64, met: MetPostings) -> None:
        """Counts a batch that was matched; degrees, float64[n]."""
        base, levels = met
        if self._stride > 1:
            if len(lon) >= _SMALL:
                some = slice(self._draw_offset(), None, STRIDE)
                # Copies: views would keep the whole messages.
                lon, lat, base = lon[some].copy(), lat[some].copy(), base[some].copy()
            elif self._should_count_batch():
                levels = levels * STRIDE
            else:
                return
        self._levels += levels
        self._batches.append((lon, lat, base))
        self._batched += len(lon)
        self._matched += len(met.base)
        if self._batched >= _TOGETHER:
            self._count_batches()
            if self._matched >= EXACT:
                self._stride = STRIDE

    def _should_count_batch(self) -> bool:
        """Returns whether the next small batch counts: one in STRIDE does, whichever is drawn."""
        self._turn = (self._turn + 1) % STRIDE
        if not self._turn:
            self._counted_turn = self._draw_offset()
        return self._turn == self._counted_turn

    def _draw_offset(self) -> int:
        """Draws one of STRIDE; a linear congruence is good enough, and quick."""
        self._random = (self._random * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        return (self._random >> 16) % STRIDE

    def updates(self, kind: U8, tag_off: I64, tag_cell: U32) -> None:
        """Counts rows that were inserted or deleted under these tags (ragged)."""
        size = np.diff(tag_off)
        insert = np.repeat((kind == UpdateKind.INSERT).astype(np.int64), size)
        self._counts.add(_counted_cells(tag_cell), INSERTS, insert, 1 - insert)

    def take(self) -> CellCounts:
        """Returns the counts and begins anew."""
        self._count_batches()
        self._matched, self._stride = 0, 1
        levels = np.flatnonzero(self._levels)
        coarse = (levels << LEVEL_SHIFT).astype(np.uint32)
        self._counts.add(coarse, OBJECTS, np.zeros(len(levels), np.int64), self._levels[levels])
        self._levels[:] = 0
        return self._counts.take()

    def accept_request(self, request: LoadRequest) -> bool:
        """Notes a request; returns False for a repeat, or one that is late."""
        before = self._last_request
        self._last_request = max(before, (request.epoch, request.number))
        return self._last_request > before

    def report(
        self, request: LoadRequest, census: StoredCensus, route: int, moving: bool
    ) -> LoadReport:
        """Returns the answer to a request; census: of the base level, as it is about now."""
        epoch, number = self._last_report
        self._last_report = (request.epoch, request.number)
        counts = self.take()
        stored = _counted_cells(census.cell)
        cell = np.union1d(counts.cell, stored)
        by = np.zeros((len(cell), 4), np.int64)
        by[np.searchsorted(cell, counts.cell)] = counts.by
        sums = np.zeros((len(cell), 2), np.int64)
        at = np.searchsorted(cell, stored)
        np.add.at(sums, at, np.stack([census.queries, census.bytes], 1))
        return LoadReport(
            worker=self._index,
            number=request.number,
            periods=request.number - number if request.epoch == epoch else 0,
            route=route,
            moving=int(moving),
            cell=cell,
            objects=by[:, OBJECTS],
            checks=by[:, CHECKS],
            inserts=by[:, INSERTS],
            deletes=by[:, DELETES],
            queries=sums[:, 0],
            bytes=sums[:, 1],
        )

    def _count_batches(self) -> None:
        """Counts the batches that were collected."""
        if self._batches:
            lon, lat, checks = map(np.concatenate, zip(*self._batches, strict=True))
            cell = self._grid.cells(lon, lat, 0)
            each = np.full(len(cell), self._stride)
            self._counts.add(cell, OBJECTS, each, checks * self._stride)
        self._batches, self._batched = [], 0


def _counted_cells(tag_cell: U32) -> U32:
    """Returns the cells that tag cells count as."""
    level = tag_cell >> LEVEL_SHIFT << LEVEL_SHIFT
    return np.where(level, level, tag_cell)
