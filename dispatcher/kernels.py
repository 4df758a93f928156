"""Kernels of gridt: they route objects by H1 and H2.

H2 is the table of `h2_kernels.py`, of which kernels take the fields of H2Columns as a
plain tuple; `used` int64[17]: its units on each of the 16 levels, and [ALL] over all levels.
"""

# Numba gives an intrinsic its first argument.
# mypy: disable-error-code="call-arg, arg-type"
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.dispatcher.h2_kernels import (
    AHEAD,
    ALL,
    NONE,
    count_unit,
    find_home,
    find_in_bucket,
    find_other,
    has_away,
)
from ps2stream.dispatcher.replica_kernels import choose_replicas, count_group
from ps2stream.dispatcher.shedding_kernels import count_live
from ps2stream.multicast.capping_kernels import shed_copies
from ps2stream.protocol.frame import F64, I64, U8, U32, U64
from ps2stream.protocol.pointers import borrow, prefetch
from ps2stream.routing.unit_kernels import FIRST_GROUP, LEVEL_SHIFT, U16, LeafTuple, find_owner, mix
from ps2stream.space.space_kernels import find_cells

NEWER = 8
"""Levels of the grid; levels from this one on are of the newer of two coexisting plans."""
_NEWER_BIT = np.uint32(NEWER << LEVEL_SHIFT)
_FIRST_GROUP = np.uint64(FIRST_GROUP)
_ONE = np.uint64(1)
Routes = tuple[LeafTuple, LeafTuple, tuple[int, int]]
"""The fields of LeafArrays of the H1 that serves and of the newer one, and their workers."""


class RoutedColumns(NamedTuple):
    """The objects that are routed: lon, lat float64[n], term_off int64[n + 1], term uint64[];
    C-contiguous, read-only."""

    lon: F64
    lat: F64
    term_off: I64
    term: U64


class ShareColumns(NamedTuple):
    """The columns of all shares, one behind the other: row uint32[m], lon, lat float64[m], off
    int64[m + shares], term uint64[], chosen uint8[]; C-contiguous, writable. Each share has one
    offset more than rows, and the first is 0. Each begins a new byte of `chosen`, of which bit
    i % 8 of byte i / 8 is set if the share's term i chose the worker."""

    row: U32
    lon: F64
    lat: F64
    off: I64
    term: U64
    chosen: U8


@njit(inline="always")
def find_route(cell: np.uint32, term: np.uint64, routes: Routes) -> np.uint16:
    """Returns the owner of a unit of H2, by the H1 that has the queries of its level."""
    if cell >= _NEWER_BIT:
        return find_owner(cell & ~_NEWER_BIT, term, routes[1], routes[2][1])
    return find_owner(cell, term, routes[0], routes[2][0])


@njit(cache=True, nogil=True)
def select_workers(
    parts: I64, cells: U32, term_off: I64, term: U64, routes: Routes, by_term: U64, by_group: U16
) -> None:
    """Sets bit w of by_term[k] (uint64[terms, words]) for each worker w that has a query under a
    unit of the k-th term from term_off[0] on. Where a group owns the unit on a level, sets
    by_group[level, k] (uint16) to one more than its number. parts: of H2Columns; cells:
    uint32[levels, n], the tag cell of each object on each level in use.

    A chunk of probes first asks for its home buckets, all independent of each other so that
    the cache misses overlap, and only then reads them; likewise for the other buckets.
    """
    routes = borrow(routes)
    hashes = np.empty(AHEAD, np.uint64)
    row, at = np.empty(AHEAD, np.int64), np.empty(AHEAD, np.int64)
    hit, rest = np.empty(AHEAD, np.int64), np.empty(AHEAD, np.int64)
    first = term_off[0]
    total = term_off[len(term_off) - 1]
    i = 0
    for start in range(first, total, AHEAD):
        n = min(AHEAD, total - start)
        for j in range(n):
            while start + j >= term_off[i + 1]:
                i += 1
            row[j] = i
        for level in range(len(cells)):
            for j in range(n):
                h = mix(np.uint64(cells[level, row[j]]), term[start + j])
                hashes[j] = h
                at[j] = find_home(parts, h)
                prefetch(at[j])
            met = away = 0
            for j in range(n):
                place = np.uint64(cells[level, row[j]])
                if find_in_bucket(at[j], place, term[start + j]) != NONE:
                    hit[met] = j
                    met += 1
                elif has_away(at[j]):
                    at[away] = find_other(parts, hashes[j])
                    prefetch(at[away])
                    rest[away] = j
                    away += 1
            for k in range(away):
                j = rest[k]
                place = np.uint64(cells[level, row[j]])
                if find_in_bucket(at[k], place, term[start + j]) != NONE:
                    hit[met] = j
                    met += 1
            for k in range(met):
                j = hit[k]
                w = np.uint64(find_route(cells[level, row[j]], term[start + j], routes))
                if w >= _FIRST_GROUP:
                    by_group[level, start + j - first] = w - _FIRST_GROUP + _ONE
                    continue
                by_term[start + j - first, w >> np.uint64(6)] |= _ONE << (w & np.uint64(63))


