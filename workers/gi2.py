"""GI2, the worker's index of the paper (PS2Stream section IV-D; algorithms.md 1.7), packed.

The memory layout is described in `layout`, the matching in `kernels`. This module owns the
arrays and grows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, sealed
from ps2stream.protocol.rows import QueryRows
from ps2stream.space.grid import Grid
from ps2stream.space.polygons import PolygonCache
from ps2stream.workers import kernels as km
from ps2stream.workers import layout as kl
from ps2stream.workers import posting_kernels as kp
from ps2stream.workers import purge_kernels as kd
from ps2stream.workers import scan_kernels as ks
from ps2stream.workers.arrays import GROWTH, cache_lines, grow_copy, split_range
from ps2stream.workers.by_cell import CellCounter
from ps2stream.workers.index import IndexStats, MatchColumns, MetPostings, Parts, StoredCensus
from ps2stream.workers.shapes import keep_exact_matches
from ps2stream.workers.waiting import WaitingDeletes

_FIRST = 1 << 10  # entries of new arrays
_CHUNK = 1 << 16  # rows that an insert call handles between checks of capacity
_SLICE = 1 << 14  # buckets: fewer are counted at once
_BITS = 64
_FULL, _EMPTY = 0.55, 0.4  # how full a table may be, and is once it grew: misses cost probes
_ARRAYS = ("table", "places", "runs", "run_free", "pool", "pool_free", "slots", "general", "left",
           "dead", "level_postings", "state")  # fmt: skip


class GI2:
    """Implements `Index` over the cells of `grid`, empty or restored from `parts`. All
    capacities grow as needed."""

    def __init__(self, grid: Grid, parts: Parts | None = None) -> None:
        self._lon_bits = grid.lon_bits
        self._lat_bits = grid.lat_bits
        self._table: U64 = cache_lines(_FIRST // kl.BUCKET).view(np.uint64)
        self._places: U32 = np.zeros(_FIRST, np.uint32)
        self._runs: U32 = np.zeros(_FIRST * 8, np.uint32)
        self._run_free = np.zeros(32, np.int64)
        self._pool: U64 = np.zeros(_FIRST, np.uint64)
        self._pool_free = np.zeros(48, np.int64)
        self._slots: F64 = cache_lines(_FIRST)
        self._general: U8 = np.zeros(_FIRST, np.uint8)
        self._left: U32 = np.zeros(_FIRST, np.uint32)
        self._dead: U64 = np.zeros(_FIRST // _BITS, np.uint64)
        self._level_postings = np.zeros(kl.LEVELS, np.int64)
        self._state: I64 = np.zeros(kl.STATE, np.int64)
        self._state[kl.RUN_TOP] = 1  # offset 0 means none
        self._state[kl.POOL_TOP] = kl.POOL_UNIT
        self._state[kl.SLOT_FREE] = -1
        self._waiting = WaitingDeletes()
        self._polygons = PolygonCache()
        self._hits: U32 = np.zeros((0, 5), np.uint32)
        self._head = np.zeros(km.HEADS, np.int32)
        self._follow = np.zeros(1, np.int32)
        self._stack = np.zeros(64, np.bool_)
        self._cands: U32 = np.zeros((1 << 12, 4), np.uint32)
        self._row: U32 = np.zeros(1 << 15, np.uint32)
        self._handle: I64 = np.zeros(1 << 15, np.int64)
        self._session: I64 = np.zeros(1 << 15, np.int64)
        self._block: I64 = np.zeros(1 << 15, np.int64)
        self._met = MetPostings(np.zeros(0, np.int64), np.zeros(kl.LEVELS, np.int64))
        self._none_dead: U64 | None = None  # a mask without any, in use while nothing may change
        if parts is not None:
            self._restore_parts(parts)

    # --- snapshots --------------------------------------------------------

    def hold(self) -> Parts:
        """Returns the arrays as views that do not change until `release`; see `Index.hold`."""
        state = self._state
        slots = max(-(-int(state[kl.SLOT_TOP]) // _BITS), 1) * _BITS
        self._none_dead = np.zeros(len(self._dead), np.uint64)
        return {name: getattr(self, "_" + name) for name in _ARRAYS} | {
            "runs": self._runs[: int(state[kl.RUN_TOP])],
            "pool": self._pool[: int(state[kl.POOL_TOP])],
            "slots": self._slots[:slots],
            "general": self._general[:slots],
            "left": self._left[:slots],
            "dead": self._dead[: slots // _BITS],
            "waiting": self._waiting.columns(),
            "stack": np.array([len(self._stack)]),
        }

    def release(self) -> None:
        """Allows changes again; see `Index.release`."""
        self._none_dead = None

    def _restore_parts(self, parts: Parts) -> None:
        for name in _ARRAYS:
            setattr(self, "_" + name, parts[name])
        self._waiting.add(*parts["waiting"])
        self._stack = np.zeros(int(parts["stack"][0]), np.bool_)

    # --- updates ----------------------------------------------------------

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores the inserts among `rows`; rows without tags can match nothing here."""
        self._store_rows(rows, tag_off, tag_cell, tag_term, False)

    def extend(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores rows, or stores them under more tags; see `Index.extend`."""
        self._store_rows(rows, tag_off, tag_cell, tag_term, True)

    def _store_rows(self, rows: QueryRows, off: I64, cell: U32, term: U64, extend: bool) -> None:
        if len(rows.prog):
            self._stack = np.zeros(
                max(len(self._stack), int(np.diff(rows.prog_off).max())), np.bool_
            )
        for start in range(0, len(rows), _CHUNK):
            stop = min(start + _CHUNK, len(rows))
            self._store_chunk(rows, off, cell, term, start, stop, extend)

    def _store_chunk(
        self, rows: QueryRows, off: I64, cell: U32, term: U64, start: int, stop: int, extend: bool
    ) -> None:
        state = self._state
        self._reserve_room(stop - start, int(off[stop] - off[start]))
        state[kl.ROW], state[kl.TAG], state[kl.SLOT] = start, off[start], -1
        columns = [
            sealed(c)
            for c in (
                rows.kind[:stop], rows.handle, rows.session, rows.form, rows.post,
                rows.term_off, rows.term, rows.prog_off, rows.prog, rows.box_off, rows.box,
                rows.shape, rows.geom_off, rows.geom, off, cell, term,
            )
        ]  # fmt: skip
        while True:
            arguments: Any = (
                *columns,
                self._lon_bits, self._lat_bits, self._table, self._runs, self._run_free,
                self._slots, self._slots.view(np.int64), self._general, self._left,
                self._places, self._pool, self._pool.view(np.float64), self._pool_free,
                self._level_postings, extend, state,
            )  # fmt: skip
            need = kp.insert_rows(*arguments)
            if need == kp.DONE:
                return
            if need == kp.GROW_RUNS:
                self._runs = grow_copy(self._runs, len(self._runs) + (64 << 10))
            else:
                row = int(state[kl.ROW])
                words = sum(
                    int(of[row + 1] - of[row])
                    for of in (rows.term_off, rows.prog_off, rows.geom_off)
                )
                self._pool = grow_copy(self._pool, len(self._pool) + 2 * (words + 2 * kl.POOL_UNIT))

    def _reserve_room(self, rows: int, tags: int) -> None:
        """Makes room for this many more queries and tags in everything but runs and pool."""
        state = self._state
        tags += int(state[kl.TABLE_USED])
        if tags > _FULL * len(self._table) * kl.BUCKET:
            table = cache_lines(int(tags / _EMPTY) // kl.BUCKET + 1).view(np.uint64)
            kp.rehash_tags(self._table, table)
            self._table = table
        held = int(state[kl.LIVE]) + len(self._waiting) + rows
        if held > _FULL * len(self._places):
            places: U32 = np.zeros(int(held / _EMPTY), np.uint32)
            kp.rehash_places(self._places, places, self._slots.view(np.int64))
            self._places = places
        top = int(state[kl.SLOT_TOP]) + rows
        if top > len(self._slots):
            size = -(-max(top, int(len(self._slots) * GROWTH)) // _BITS) * _BITS
            if size > kl.SLOT_MASK:
                raise MemoryError(f"a worker holds at most {kl.SLOT_MASK} queries")
            slots = cache_lines(size)
            slots[: len(self._slots)] = self._slots
            self._slots = slots
            self._general = grow_copy(self._general, size)[:size]
            self._left = grow_copy(self._left, size)[:size]
            self._dead = grow_copy(self._dead, size // _BITS)[: size // _BITS]

    def delete(self, handles: I64, lsns: I64) -> None:
        """Gives the slots their delete LSN; the postings stay, as deletion is lazy
        (algorithms.md 1.7)."""
        if len(handles) == 0:
            return
        slots = np.empty(len(handles), np.int64)
        kd.delete_handles(
            sealed(handles), sealed(lsns), self._places,
            self._slots.view(np.int64), self._state, slots,
        )  # fmt: skip
        known = slots >= 0
        self._waiting.add(lsns[known], slots[known])

    def purge(self, watermark: int) -> None:
        """Lets the postings of queries deleted up to `watermark` be removed when they are met."""
        if self._none_dead is not None:
            return
        slots = self._waiting.take_ripe(watermark)
        kd.mark_dead(slots, self._dead, self._places, self._slots.view(np.int64), self._state)

    def sweep(self, budget: int) -> int:
        """Purges the next `budget` lists if any deleted query may go; returns the number of
        postings removed."""
        if self._state[kl.PURGEABLE] == 0 or self._none_dead is not None:
            return 0
        return int(
            kd.sweep_table(
                budget, self._table, self._runs,
                self._run_free, self._dead, self._left, self._slots.view(np.int64),
                self._general, self._pool, self._pool_free, self._level_postings, self._state,
            )
        )  # fmt: skip

    # --- units ------------------------------------------------------------

    def drop(self, keep: Callable[[U32, U64], NDArray[np.bool_]]) -> None:
        """Drops units; nothing changes before `keep` was asked for all of them. See
        `Index.drop`."""
        slots_i, bucket, waiting = self._slots.view(np.int64), 0, 0
        cell: U32 = np.empty(_CHUNK, np.uint32)
        term: U64 = np.empty(_CHUNK, np.uint64)
        run: U32 = np.empty(_CHUNK, np.uint32)
        dropped = []
        while bucket < len(self._table):
            bucket, n = ks.list_units(self._table, bucket, cell, term, run)
            gone = np.flatnonzero(~keep(cell[:n], term[:n]))
            dropped.append((cell[gone], term[gone], run[gone]))
        for units in dropped:
            waiting += ks.drop_units(
                *units, self._table, self._runs, self._run_free, self._places, slots_i,
                self._general, self._left, self._dead, self._pool, self._pool_free,
                self._level_postings, self._state,
            )  # fmt: skip
        if waiting:
            ks.free_waiting(
                self._waiting.take_empty(self._left), self._places, slots_i, self._general,
                self._pool, self._pool_free, self._state,
            )  # fmt: skip

    def postings(self, lsn: int) -> int:
        """Counts the postings of queries that were live at `lsn`; see `Index.postings`."""
        top = int(self._state[kl.SLOT_TOP])
        slots = self._slots.view(np.int64)[:top]
        live = (slots[:, kl.HANDLE] <= lsn) & (slots[:, kl.DELETED] > lsn)
        return int(self._left[:top][live].sum(dtype=np.int64))

    def census(self, slices: int = 1, level: int = 0) -> Iterator[StoredCensus | None]:
        """Counts what is stored by cell; see `Index.census`. Bytes are those of slot, posting
        and block in the pool."""
        slices = min(slices, -(-len(self._table) // _SLICE))
        size = np.zeros(int(self._state[kl.SLOT_TOP]), np.uint32)
        for start, stop in split_range(len(size), slices):
            ks.measure_queries(
                self._slots.view(np.int64), self._general, self._pool, start, size[start:stop]
            )
            if slices > 1:
                yield None
        cell: U32 = np.empty(_CHUNK, np.uint32)
        n: I64 = np.empty((2, _CHUNK), np.int64)
        counts = CellCounter(2)
        for i in range(slices):
            # A table that grew meanwhile keeps its order: see `layout.home`.
            bucket, end = (len(self._table) * k // slices for k in (i, i + 1))
            while bucket < end:
                bucket, rows = ks.weigh_units(
                    self._table, self._runs, size, level, self._lon_bits, bucket, end, cell, *n
                )
                counts.add(cell[:rows], 0, *n[:, :rows])
            if i < slices - 1:
                yield None
        held = counts.take()
        yield StoredCensus(held.cell, held.by[:, 0], held.by[:, 1])

    # --- matching ---------------------------------------------------------

    def match(self, lsn: int, lon: F64, lat: F64, term_off: I64, term: U64) -> MatchColumns:
        """Matches a batch as of `lsn`; see `Index.match`."""
        lon, lat, term_off, term = map(sealed, (lon, lat, term_off, term))
        levels = np.flatnonzero(self._level_postings)
        resume = np.zeros(4, np.int64)
        self._met = MetPostings(np.zeros(len(lon), np.int64), np.zeros(kl.LEVELS, np.int64))
        dead = self._dead if self._none_dead is None else self._none_dead
        if len(lon) and len(levels):
            firsts = np.minimum(np.arange(0, len(lon) + km.BLOCK, km.BLOCK), len(lon))
            most = int(np.diff(term_off[firsts]).max()) * len(levels)
            if most > len(self._hits):
                self._hits = np.zeros((most, 5), np.uint32)
            longest = int(np.diff(term_off).max()) + 1
            if longest > len(self._follow):
                self._follow = np.zeros(longest, np.int32)
            while True:
                need = km.match_block(
                    resume, lsn, lon, lat, term_off, term, levels, self._lon_bits,
                    self._lat_bits, self._table, self._runs,
                    self._slots, self._slots.view(np.int64), dead, self._left,
                    self._general, self._pool, self._pool.view(np.float64), self._pool_free,
                    self._level_postings, self._state, self._hits, self._head, self._follow,
                    self._cands, self._stack, self._row, self._handle, self._session,
                    self._block, *self._met,
                )  # fmt: skip
                if need == km.MATCHED:
                    break
                if need == km.MORE_CANDIDATES:
                    self._cands = np.zeros((2 * len(self._cands), 4), np.uint32)
                self._grow_matches()
        n = int(resume[km.R_OUT])
        found = MatchColumns(
            self._row[:n].copy(), self._handle[:n].copy(), self._session[:n].copy()
        )
        block = self._block[:n]
        if not block.any():
            return found
        return keep_exact_matches(found, block, self._pool, lon, lat, self._polygons)

    def met(self) -> MetPostings:
        """Returns what the last `match` met; see `Index.met`."""
        return self._met

    def _grow_matches(self) -> None:
        size = 2 * len(self._row)
        for name in ("_row", "_handle", "_session", "_block"):
            setattr(self, name, grow_copy(getattr(self, name), size))

    def stats(self) -> IndexStats:
        """Returns the sizes; `bytes` counts all arrays with their slack, but no scratch space."""
        state = self._state
        held = (self._table, self._places, self._runs, self._pool, self._slots,
                self._general, self._left, self._dead)  # fmt: skip
        return IndexStats(
            live=int(state[kl.LIVE]),
            tombstones=len(self._waiting) + int(state[kl.PURGEABLE]),
            postings=int(state[kl.POSTINGS]),
            bytes=sum(int(a.nbytes) for a in held),
        )
