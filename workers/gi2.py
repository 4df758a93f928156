"""GI2, the paper's worker index (PS2Stream section IV-D; algorithms.md 1.7), packed.

The layout stands in `posting_kernels`, the matching in `kernels`. This module owns the
arrays, grows them, and keeps the queue of deletes that wait for the watermark.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ps2stream.batch import F64, I64, U8, U32, U64, Array, sealed
from ps2stream.grid import Grid
from ps2stream.polygons import PolygonCache
from ps2stream.region_rows import verify
from ps2stream.rows import QueryRows
from ps2stream.workers import kernels as km
from ps2stream.workers import layout as kl
from ps2stream.workers import posting_kernels as kp
from ps2stream.workers import purge_kernels as kd
from ps2stream.workers.index import IndexStats, Matches, Parts

_FIRST = 1 << 10  # entries of new arrays
_LINE = 8  # words of a slot: 64 bytes
_CHUNK = 1 << 16  # rows an insert call handles between checks of capacity
_BITS = 64
_FULL, _EMPTY = 0.55, 0.4  # load at which a table grows, and to which: misses cost probes
_GROWTH = 1.25  # of the other arrays
_ARRAYS = ("table", "places", "runs", "run_free", "pool", "pool_free", "slots", "general", "left",
           "dead", "level_postings", "state")  # fmt: skip


def _lines(n: int) -> F64:
    """Zeroed float64[n, 8] whose rows are whole cache lines."""
    raw = np.zeros(n * _LINE + _LINE, np.float64)
    skip = -(raw.ctypes.data // 8) % _LINE
    return raw[skip : skip + n * _LINE].reshape(n, _LINE)


def _grown(array: Array, size: int) -> Array:
    """A copy with zeros behind, a quarter longer or more."""
    out = np.zeros(max(size, int(len(array) * _GROWTH)), array.dtype)
    out[: len(array)] = array
    return out


class GI2:
    """Implements `Index` over the cells of `grid`; as it was when `parts` were taken of one.
    All capacities grow as needed."""

    def __init__(self, grid: Grid, parts: Parts | None = None) -> None:
        self._lon_bits = grid.lon_bits
        self._lat_bits = grid.lat_bits
        self._table: U64 = _lines(_FIRST // kl.BUCKET).view(np.uint64)
        self._places: U32 = np.zeros(_FIRST, np.uint32)
        self._runs: U32 = np.zeros(_FIRST * 8, np.uint32)
        self._run_free = np.zeros(32, np.int64)
        self._pool: U64 = np.zeros(_FIRST, np.uint64)
        self._pool_free = np.zeros(48, np.int64)
        self._slots: F64 = _lines(_FIRST)
        self._general: U8 = np.zeros(_FIRST, np.uint8)
        self._left: U32 = np.zeros(_FIRST, np.uint32)
        self._dead: U64 = np.zeros(_FIRST // _BITS, np.uint64)
        self._level_postings = np.zeros(kl.LEVELS, np.int64)
        self._state: I64 = np.zeros(kl.STATE, np.int64)
        self._state[kl.RUN_TOP] = 1  # offset 0 means none
        self._state[kl.POOL_TOP] = kl.POOL_UNIT
        self._state[kl.SLOT_FREE] = -1
        self._waiting: deque[tuple[I64, I64]] = deque()  # (delete LSNs ascending, slots)
        self._tombstones = 0  # waiting ones
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
        self._shown: U64 | None = None  # in the place of `dead`, while nothing may change
        if parts is not None:
            self._restore(parts)

    # --- snapshots --------------------------------------------------------

    def hold(self) -> Parts:
        state = self._state
        slots = max(-(-int(state[kl.SLOT_TOP]) // _BITS), 1) * _BITS
        none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._shown = np.zeros(len(self._dead), np.uint64)
        return {
            "table": self._table,
            "places": self._places,
            "runs": self._runs[: int(state[kl.RUN_TOP])],
            "run_free": self._run_free,
            "pool": self._pool[: int(state[kl.POOL_TOP])],
            "pool_free": self._pool_free,
            "slots": self._slots[:slots],
            "general": self._general[:slots],
            "left": self._left[:slots],
            "dead": self._dead[: slots // _BITS],
            "level_postings": self._level_postings,
            "state": state,
            "waiting": np.stack(list(map(np.concatenate, zip(none, *self._waiting, strict=True)))),
            "stack": np.array([len(self._stack)]),
        }

    def release(self) -> None:
        self._shown = None

    def _restore(self, parts: Parts) -> None:
        for name in _ARRAYS:
            setattr(self, "_" + name, parts[name])
        lsns, slots = parts["waiting"]
        if len(lsns):
            self._waiting.append((lsns, slots))
        self._tombstones = len(lsns)
        self._stack = np.zeros(int(parts["stack"][0]), np.bool_)

    # --- updates ----------------------------------------------------------

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Store the inserts among `rows`; rows without tags can match nothing here."""
        if len(rows.prog):
            self._stack = np.zeros(
                max(len(self._stack), int(np.diff(rows.prog_off).max())), np.bool_
            )
        for start in range(0, len(rows), _CHUNK):
            self._insert(rows, tag_off, tag_cell, tag_term, start, min(start + _CHUNK, len(rows)))

    def _insert(
        self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64, start: int, stop: int
    ) -> None:
        state = self._state
        self._reserve(stop - start, int(tag_off[stop] - tag_off[start]))
        state[kl.ROW], state[kl.TAG], state[kl.SLOT] = start, tag_off[start], -1
        columns = [
            sealed(c)
            for c in (
                rows.kind[:stop], rows.handle, rows.session, rows.form, rows.post,
                rows.term_off, rows.term, rows.prog_off, rows.prog, rows.box_off, rows.box,
                rows.shape, rows.geom_off, rows.geom, tag_off, tag_cell, tag_term,
            )
        ]  # fmt: skip
        while True:
            arguments: Any = (
                *columns,
                self._lon_bits, self._lat_bits, self._table, self._runs, self._run_free,
                self._slots, self._slots.view(np.int64), self._general, self._left,
                self._places, self._pool, self._pool.view(np.float64), self._pool_free,
                self._level_postings, state,
            )  # fmt: skip
            need = kp.insert_rows(*arguments)
            if need == kp.DONE:
                return
            if need == kp.GROW_RUNS:
                self._runs = _grown(self._runs, len(self._runs) + (64 << 10))
            else:
                row = int(state[kl.ROW])
                words = sum(
                    int(off[row + 1] - off[row])
                    for off in (rows.term_off, rows.prog_off, rows.geom_off)
                )
                self._pool = _grown(self._pool, len(self._pool) + 2 * (words + 2 * kl.POOL_UNIT))

    def _reserve(self, rows: int, tags: int) -> None:
        """Room for this many more queries and tags in everything but runs and pool."""
        state = self._state
        tags += int(state[kl.TABLE_USED])
        if tags > _FULL * len(self._table) * kl.BUCKET:
            table = _lines(int(tags / _EMPTY) // kl.BUCKET + 1).view(np.uint64)
            kp.rehash(self._table, table)
            self._table = table
        held = int(state[kl.LIVE]) + rows
        if held > _FULL * len(self._places):
            places: U32 = np.zeros(int(held / _EMPTY), np.uint32)
            kp.replace_places(self._places, places, self._slots.view(np.int64))
            self._places = places
        top = int(state[kl.SLOT_TOP]) + rows
        if top > len(self._slots):
            size = -(-max(top, int(len(self._slots) * _GROWTH)) // _BITS) * _BITS
            if size > kl.SLOT_MASK:
                raise MemoryError(f"a worker holds at most {kl.SLOT_MASK} queries")
            slots = _lines(size)
            slots[: len(self._slots)] = self._slots
            self._slots = slots
            self._general = _grown(self._general, size)[:size]
            self._left = _grown(self._left, size)[:size]
            self._dead = _grown(self._dead, size // _BITS)[: size // _BITS]

    def delete(self, handles: I64, lsns: I64) -> None:
        """Lazy: the slots get their delete LSN; the postings stay (algorithms.md 1.7)."""
        if len(handles) == 0:
            return
        slots = np.empty(len(handles), np.int64)
        kd.delete_handles(
            sealed(handles), sealed(lsns), self._places,
            self._slots.view(np.int64), self._state, slots,
        )  # fmt: skip
        known = slots >= 0
        order = np.argsort(lsns[known], kind="stable")
        if len(order):
            self._waiting.append((lsns[known][order], slots[known][order]))
            self._tombstones += len(order)

    def purge(self, watermark: int) -> None:
        """Let the postings of queries deleted up to `watermark` go when they are met."""
        if self._shown is not None:
            return
        while self._waiting and self._waiting[0][0][0] <= watermark:
            lsns, slots = self._waiting.popleft()
            ripe = int(np.searchsorted(lsns, watermark, "right"))
            kd.mark_dead(slots[:ripe], self._dead, self._state)
            self._tombstones -= ripe
            if ripe < len(lsns):
                self._waiting.appendleft((lsns[ripe:], slots[ripe:]))

    def sweep(self, budget: int) -> int:
        """Purge the next `budget` lists, if any deleted query may go; postings removed."""
        if self._state[kl.PURGEABLE] == 0 or self._shown is not None:
            return 0
        return int(
            kd.sweep_table(
                budget, self._table, self._runs,
                self._run_free, self._dead, self._left, self._slots.view(np.int64),
                self._general, self._pool, self._pool_free, self._level_postings, self._state,
            )
        )  # fmt: skip

    # --- matching ---------------------------------------------------------

    def match(self, lsn: int, lon: F64, lat: F64, term_off: I64, term: U64) -> Matches:
        """As-of matching of a batch; see `Index.match`."""
        lon, lat, term_off, term = map(sealed, (lon, lat, term_off, term))
        levels = np.flatnonzero(self._level_postings)
        resume = np.zeros(4, np.int64)
        dead = self._dead if self._shown is None else self._shown
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
                    self._block,
                )  # fmt: skip
                if need == km.MATCHED:
                    break
                if need == km.MORE_CANDIDATES:
                    self._cands = np.zeros((2 * len(self._cands), 4), np.uint32)
                self._more_matches()
        n = int(resume[km.R_OUT])
        found = Matches(self._row[:n].copy(), self._handle[:n].copy(), self._session[:n].copy())
        block = self._block[:n]
        return self._exact(found, block, lon, lat) if block.any() else found

    def _more_matches(self) -> None:
        size = 2 * len(self._row)
        self._row = _grown(self._row, size)
        self._handle = _grown(self._handle, size)
        self._session = _grown(self._session, size)
        self._block = _grown(self._block, size)

    def _exact(self, found: Matches, block: I64, lon: F64, lat: F64) -> Matches:
        """Drop the pairs whose circle or polygon does not hold the object."""
        at = np.flatnonzero(block)
        blocks, first, pick = np.unique(block[at], return_index=True, return_inverse=True)
        head = self._pool[blocks + kl.P_HEAD]
        start = blocks + kl.P_TERM + (head >> 24 & 255).astype(np.int64)
        start += (head >> 32).astype(np.int64)
        size = (self._pool[blocks + kl.P_GEOM] & ((1 << 48) - 1)).astype(np.int64)
        off = np.zeros(len(blocks) + 1, np.int64)
        np.cumsum(size, out=off[1:])
        where = np.arange(off[-1], dtype=np.int64) + np.repeat(start - off[:-1], size)
        geom = self._pool.view(np.float64)[where]
        row = found.row[at]
        inside = verify(
            (head >> 8 & 255).astype(np.uint8), off, geom, pick.astype(np.int64),
            lon[row], lat[row], self._polygons, found.handle[at[first]],
        )  # fmt: skip
        keep = np.ones(len(block), np.bool_)
        keep[at] = inside
        return Matches(found.row[keep], found.handle[keep], found.session[keep])

    def stats(self) -> IndexStats:
        """Sizes; `bytes` counts all arrays with their slack, scratch space excluded."""
        state = self._state
        held = (self._table, self._places, self._runs, self._pool, self._slots,
                self._general, self._left, self._dead)  # fmt: skip
        return IndexStats(
            live=int(state[kl.LIVE]),
            tombstones=self._tombstones + int(state[kl.PURGEABLE]),
            postings=int(state[kl.POSTINGS]),
            bytes=sum(int(a.nbytes) for a in held),
        )
