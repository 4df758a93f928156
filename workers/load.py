"""What a worker does, counted by cell for the controller (algorithms.md 7.22).

A part is what one worker owns of a base-level cell, so counts by cell at each worker are
counts by part. The other levels of the grid do not move: each counts as one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.batch import F64, I64, U8, U32
from ps2stream.grid import Grid
from ps2stream.load_messages import LoadReport, LoadRequest
from ps2stream.rows import Kind
from ps2stream.unit_kernels import LEVEL_SHIFT
from ps2stream.workers.index import Census, Met
from ps2stream.workers.load_kernels import NO_CELL, add

OBJECTS, CHECKS, INSERTS, DELETES = range(4)
_FIRST = 1 << 10
_TOGETHER = 1 << 14  # objects: fewer would cost more than they are worth


class Counts(NamedTuple):
    """cell uint32[k] ascending, by int64[k, 4]: columns as above."""

    cell: U32
    by: I64


class LoadCounter:
    """Of the worker `index`. Counts from its last report on."""

    def __init__(self, index: int, grid: Grid) -> None:
        self._index = index
        self._grid = grid
        self._told = (0, 0)  # epoch and number of the request that was answered last
        self._waiting: list[tuple[F64, F64, I64]] = []  # batches that are counted together
        self._held = 0  # objects of these
        self._levels = np.zeros(1 << 32 - LEVEL_SHIFT, np.int64)  # checks on the other levels
        self._clear(_FIRST)

    def objects(self, lon: F64, lat: F64, met: Met) -> None:
        """A batch was matched; degrees, float64[n]."""
        self._waiting.append((lon, lat, met.base))
        self._levels += met.levels
        self._held += len(lon)
        if self._held >= _TOGETHER:
            self._count()

    def updates(self, kind: U8, tag_off: I64, tag_cell: U32) -> None:
        """Rows were inserted or deleted under these tags (ragged)."""
        size = np.diff(tag_off)
        insert = np.repeat((kind == Kind.INSERT).astype(np.int64), size)
        self._add(_parts(tag_cell), INSERTS, insert, 1 - insert)

    def take(self) -> Counts:
        """What was counted, which is forgotten."""
        self._count()
        levels = np.flatnonzero(self._levels)
        coarse = (levels << LEVEL_SHIFT).astype(np.uint32)
        self._add(coarse, OBJECTS, np.zeros(len(levels), np.int64), self._levels[levels])
        self._levels[:] = 0
        held = np.flatnonzero(self._cells != NO_CELL)
        order = held[np.argsort(self._cells[held])]
        counts = Counts(self._cells[order], self._by[order])
        self._clear(len(self._cells))
        return counts

    def report(
        self, ask: LoadRequest, census: Census, route: int, moving: bool
    ) -> LoadReport | None:
        """The answer, unless it is a repeat; census: of the base level, as it is now."""
        epoch, number = self._told
        if (ask.epoch, ask.number) <= self._told:
            return None
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
            self._add(cell, OBJECTS, np.ones(len(cell), np.int64), checks)
        self._waiting, self._held = [], 0

    def _add(self, cell: U32, column: int, one: I64, other: I64) -> None:
        if 2 * (self._used + len(cell)) >= len(self._cells):
            cells, by = self._cells, self._by
            held = np.flatnonzero(cells != NO_CELL)
            self._clear(1 << (4 * (len(held) + len(cell))).bit_length())
            for at in (OBJECTS, INSERTS):
                self._used += add(
                    self._cells, self._by, cells[held], at, by[held, at], by[held, at + 1]
                )
        self._used += add(self._cells, self._by, cell, column, one, other)

    def _clear(self, size: int) -> None:
        self._cells = np.full(size, NO_CELL, np.uint32)
        self._by = np.zeros((size, 4), np.int64)
        self._used = 0


def _parts(tag_cell: U32) -> U32:
    """The cells that these count as."""
    level = tag_cell >> LEVEL_SHIFT << LEVEL_SHIFT
    return np.where(level, level, tag_cell)