@njit(cache=True, nogil=True)
def count_candidates(
    units: tuple[I64, U64, U32],
    cells: U32,
    objects: tuple[I64, U64],
    routes: Routes,
    groups: tuple[I64, U16, U8],
    met: I64,
) -> None:
    """Adds to met[w], for each object, the live queries under those of its units that worker w
    compares (`count_group`). units: of H2Columns; cells: uint32[levels, n], as in
    `select_workers`; objects: their offsets and terms; groups: of WorkerGroups."""
    term_off, term = objects
    for level in range(len(cells)):
        for i in range(len(term_off) - 1):
            cell = cells[level, i]
            for k in range(term_off[i], term_off[i + 1]):
                queries = count_unit(units, np.uint64(cell), term[k])
                if not queries:
                    continue
                w = np.int64(find_route(cell, term[k], routes))
                if w >= FIRST_GROUP:
                    count_group(queries, w - FIRST_GROUP, i, groups, met)
                else:
                    met[w] += queries


@njit(cache=True, nogil=True)
def count_queries(units: tuple[I64, U64, U32], cell: U32, term: U64, out: I64) -> None:
    """Sets out[i] to the live queries under (tag cell[i], term[i])."""
    for i in range(len(cell)):
        out[i] = count_unit(units, np.uint64(cell[i]), term[i])


@njit(cache=True, nogil=True)
def count_postings(owner: U16, count: U32, groups: tuple[I64, U16, U8], out: I64) -> None:
    """Adds to out[w] the live queries under the units of worker w and of groups with it that
    replicate, and to the last of `out` those under sharded units. owner, count: of each unit;
    groups: of WorkerGroups."""
    for i in range(len(owner)):
        w, queries = np.int64(owner[i]), np.int64(count[i])
        if w < FIRST_GROUP:
            out[w] += queries
            continue
        if groups[2][w - FIRST_GROUP]:
            out[len(out) - 1] += queries
            continue
        for j in range(groups[0][w - FIRST_GROUP], groups[0][w - FIRST_GROUP + 1]):
            out[groups[1][j]] += queries


@njit(cache=True, nogil=True)
def share_sizes(by_term: U64, by_row: U64, term_off: I64, rows: I64, terms: I64) -> int:
    """Sets by_row[i] (uint64[n, words]) to the bits of the workers that one of object i's terms
    chose, and adds to rows[w] and terms[w] the objects that go to worker w and their terms.
    Returns how many objects go to no worker."""
    discarded = 0
    first = term_off[0]
    for i in range(len(by_row)):
        wanted = False
        size = term_off[i + 1] - term_off[i]
        for word in range(by_row.shape[1]):
            bits = np.uint64(0)
            for k in range(term_off[i] - first, term_off[i + 1] - first):
                bits |= by_term[k, word]
            by_row[i, word] = bits
            wanted |= bits != 0
            w = word * 64
            while bits:
                if bits & _ONE:
                    rows[w] += 1
                    terms[w] += size
                bits >>= _ONE
                w += 1
        discarded += not wanted
    return discarded


@njit(cache=True, nogil=True)
def scatter_objects(
    by_term: U64,
    by_row: U64,
    objects: tuple[F64, F64, I64, U64],
    row_at: I64,
    term_at: I64,
    byte_at: I64,
    worker_index: I64,
    shares: tuple[U32, F64, F64, I64, U64, U8],
) -> None:
    """Appends each object to the columns of the workers chosen for it.

    objects, shares: plain tuples of the fields of RoutedColumns and ShareColumns, which a kernel
    takes faster from Python than the classes themselves. by_term, by_row: as in `share_sizes`.
    Worker w is the worker_index[w]-th share. Its rows start at row_at[w], its terms at term_at[w]
    and its bits at byte byte_at[w] of the common arrays, of which `chosen` has only zeros; the
    first two are advanced. Its offsets, which have one more element per share, start at
    row_at[w] + worker_index[w] and begin with a 0 set here.
    """
    given, out = RoutedColumns(*objects), ShareColumns(*shares)
    lon, lat, term_off, term = given.lon, given.lat, given.term_off, given.term
    out_row, out_lon, out_lat, out_off, out_term = out.row, out.lon, out.lat, out.off, out.term
    out_chosen = out.chosen
    base = term_at.copy()
    first = term_off[0]
    for w in range(len(row_at)):
        if worker_index[w] >= 0:
            out_off[row_at[w] + worker_index[w]] = 0
    for i in range(len(by_row)):
        a, b = term_off[i], term_off[i + 1]
        for word in range(by_row.shape[1]):
            bits = by_row[i, word]
            w = word * 64
            while bits:
                if bits & _ONE:
                    r = row_at[w]
                    k = term_at[w]
                    out_row[r] = i
                    out_lon[r] = lon[i]
                    out_lat[r] = lat[i]
                    shift = np.uint64(w & 63)
                    own = k - base[w]  # of the row's first term among those of the share
                    for t in range(b - a):
                        out_term[k + t] = term[a + t]
                        bit = (by_term[a + t - first, word] >> shift) & _ONE
                        out_chosen[byte_at[w] + ((own + t) >> 3)] |= np.uint8(
                            bit << np.uint64((own + t) & 7)
                        )
                    row_at[w] = r + 1
                    term_at[w] = k + b - a
                    out_off[r + 1 + worker_index[w]] = term_at[w] - base[w]
                bits >>= _ONE
                w += 1


