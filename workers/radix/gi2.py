"""The radix GI2: the grid inside the keyword, and hierarchical.

The memory layout is described in `layout`, the matching in `match_kernels`. This module owns the
arrays; `growth` says how they grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Array, sealed
from ps2stream.protocol.rows import QueryRows
from ps2stream.space.grid import Grid
from ps2stream.space.polygons import PolygonCache
from ps2stream.workers.index import (
    ALL_TERMS,
    NO_MATCHES,
    NO_ROWS,
    NO_VALUES,
    IndexStats,
    MatchColumns,
    MetPostings,
    Parts,
    StoredCensus,
)
from ps2stream.workers.radix import band_kernels as kb
from ps2stream.workers.radix import filter_kernels as kf
from ps2stream.workers.radix import holder_kernels as kh
from ps2stream.workers.radix import layout as kl
from ps2stream.workers.radix import match_kernels as km
from ps2stream.workers.radix import posting_kernels as ki
from ps2stream.workers.radix import purge_kernels as kd
from ps2stream.workers.radix import verify_kernels as kv
from ps2stream.workers.radix.arrays import (
    FIRST,
    RadixArrays,
    UpdateScratch,
    list_written,
    make_arrays,
    make_key_columns,
    make_match_scratch,
    make_room,
    make_update_scratch,
    restore_arrays,
    take_lines,
)
from ps2stream.workers.radix.census import take_census
from ps2stream.workers.radix.drops import SlotsKept, list_lost_shards, list_lost_tags
from ps2stream.workers.radix.growth import (
    fit_places,
    grow_cells,
    grow_holders,
    grow_nodes,
    reserve_pool,
    reserve_slots,
)
from ps2stream.workers.radix.pointers import find_entry, list_addresses, note_sizes
from ps2stream.workers.shapes import keep_within_polygons
from ps2stream.workers.waiting import WaitingDeletes

_CHUNK = 1 << 16  # rows that an insert call handles between checks of capacity
_BITS = 64
_DIRECTORY_EMPTY = 0.4  # how full the directory is once it grew
_ROOM = 1 << 14  # matches
_BLOCKS, _MOST = 8, 2048  # blocks searched for a list of a sweep's budget; at most half a ms
_LISTS = 16  # lists of a larger budget for each block
_MARKS = 4  # queries that are marked in the time of a block
_DELETE_WORDS = 64  # of the pool for a query that is deleted or whose tags are listed


def _order_matches(found: MatchColumns, rows: int) -> MatchColumns:
    """Returns a copy of matches in the order of their rows, as a merger can take them without
    sorting; rows: how many there may be."""
    n = len(found.row)
    out = MatchColumns(np.empty(n, np.uint32), np.empty(n, np.int64), np.empty(n, np.int64))
    km.order_by_row(*found, rows, *out)
    return out


class RadixGI2:
    """Implements `Index` over the cells of `grid`, empty or restored from `parts`. All
    capacities grow as needed."""

    FORMAT = kl.FORMAT

    def __init__(self, grid: Grid, parts: Parts | None = None, is_lending: bool = False) -> None:
        """is_lending: `match` returns columns that the next call overwrites."""
        self._is_lending = is_lending
        self._grid, self._lines = grid, grid.lines.ctypes.data  # the address, for kernels
        self._arrays = make_arrays() if parts is None else restore_arrays(parts)
        self._state: I64 = self._arrays.state
        self._waiting = WaitingDeletes()
        self._dead: deque[I64] = deque()  # slots to be swept, in this order; no part is empty
        self._watermark = -1  # of the last `purge`
        self._held = False
        self._polygons = PolygonCache()
        self._updates = make_update_scratch(1 << 12)
        self._scratch = make_match_scratch(kv.BATCH, km.KEYS, kf.GROUPS, kv.CANDIDATES, kv.HITS)
        self._room = make_room(_ROOM)
        self._met = np.zeros(0, np.int64), np.zeros(16, np.int64)  # as MetPostings
        self._resume = np.zeros(km.RESUME, np.int64)
        self._located: tuple[Any, ...] = None, None, None  # whose addresses these are
        self._addresses: I64 = np.zeros(0, np.int64)
        self._enter_match: Callable[..., int] | None = None
        self._changed: tuple[RadixArrays | None, UpdateScratch | None] = None, None
        self._change_addresses = np.zeros(0, np.int64)
        if parts is not None:
            self._waiting.add(*parts["waiting"])
            self._dead.extend([np.array(parts["queue"])] if len(parts["queue"]) else [])
            self._reserve_stack(int(parts["stack"][0]))

    # --- snapshots --------------------------------------------------------

    def hold(self) -> Parts:
        """Returns the arrays as views that do not change until `release`; see `Index.hold`."""
        state, arrays = self._state, self._arrays
        slots = max(-(-int(state[kl.SLOT_TOP]) // _BITS), 1) * _BITS
        self._held = True
        return {
            "directory": arrays.directory,
            "nodes": arrays.nodes[: int(state[kl.NODE_TOP]) + kl.SLACK],
            "node_free": arrays.node_free,
            "wide": arrays.wide,
            "pool": arrays.pool[: int(state[kl.POOL_TOP])],
            "pool_free": arrays.pool_free,
            "slots": arrays.slots_f[:slots],
            "dead": arrays.dead[: slots // _BITS],
            "places": arrays.places,
            "holders": arrays.holders[: 2 * int(state[kl.HOLDER_TOP])],
            "cells": arrays.cells,
            "counts": arrays.counts,
            "state": state,
            "bands": arrays.bands,
            "waiting": self._waiting.columns(),
            "queue": np.concatenate([np.zeros(0, np.int64), *self._dead]),
            "stack": np.array([len(self._scratch.stack)]),
        }

    def release(self) -> None:
        """Allows changes again; see `Index.release`."""
        self._held = False

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
            self._scratch = self._scratch._replace(stack=np.zeros(size, np.uint8))

    def _store_chunk(
        self, rows: QueryRows, off: I64, cell: U32, term: U64, start: int, stop: int, extend: bool
    ) -> None:
        self._reserve_slots(stop - start)
        self._state[kl.ROW] = start
        columns: tuple[Array, ...] = (  # as StoredRowColumns
            rows.kind[:stop], rows.handle, rows.session, rows.form, rows.post,
            rows.term_off, rows.term, rows.prog_off, rows.prog, rows.box_off, rows.box,
            rows.shape, rows.geom_off, rows.geom,
        )  # fmt: skip
        stored = tuple(map(sealed, columns))
        tags = sealed(off), sealed(cell), sealed(term)  # as TagColumns
        while True:
            need = ki.insert_rows(stored, tags, self._lines, self._locate_updates(), extend)
            if need == ki.DONE:
                return
            row = int(self._state[kl.ROW])
            if need == ki.GROW_DIRECTORY:
                self._grow_directory()
            elif need == ki.GROW_NODES:
                self._arrays = grow_nodes(self._arrays, int(rows.post[row]).bit_count())
            elif need == ki.GROW_POOL:
                words = sum(
                    int(of[row + 1] - of[row])
                    for of in (rows.term_off, rows.prog_off, rows.geom_off, off)
                )
                self._arrays = reserve_pool(self._arrays, 8 * words + 8 * len(self._updates.cell))
            elif need == ki.GROW_HOLDERS:
                self._arrays = grow_holders(self._arrays)
            elif need == ki.GROW_CELLS:
                self._arrays = grow_cells(self._arrays, int(off[row + 1] - off[row]))
            else:
                tag_count = int(off[row + 1] - off[row])
                self._updates = make_update_scratch(2 * (len(self._updates.cell) + tag_count))

    def _reserve_slots(self, rows: int) -> None:
        """Makes room for this many more queries."""
        held = int(self._state[kl.LIVE]) + len(self._waiting) + rows
        self._arrays = fit_places(reserve_slots(self._arrays, rows), held)

    def _grow_directory(self) -> None:
        """Makes room in the directory, at the least for the trees of one more query."""
        old = self._arrays.directory
        used = int(np.count_nonzero(old[:, kl.ENTRIES :] & kl.LOW)) + kl.KEPT * _BITS
        size = max(int(used / _DIRECTORY_EMPTY), FIRST) // kl.ENTRIES
        directory = take_lines(size * kl.BUCKET).reshape(-1, kl.BUCKET)
        self._state[kl.DIRECTORY_USED] = kd.rehash_directory(old, directory)
        self._arrays = self._arrays._replace(directory=directory)

    def delete(self, handles: I64, lsns: I64) -> None:
        """Gives the queries their delete LSN; the postings stay, as deletion is lazy
        (algorithms.md 1.7)."""
        if len(handles) == 0:
            return
        self._arrays = reserve_pool(self._arrays, _DELETE_WORDS * len(handles))
        slots: I64 = np.empty(len(handles), np.int64)
        kd.delete_handles(sealed(handles), sealed(lsns), self._lines, self._locate_updates(), slots)
        known = slots != kd.UNKNOWN
        self._waiting.add(lsns[known], slots[known])

    def purge(self, watermark: int) -> None:
        """Lets the next sweeps remove the queries deleted up to `watermark`."""
        if not self._held:
            self._watermark = max(self._watermark, watermark)

    def _mark_ripe(self, most: int) -> int:
        """Marks up to `most` of the queries that may go as dead; returns how many it looked at.
        While a sweep stops within a leaf it is none: all that is dead leaves the leaf together."""
        if self._state[kl.SWEPT_BLOCK] or self._state[kl.SWEPT_TERMS]:
            return 0
        slots = self._waiting.take_ripe(self._watermark, most)
        dead = kd.mark_dead(slots, self._lines, self._locate_updates()) if len(slots) else 0
        self._dead.extend([slots[:dead]] if dead else [])
        return len(slots)

    def sweep(self, budget: int) -> int:
        """Removes queries that may go, for about as long as it takes to search `budget` lists;
        returns the number of tags removed."""
        if self._held:
            return 0
        before = int(self._state[kl.POSTINGS])
        blocks = max(min(_BLOCKS * budget, _MOST), budget // _LISTS)
        while blocks > 0:
            # With half the budget where a sweep is under way, or it would come to no end.
            marked = self._mark_ripe(_MARKS * blocks // (2 if self._dead else 1))
            blocks -= marked // _MARKS
            if self._dead:
                slots = self._dead.popleft()
                done, searched = kd.sweep_slots(slots, blocks, self._lines, self._locate_updates())
                blocks -= searched
                if done < len(slots):
                    self._dead.appendleft(slots[done:])
            elif not marked:
                break
        return before - int(self._state[kl.POSTINGS])

    def _locate_updates(self) -> I64:
        """Returns the addresses of the arrays of an update, whose sizes are noted."""
        arrays, updates = of = self._arrays, self._updates
        if arrays is not self._changed[0] or updates is not self._changed[1]:
            self._changed, self._change_addresses = of, list_addresses(*of)
            note_sizes(*of)
        return self._change_addresses

    # --- units ------------------------------------------------------------

    def drop(self, keep: Callable[[U32, U64], NDArray[np.bool_]]) -> None:
        """Drops units; nothing changes before `keep` was asked for all of them. A unit may be
        asked for more than once. See `Index.drop`."""
        self._drop_tags(list_lost_tags(self._arrays, self._updates, self._lines, keep))

    def drop_shards(self, keep: Callable[[U32, U64, U64], NDArray[np.bool_]]) -> None:
        """Drops tags, also some of a unit; see `Index.drop_shards`."""
        self._drop_tags(list_lost_shards(self._arrays, self._updates, self._lines, keep))

    def _drop_tags(self, changed: list[SlotsKept]) -> None:
        waiting = 0
        for first, last, kept in changed:
            handles = self._arrays.slots_i[first:last, kl.HANDLE]
            slots, tags = int(np.count_nonzero(handles >= 0)), len(kept)
            self._arrays = reserve_pool(self._arrays, _DELETE_WORDS * slots + 2 * tags)
            waiting += kd.keep_tags(
                first, last, kept, self._lines, tuple(self._arrays), tuple(self._updates)
            )
        queue = [slots[self._arrays.slots_i[slots, kl.HANDLE] >= 0] for slots in self._dead]
        self._dead = deque(slots for slots in queue if len(slots))
        self._state[[kl.SWEPT_TERMS, kl.SWEPT_LEAF, kl.SWEPT_BLOCK]] = 0
        if waiting:
            deleted = self._waiting.columns()[1]
            empty = np.zeros(len(deleted), np.bool_)
            kd.find_empty(deleted, self._lines, tuple(self._arrays), empty)
            kd.free_waiting(self._waiting.take_chosen(empty), tuple(self._arrays))

    def postings(self, lsn: int) -> int:
        """Counts the tags of queries that were live at `lsn`; see `Index.postings`."""
        return int(kd.count_live(lsn, self._lines, tuple(self._arrays)))

    def census(self, slices: int = 1, level: int = 0) -> Iterator[StoredCensus | None]:
        """Counts what is stored by cell, which is noted with each update; see `Index.census`.
        Bytes are those of slot, posting, long expression and geometry."""
        steps = 1 if slices == 1 else 2 * slices
        return take_census(self._arrays.cells, self._arrays.counts, level, self._grid.bits, steps)

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
        objects: tuple[Array, ...] = lon, lat, term_off, term, chosen, value_off, value
        self._met = met = np.zeros(len(lon), np.int64), np.zeros(16, np.int64)
        resume, enter = self._resume, self._enter_match
        resume.fill(0)
        if enter is None:  # objects: as MatchedObjects
            some = lsn, resume, tuple(map(sealed, objects)), self._locate_arrays(), met
            self._enter_match = enter = find_entry(km.match_block, *some)
        while (n := enter(lsn, resume, objects, self._locate_arrays(), met)) < 0:
            if n == km.MORE_MATCHES:
                self._room = self._room.grow()
            elif n == km.MORE_KEYS:
                self._scratch = self._scratch._replace(
                    **make_key_columns(2 * len(term) + kb.BUCKETS * kl.BANDS)
                )
            elif n == km.NOT_CONTIGUOUS:
                objects = tuple(map(np.ascontiguousarray, objects))
            else:
                break
        handle, session, row, shapes, extras = self._room
        if n == 0:
            return NO_MATCHES
        if n > 0:
            if self._is_lending:
                return MatchColumns(row[:n], handle[:n], session[:n])
            return MatchColumns(row[:n].copy(), handle[:n].copy(), session[:n].copy())
        n, shaped, _, parts = resume[km.R_OUT :].tolist()
        found = MatchColumns(row[:n], handle[:n], session[:n])
        if shaped:
            at, start = shapes[:shaped], extras[:shaped] + kl.X_GEOM
            geom = self._arrays.pool_f
            found = keep_within_polygons(found, at, start, geom, lon, lat, self._polygons)
        if self._state[kl.SHARED]:
            found = self._list_holding(lsn, found)
        return _order_matches(found, len(lon)) if parts else found  # they are copies

    def _list_holding(self, lsn: int, found: MatchColumns) -> MatchColumns:
        """Returns the matches with all live holders of the shared slots among them."""
        held = self._arrays.holders, self._arrays.pool
        n = kh.count_holding(lsn, found.session, *held)
        row: U32 = np.empty(n, np.uint32)
        out = MatchColumns(row, np.empty(n, np.int64), np.empty(n, np.int64))
        kh.list_holding(lsn, *found, *held, *out)
        return out

    def _locate_arrays(self) -> I64:
        """Returns the addresses of all arrays of a match, and the sizes that it needs."""
        arrays, scratch, room = of = self._arrays, self._scratch, self._room
        before = self._located
        if arrays is not before[0] or scratch is not before[1] or room is not before[2]:
            sizes = len(arrays.directory), len(scratch.keys), len(room.row), self._lines
            self._located, self._addresses = of, np.append(list_addresses(*of), sizes)
        return self._addresses

    def met(self) -> MetPostings:
        """Returns the candidates of the last `match`: postings at the place of an object; see
        `Index.met`."""
        return MetPostings(*self._met)

    def stats(self) -> IndexStats:
        """Returns the sizes; `bytes` are those of `list_bytes`."""
        state = self._state
        return IndexStats(
            live=int(state[kl.LIVE]),
            tombstones=len(self._waiting) + int(state[kl.PURGEABLE]),
            postings=int(state[kl.POSTINGS]),
            bytes=sum(self.list_bytes().values()),
        )

    def list_bytes(self) -> dict[str, int]:
        """Returns the bytes of each array that were ever written, as the rest takes no memory, by
        its name; without scratch space."""
        return list_written(self._arrays)
