"""The worker machine: applies updates in LSN order, matches objects as of their LSN.

Pure (ARCHITECTURE.md): frames in, `Send`s out. Updates that come early wait for the gap
before them, objects stamped ahead of what is applied wait for it. Lists are purged once
every dispatcher's watermark has passed the delete (semantics.md, as-of matching).
"""

from __future__ import annotations

import heapq
import itertools

import numpy as np

from ps2stream.batch import Frame, take_ragged
from ps2stream.grid import Grid
from ps2stream.messages import Address, MatchBatch, RoutedObjects, Send, Watermark, WorkerUpdates
from ps2stream.rows import Kind, QueryRows
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import Index, IndexStats

SWEEP = 64  # lists looked at with every update
FORCED_SWEEP = 1 << 15  # ... while more than FORCED of the live queries are tombstones
FORCED = 0.1


class WorkerMachine:
    """Worker `index` of a topology with that many dispatchers and mergers.

    `store` is the index that holds its queries, a GI2 over `grid` by default.
    """

    def __init__(
        self, index: int, dispatchers: int, mergers: int, grid: Grid, store: Index | None = None
    ) -> None:
        self.index = index
        self.applied = 0  # LSN up to which updates are in the index
        self._mergers = mergers
        self._store: Index = GI2(grid) if store is None else store
        self._watermarks = [0] * dispatchers
        self._early: list[tuple[int, int, WorkerUpdates]] = []
        self._held: list[tuple[int, int, RoutedObjects]] = []
        self._ticket = itertools.count()  # heap order among equal LSNs: arrival

    @property
    def watermark(self) -> int:
        """No object below this LSN will come: the minimum over the dispatchers."""
        return min(self._watermarks)

    @property
    def held(self) -> int:
        """Object batches that wait for updates."""
        return len(self._held)

    def stats(self) -> IndexStats:
        """Sizes of the index."""
        return self._store.stats()

    def on(self, frame: Frame) -> list[Send]:
        """Take one frame. Raises TypeError for a kind that is not for workers."""
        if isinstance(frame, RoutedObjects):
            self._pass(frame.dispatcher, frame.watermark)
            if frame.lsn <= self.applied:
                return self._match(frame)
            heapq.heappush(self._held, (frame.lsn, next(self._ticket), frame))
            return []
        if isinstance(frame, WorkerUpdates):
            self._pass(frame.dispatcher, frame.watermark)
            heapq.heappush(self._early, (frame.lsn_from, next(self._ticket), frame))
            return self._advance()
        if isinstance(frame, Watermark):
            self._pass(frame.dispatcher, frame.watermark)
            return []
        raise TypeError(f"a worker takes no {type(frame).__name__}")

    def _pass(self, dispatcher: int, watermark: int) -> None:
        """Note a dispatcher's watermark; it never falls, though messages may overtake."""
        before = self.watermark
        self._watermarks[dispatcher] = max(self._watermarks[dispatcher], watermark)
        if self.watermark > before:
            self._store.purge(self.watermark)

    def _advance(self) -> list[Send]:
        """Apply what now follows on, then match what waited for it."""
        while self._early and self._early[0][0] <= self.applied + 1:
            updates = heapq.heappop(self._early)[2]
            if updates.lsn_to > self.applied:
                self._apply(updates)
        out: list[Send] = []
        while self._held and self._held[0][0] <= self.applied:
            out += self._match(heapq.heappop(self._held)[2])
        return out

    def _apply(self, updates: WorkerUpdates) -> None:
        rows = QueryRows.decode(updates.rows.tobytes())
        fresh = rows.lsn > self.applied
        tags = updates.tag_off, updates.tag_cell, updates.tag_term
        if not fresh.all():  # the batch repeats some of the one before
            keep = np.flatnonzero(fresh)
            off, cell = take_ragged(updates.tag_off, updates.tag_cell, keep)
            tags = off, cell, take_ragged(updates.tag_off, updates.tag_term, keep)[1]
            rows = rows.take(keep)
        gone = rows.kind == Kind.DELETE
        if not gone.all():
            self._store.insert(rows, *tags)
        if gone.any():
            # Inserts first is as good as LSN order: a handle is inserted and deleted once.
            self._store.delete(rows.handle[gone], rows.lsn[gone])
            self._store.purge(self.watermark)
        self.applied = updates.lsn_to
        stats = self._store.stats()
        forced = stats.tombstones > FORCED * stats.live
        self._store.sweep(FORCED_SWEEP if forced else SWEEP)

    def _match(self, objects: RoutedObjects) -> list[Send]:
        """One MatchBatch for every merger, also where it has no match."""
        found = self._store.match(
            objects.lsn, objects.lon, objects.lat, objects.term_off, objects.term
        )
        row = objects.row[found.row]
        of = found.session % self._mergers
        out = []
        for merger in range(self._mergers):
            mine = slice(None) if self._mergers == 1 else of == merger
            batch = MatchBatch(
                worker=self.index,
                dispatcher=objects.dispatcher,
                batch=objects.batch,
                row=row[mine],
                handle=found.handle[mine],
                session=found.session[mine],
            )
            out.append(Send(Address("merger", merger), batch))
        return out