@njit(cache=True, nogil=True)
def route_objects(
    units: tuple[I64, U64, U32],
    used: I64,
    lines: F64,
    objects: tuple[F64, F64, I64, U64],
    routes: Routes,
    groups: tuple[I64, U16, U8],
    waiting: tuple[F64, float],
    shedding: tuple[float, bool, U8, F64, I64, I64, I64, U64, U8],
) -> tuple[int, I64, I64, I64, U32, F64, F64, I64, U64, U8]:
    """Routes objects, a plain tuple of the fields of RoutedColumns; lines: of the grid; groups: of
    WorkerGroups; waiting: `waits` and `time` of `choose_replicas`; shedding: a plain tuple of
    SheddingColumns, by which copies are shed unless its columns are empty. Returns how many go to
    no worker; where the rows, the terms and the bytes of `chosen` of each worker begin,
    int64[workers + 1] each; and the fields of ShareColumns. A worker without rows has no
    offsets."""
    lon, lat, term_off, term = objects
    workers = len(waiting[0])
    n, words = len(lon), (workers + 63) // 64
    cells = np.empty((np.count_nonzero(used[:ALL]), n), np.uint32)
    levels = 0
    for level in range(ALL):
        if used[level]:
            find_cells(lon, lat, lines, level % NEWER, cells[levels])
            if level >= NEWER:
                for i in range(n):
                    cells[levels, i] |= _NEWER_BIT
            levels += 1
    by_term = np.zeros((term_off[n] - term_off[0], words), np.uint64)
    by_row = np.empty((n, words), np.uint64)
    some = len(groups[1]) > 0
    by_group = np.zeros((len(cells) if some else 0, len(by_term)), np.uint16)
    select_workers(units[0], cells, term_off, term, routes, by_term, by_group)
    if some:
        choose_replicas(by_term, by_group, term_off, groups, waiting[0], waiting[1])
    targets, by_queries, state, draw, fan, copies, shed, cut, lost = shedding
    if len(state):
        live = np.zeros(len(by_term), np.int64)
        count_live(units, cells, term_off, term, live)
        shed[0] += shed_copies(
            by_term, live, term_off, targets, by_queries, state, draw, fan, copies, cut, lost
        )
    row_n, term_n = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
    discarded = share_sizes(by_term, by_row, term_off, row_n, term_n)
    row_at, term_at = np.zeros(workers + 1, np.int64), np.zeros(workers + 1, np.int64)
    byte_at, index = np.zeros(workers + 1, np.int64), np.full(workers, -1, np.int64)
    shares = 0
    for w in range(workers):
        row_at[w + 1] = row_at[w] + row_n[w]
        term_at[w + 1] = term_at[w] + term_n[w]
        byte_at[w + 1] = byte_at[w] + ((term_n[w] + 7) >> 3)
        if row_n[w]:
            index[w] = shares
            shares += 1
    rows = row_at[workers]
    row, out_lon, out_lat = np.empty(rows, np.uint32), np.empty(rows), np.empty(rows)
    off, out_term = np.empty(rows + shares, np.int64), np.empty(term_at[workers], np.uint64)
    chosen = np.zeros(byte_at[workers], np.uint8)
    scatter_objects(
        by_term, by_row, objects, row_at[:-1].copy(), term_at[:-1].copy(), byte_at, index,
        (row, out_lon, out_lat, off, out_term, chosen),
    )  # fmt: skip
    return discarded, row_at, term_at, byte_at, row, out_lon, out_lat, off, out_term, chosen


@njit(cache=True, nogil=True)
def raise_last(off: I64, receiver: U16, lsn: I64, last: I64) -> int:
    """Raises last[r] to the highest lsn[i] of the rows i that concern receiver r; the receivers of
    row i are receiver[off[i] : off[i + 1]]. Returns the number of receivers that `last` must have
    room for, if it has room for fewer; else 0, and only then all rows were noted."""
    size = 0
    for k in range(len(receiver)):
        size = max(size, int(receiver[k]) + 1)
    if size > len(last):
        return int(size)
    for i in range(len(lsn)):
        for k in range(off[i], off[i + 1]):
            last[receiver[k]] = max(last[receiver[k]], lsn[i])
    return 0
