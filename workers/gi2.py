"""GI2, the worker's index of the paper (PS2Stream section IV-D; algorithms.md 1.7), packed.

The memory layout is described in `layout`, the matching in `kernels`. This module owns the
arrays and grows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Array, sealed
from ps2stream.protocol.rows import QueryRows
from ps2stream.space.grid import Grid
from ps2stream.space.polygons import PolygonCache
from ps2stream.workers import kernels as km
from ps2stream.workers import layout as kl
from ps2stream.workers import posting_kernels as kp
from ps2stream.workers import purge_kernels as kd
from ps2stream.workers import scan_kernels as ks
from ps2stream.workers.arrays import (
    GROWTH,
    IndexArrays,
    MatchBuffers,
    MatchScratch,
    cache_lines,
    grow_copy,
    split_range,
)
from ps2stream.workers.by_cell import CellCounter
from ps2stream.workers.drops import drop_postings, drop_units
from ps2stream.workers.index import (
    ALL_TERMS,
    NO_ROWS,
    NO_VALUES,
    IndexStats,
    MatchColumns,
    MetPostings,
    Parts,
    StoredCensus,
)
from ps2stream.workers.shapes import keep_exact_matches
from ps2stream.workers.waiting import WaitingDeletes

_FIRST = 1 << 10  # entries of new arrays
_CHUNK = 1 << 16  # rows that an insert call handles between checks of capacity
_SLICE = 1 << 14  # buckets: fewer are counted at once
_BITS = 64
_FULL, _EMPTY = 0.55, 0.4  # how full a table may be, and is once it grew: misses cost probes
_ROOM = 1 << 15  # matches


class GI2:
    """Implements `Index` over the cells of `grid`, empty or restored from `parts`. All
    capacities grow as needed."""

    def __init__(self, grid: Grid, parts: Parts | None = None) -> None:
        self._grid = grid
        self._arrays = _make_arrays() if parts is None else _restore_arrays(parts)
        self._state: I64 = self._arrays.state
        self._waiting = WaitingDeletes()
        self._polygons = PolygonCache()
        self._scratch = MatchScratch(
            hits=np.zeros((0, 5), np.uint32),
            head=np.zeros(km.HEADS, np.int32),
            follow=np.zeros(1, np.int32),
            cands=np.zeros((1 << 12, 4), np.uint32),
            stack=np.zeros(64, np.bool_),
        )
        self._buffers = MatchBuffers(
            np.zeros(_ROOM, np.uint32), *(np.zeros(_ROOM, np.int64) for _ in range(3))
        )
        self._met = MetPostings(np.zeros(0, np.int64), np.zeros(kl.LEVELS, np.int64))
        self._none_dead: U64 | None = None  # a mask without any, in use while nothing may change
        if parts is not None:
            self._waiting.add(*parts["waiting"])
            self._reserve_stack(int(parts["stack"][0]))

    # --- snapshots --------------------------------------------------------

    def hold(self) -> Parts:
        """Returns the arrays as views that do not change until `release`; see `Index.hold`."""
        state = self._state
        slots = max(-(-int(state[kl.SLOT_TOP]) // _BITS), 1) * _BITS
        arrays = self._arrays
        self._none_dead = np.zeros(len(arrays.dead), np.uint64)
        return {
            "table": arrays.table,
            "places": arrays.places,
            "runs": arrays.runs[: int(state[kl.RUN_TOP])],
            "run_free": arrays.run_free,
            "pool": arrays.pool[: int(state[kl.POOL_TOP])],
            "pool_free": arrays.pool_free,
            "slots": arrays.slots_f[:slots],
            "general": arrays.general[:slots],
            "left": arrays.left[:slots],
            "dead": arrays.dead[: slots // _BITS],
            "level_postings": arrays.level_postings,
            "state": state,
            "waiting": self._waiting.columns(),
            "stack": np.array([len(self._scratch.stack)]),
        }

    def release(self) -> None:
        """Allows changes again; see `Index.release`."""
        self._none_dead = None

    # --- updates ----------------------------------------------------------

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores the inserts among `rows`; rows without tags can match nothing here."""
        self._store_rows(rows, tag_off, tag_cell, tag_term, False)

    def extend(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores rows, or stores them under more tags; see `Index.extend`."""
        self._store_rows(rows, tag_off, tag_cell, tag_term, True)

    def _store_rows(self, rows: QueryRows, off: I64, cell: U32, term: U64, extend: bool) -> None:
        if len(rows.prog):
            self._reserve_stack(int(np.diff(rows.prog_off).max()))
        for start in range(0, len(rows), _CHUNK):
            stop = min(start + _CHUNK, len(rows))
            self._store_chunk(rows, off, cell, term, start, stop, extend)

    def _reserve_stack(self, size: int) -> None:
        """Makes room for the evaluation of a program of this size."""
        if size > len(self._scratch.stack):
            self._scratch = self._scratch._replace(stack=np.zeros(size, np.bool_))

    def _store_chunk(
        self, rows: QueryRows, off: I64, cell: U32, term: U64, start: int, stop: int, extend: bool
    ) -> None:
        state = self._state
        self._reserve_room(stop - start, int(off[stop] - off[start]))
        state[kl.ROW], state[kl.TAG], state[kl.SLOT] = start, off[start], -1
        columns: tuple[Array, ...] = (  # as StoredRowColumns
            rows.kind[:stop], rows.handle, rows.session, rows.form, rows.post,
            rows.term_off, rows.term, rows.prog_off, rows.prog, rows.box_off, rows.box,
            rows.shape, rows.geom_off, rows.geom,
        )  # fmt: skip
        stored = tuple(map(sealed, columns))
        tags = sealed(off), sealed(cell), sealed(term)  # as TagColumns
        while True:
            arrays = self._arrays
            need = kp.insert_rows(stored, tags, self._grid.lines, tuple(arrays), extend)
            if need == kp.DONE:
                return
            if need == kp.GROW_RUNS:
                runs = grow_copy(arrays.runs, len(arrays.runs) + (64 << 10))
                self._arrays = arrays._replace(runs=runs)
            else:
                row = int(state[kl.ROW])
                words = sum(
                    int(of[row + 1] - of[row])
                    for of in (rows.term_off, rows.prog_off, rows.geom_off)
                )
                pool = grow_copy(arrays.pool, len(arrays.pool) + 2 * (words + 2 * kl.POOL_UNIT))
                self._arrays = arrays._replace(pool=pool, pool_f=pool.view(np.float64))

    def _reserve_room(self, rows: int, tags: int) -> None:
        """Makes room for this many more queries and tags in everything but runs and pool."""
        state, arrays = self._state, self._arrays
        tags += int(state[kl.TABLE_USED])
        if tags > _FULL * len(arrays.table) * kl.BUCKET:
            table = cache_lines(int(tags / _EMPTY) // kl.BUCKET + 1).view(np.uint64)
            kp.rehash_tags(arrays.table, table)
            arrays = arrays._replace(table=table)
        held = int(state[kl.LIVE]) + len(self._waiting) + rows
        if held > _FULL * len(arrays.places):
            places: U32 = np.zeros(int(held / _EMPTY), np.uint32)
            kp.rehash_places(arrays.places, places, arrays.slots_i)
            arrays = arrays._replace(places=places)
        top, now = int(state[kl.SLOT_TOP]) + rows, len(arrays.slots_f)
        if top > now:
            size = -(-max(top, int(now * GROWTH)) // _BITS) * _BITS
            if size > kl.SLOT_MASK:
                raise MemoryError(f"a worker holds at most {kl.SLOT_MASK} queries")
            slots = cache_lines(size)
            slots[:now] = arrays.slots_f
            arrays = arrays._replace(
                slots_f=slots,
                slots_i=slots.view(np.int64),
                general=grow_copy(arrays.general, size)[:size],
                left=grow_copy(arrays.left, size)[:size],
                dead=grow_copy(arrays.dead, size // _BITS)[: size // _BITS],
            )
        self._arrays = arrays

    def delete(self, handles: I64, lsns: I64) -> None:
        """Gives the slots their delete LSN; the postings stay, as deletion is lazy
        (algorithms.md 1.7)."""
        if len(handles) == 0:
            return
        slots = np.empty(len(handles), np.int64)
        arrays = self._arrays
        kd.delete_handles(
            sealed(handles), sealed(lsns), arrays.places, arrays.slots_i, arrays.state, slots
        )
        known = slots >= 0
        self._waiting.add(lsns[known], slots[known])

    def purge(self, watermark: int) -> None:
        """Lets the postings of queries deleted up to `watermark` be removed when they are met."""
        if self._none_dead is not None:
            return
        slots = self._waiting.take_ripe(watermark)
        arrays = self._arrays
        kd.mark_dead(slots, arrays.dead, arrays.places, arrays.slots_i, arrays.state)

    def sweep(self, budget: int) -> int:
        """Purges the next `budget` lists if any deleted query may go; returns the number of
        postings removed."""
        if self._state[kl.PURGEABLE] == 0 or self._none_dead is not None:
            return 0
        return int(kd.sweep_table(budget, tuple(self._arrays)))

    # --- units ------------------------------------------------------------

    def drop(self, keep: Callable[[U32, U64], NDArray[np.bool_]]) -> None:
        """Drops units; nothing changes before `keep` was asked for all of them. See
        `Index.drop`."""
        self._free_waiting(drop_units(self._arrays, keep))

    def drop_shards(self, keep: Callable[[U32, U64, U64], NDArray[np.bool_]]) -> None:
        """Drops postings, also some of a unit; see `Index.drop_shards`."""
        self._free_waiting(drop_postings(self._arrays, keep))

    def _free_waiting(self, waiting: int) -> None:
        """Frees the slots of deleted queries that have no posting left, if there are any."""
        arrays = self._arrays
        if waiting:
            ks.free_waiting(
                self._waiting.take_empty(arrays.left), arrays.places, arrays.slots_i,
                arrays.general, arrays.pool, arrays.pool_free, arrays.state,
            )  # fmt: skip

    def postings(self, lsn: int) -> int:
        """Counts the postings of queries that were live at `lsn`; see `Index.postings`."""
        top = int(self._state[kl.SLOT_TOP])
        slots = self._arrays.slots_i[:top]
        live = (slots[:, kl.HANDLE] <= lsn) & (slots[:, kl.DELETED] > lsn)
        return int(self._arrays.left[:top][live].sum(dtype=np.int64))

    def census(self, slices: int = 1, level: int = 0) -> Iterator[StoredCensus | None]:
        """Counts what is stored by cell; see `Index.census`. Bytes are those of slot, posting
        and block in the pool."""
        slices = min(slices, -(-len(self._arrays.table) // _SLICE))
        size = np.zeros(int(self._state[kl.SLOT_TOP]), np.uint32)
        for start, stop in split_range(len(size), slices):
            arrays = self._arrays
            ks.measure_queries(arrays.slots_i, arrays.general, arrays.pool, start, size[start:stop])
            if slices > 1:
                yield None
        cell: U32 = np.empty(_CHUNK, np.uint32)
        n: I64 = np.empty((2, _CHUNK), np.int64)
        out = (cell, *n)
        counts = CellCounter(2)
        for i in range(slices):
            # A table that grew meanwhile keeps its order: see `layout.home`.
            table, runs = self._arrays.table, self._arrays.runs
            bucket, end = (len(table) * k // slices for k in (i, i + 1))
            while bucket < end:
                bucket, rows = ks.weigh_units(
                    table, runs, size, level, self._grid.lon_bits, bucket, end, out
                )
                counts.add(cell[:rows], 0, *n[:, :rows])
            if i < slices - 1:
                yield None
        held = counts.take()
        yield StoredCensus(held.cell, held.by[:, 0], held.by[:, 1])

    # --- matching ---------------------------------------------------------

    def match(
        self,
        lsn: int,
        lon: F64,
        lat: F64,
        term_off: I64,
        term: U64,
        chosen: U8 = ALL_TERMS,
        value_off: I64 = NO_ROWS,
        value: U64 = NO_VALUES,
    ) -> MatchColumns:
        """Matches a batch as of `lsn`; see `Index.match`."""
        if not len(value_off):
            value_off = np.zeros(len(lon) + 1, np.int64)
        columns: tuple[Array, ...] = lon, lat, term_off, term, chosen, value_off, value
        objects = tuple(map(sealed, columns))  # as MatchedObjects
        arrays = self._arrays
        levels = np.flatnonzero(arrays.level_postings)
        resume = np.zeros(4, np.int64)
        self._met = MetPostings(np.zeros(len(lon), np.int64), np.zeros(kl.LEVELS, np.int64))
        if self._none_dead is not None:
            arrays = arrays._replace(dead=self._none_dead)
        if len(lon) and len(levels):
            firsts = np.minimum(np.arange(0, len(lon) + km.BLOCK, km.BLOCK), len(lon))
            most = int(np.diff(term_off[firsts]).max()) * len(levels)
            scratch = self._scratch
            if most > len(scratch.hits):
                scratch = scratch._replace(hits=np.zeros((most, 5), np.uint32))
            longest = int(np.diff(term_off).max()) + 1
            if longest > len(scratch.follow):
                scratch = scratch._replace(follow=np.zeros(longest, np.int32))
            self._scratch = scratch
            grid = levels, self._grid.lines
            index, met = tuple(arrays), tuple(self._met)
            while True:
                need = km.match_block(
                    lsn, resume, grid, objects, index, tuple(scratch), tuple(self._buffers), met
                )
                if need == km.MATCHED:
                    break
                if need == km.MORE_CANDIDATES:
                    cands: U32 = np.zeros((2 * len(scratch.cands), 4), np.uint32)
                    self._scratch = scratch = scratch._replace(cands=cands)
                self._buffers = self._buffers.grow()
        n, room = int(resume[km.R_OUT]), self._buffers
        found = MatchColumns(room.row[:n].copy(), room.handle[:n].copy(), room.session[:n].copy())
        block = room.block[:n]
        if not block.any():
            return found
        return keep_exact_matches(found, block, arrays.pool, lon, lat, self._polygons)

    def met(self) -> MetPostings:
        """Returns what the last `match` met; see `Index.met`."""
        return self._met

    def stats(self) -> IndexStats:
        """Returns the sizes; `bytes` counts all arrays with their slack, but no scratch space."""
        state, arrays = self._state, self._arrays
        held = (arrays.table, arrays.places, arrays.runs, arrays.pool, arrays.slots_f,
                arrays.general, arrays.left, arrays.dead)  # fmt: skip
        return IndexStats(
            live=int(state[kl.LIVE]),
            tombstones=len(self._waiting) + int(state[kl.PURGEABLE]),
            postings=int(state[kl.POSTINGS]),
            bytes=sum(int(a.nbytes) for a in held),
        )


def _make_arrays() -> IndexArrays:
    """Returns the arrays of an empty index."""
    slots, pool = cache_lines(_FIRST), np.zeros(_FIRST, np.uint64)
    state = np.zeros(kl.STATE, np.int64)
    state[kl.RUN_TOP] = 1  # offset 0 means none
    state[kl.POOL_TOP] = kl.POOL_UNIT
    state[kl.SLOT_FREE] = -1
    return IndexArrays(
        table=cache_lines(_FIRST // kl.BUCKET).view(np.uint64),
        places=np.zeros(_FIRST, np.uint32),
        runs=np.zeros(_FIRST * 8, np.uint32),
        run_free=np.zeros(32, np.int64),
        pool=pool,
        pool_f=pool.view(np.float64),
        pool_free=np.zeros(48, np.int64),
        slots_f=slots,
        slots_i=slots.view(np.int64),
        general=np.zeros(_FIRST, np.uint8),
        left=np.zeros(_FIRST, np.uint32),
        dead=np.zeros(_FIRST // _BITS, np.uint64),
        level_postings=np.zeros(kl.LEVELS, np.int64),
        state=state,
    )


def _restore_arrays(parts: Parts) -> IndexArrays:
    """Returns the arrays that `hold` gave."""
    own = {name: parts[name] for name in IndexArrays._fields if name in parts}
    pool, slots = parts["pool"], parts["slots"]
    views = {"pool_f": pool.view(np.float64), "slots_f": slots, "slots_i": slots.view(np.int64)}
    return IndexArrays(**own, **views)
