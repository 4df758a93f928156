"""What a worker does, counted by cell for the controller (algorithms.md 7.22).

A part is what one worker owns of a base-level cell, so counts by cell at each worker are
counts by part. The other levels of the grid do not move: each counts as one.

Of a busy period not every object is worth its counting: after the first EXACT of them one in
STRIDE stands for all, or all of one small batch in STRIDE. Which, is drawn for each batch, as
streams may repeat themselves. A part with n objects is then told to about
sqrt((STRIDE - 1) / n), where small batches are of many places.
"""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U32
from ps2stream.protocol.messages.loads import LoadReport, LoadRequest
from ps2stream.protocol.rows import Kind
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.grid import Grid
from ps2stream.workers.by_cell import ByCell, Counts
from ps2stream.workers.index import Census, Met

OBJECTS, CHECKS, INSERTS, DELETES = range(4)
EXACT = 1 << 16
STRIDE = 7
_SMALL = 1 << 11  # a batch of fewer objects costs more by its handling than by these
_TOGETHER = 1 << 14  # objects: fewer would cost more than they are worth


class LoadCounter:
    """Of the worker `index`. Counts from its last report on."""

    def __init__(self, index: int, grid: Grid) -> None:
        self._index = index
        self._grid = grid
        self._asked = self._told = (0, 0)  # epoch and number of the last request, answered
        self._waiting: list[tuple[F64, F64, I64]] = []  # batches that are counted together
        self._held = 0  # objects of these
        self._met = 0  # objects since the last report
        self._stride = 1  # each that waits stands for so many
        self._drawn = index
        self._turn, self._chosen_turn = 0, 0  # of so many small batches, which counts
        self._levels = np.zeros(1 << 32 - LEVEL_SHIFT, np.int64)  # checks on the other levels
        self._counts = ByCell(4)

    def objects(self, lon: F64, lat: F64, met: Met) -> None:
        """A batch was matched; degrees, float64[n]."""
        base, levels = met
        if self._stride > 1:
            if len(lon) >= _SMALL:
                some = slice(self._draw(), None, STRIDE)
                # Copies: views would keep the whole messages.
                lon, lat, base = lon[some].copy(), lat[some].copy(), base[some].copy()
            elif self._chosen():
                levels = levels * STRIDE
            else:
                return
        self._levels += levels
        self._waiting.append((lon, lat, base))
        self._held += len(lon)
        self._met += len(met.base)
        if self._held >= _TOGETHER:
            self._count()
            if self._met >= EXACT:
                self._stride = STRIDE

    def _chosen(self) -> bool:
        """Whether this small batch counts: one of STRIDE, whichever."""
        self._turn = (self._turn + 1) % STRIDE
        if not self._turn:
            self._chosen_turn = self._draw()
        return self._turn == self._chosen_turn

    def _draw(self) -> int:
        """One of STRIDE; a linear congruence is enough, and quick."""
        self._drawn = (self._drawn * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        return (self._drawn >> 16) % STRIDE

    def updates(self, kind: U8, tag_off: I64, tag_cell: U32) -> None:
        """Rows were inserted or deleted under these tags (ragged)."""
        size = np.diff(tag_off)
        insert = np.repeat((kind == Kind.INSERT).astype(np.int64), size)
        self._counts.add(_parts(tag_cell), INSERTS, insert, 1 - insert)

    def take(self) -> Counts:
        """What was counted, which is forgotten."""
        self._count()
        self._met, self._stride = 0, 1
        levels = np.flatnonzero(self._levels)
        coarse = (levels << LEVEL_SHIFT).astype(np.uint32)
        self._counts.add(coarse, OBJECTS, np.zeros(len(levels), np.int64), self._levels[levels])
        self._levels[:] = 0
        return self._counts.take()

    def asked(self, ask: LoadRequest) -> bool:
        """Whether that is no repeat, and none that comes late."""
        before, self._asked = self._asked, max(self._asked, (ask.epoch, ask.number))
        return self._asked > before

    def report(self, ask: LoadRequest, census: Census, route: int, moving: bool) -> LoadReport:
        """The answer; census: of the base level, as it is about now."""
        epoch, number = self._told
        self._told = (ask.epoch, ask.number)
        counts = self.take()
        stored = _parts(census.cell)
        cell = np.union1d(counts.cell, stored)
        by = np.zeros((len(cell), 4), np.int64)
        by[np.searchsorted(cell, counts.cell)] = counts.by
        held = np.zeros((len(cell), 2), np.int64)
        at = np.searchsorted(cell, stored)
        np.add.at(held, at, np.stack([census.queries, census.bytes], 1))
        return LoadReport(
            worker=self._index,
            number=ask.number,
            periods=ask.number - number if ask.epoch == epoch else 0,
            route=route,
            moving=int(moving),
            cell=cell,
            objects=by[:, OBJECTS],
            checks=by[:, CHECKS],
            inserts=by[:, INSERTS],
            deletes=by[:, DELETES],
            queries=held[:, 0],
            bytes=held[:, 1],
        )

    def _count(self) -> None:
        if self._waiting:
            lon, lat, checks = map(np.concatenate, zip(*self._waiting, strict=True))
            cell = self._grid.cells(lon, lat, 0)
            each = np.full(len(cell), self._stride)
            self._counts.add(cell, OBJECTS, each, checks * self._stride)
        self._waiting, self._held = [], 0


def _parts(tag_cell: U32) -> U32:
    """The cells that these count as."""
    level = tag_cell >> LEVEL_SHIFT << LEVEL_SHIFT
    return np.where(level, level, tag_cell)
