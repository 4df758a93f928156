"""Passes over all units of GI2: which there are, what they hold, and dropping them."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER
from ps2stream.routing.shard_kernels import hash_corner
from ps2stream.space.prefetch import prefetch
from ps2stream.workers.arrays import IndexArrays
from ps2stream.workers.layout import (
    BUCKET,
    CELL_BITS,
    CELL_MASK,
    DELETED,
    LEN_BITS,
    LEN_MASK,
    LIVE,
    LOW,
    NONE,
    P_GEOM,
    POOL_UNIT,
    POSTING,
    POSTINGS,
    PURGEABLE,
    REST,
    SLOT_MASK,
    TABLE_USED,
    find_tag,
    free_run,
    home,
    is_dead,
    line_count,
)
from ps2stream.workers.purge_kernels import free_slot, remove_handle, remove_tag

_AHEAD = 8  # buckets, or units, whose runs are prefetched
_SLOT_BYTES, _POSTING_BYTES, _WORD_BYTES = 64, 4 * POSTING, 8


@njit(cache=True, nogil=True)
def list_units(table, bucket, cell, term, run):
    """Fills the columns with the tags from `bucket` on; returns the next bucket and the number of
    tags."""
    n = 0
    while bucket < table.shape[0] and n + BUCKET <= cell.shape[0]:
        for i in range(BUCKET):
            word = table[bucket, BUCKET + i]
            if word == NONE:
                break
            cell[n] = np.uint32(word >> np.uint64(32))
            term[n] = table[bucket, i]
            run[n] = np.uint32(word & LOW)
            n += 1
        bucket += 1
    return bucket, n


@njit(cache=True, nogil=True)
def _release_posting(slot, index):
    """Counts one posting less of a query, and removes one without any left. Returns 1 where its
    delete waits for the watermark, and its slot is the caller's to free."""
    left, slots_i, state = index.left, index.slots_i, index.state
    left[slot] -= 1
    if left[slot] != 0:
        return 0
    if is_dead(index.dead, slot):
        index.dead[slot >> 6] &= ~(np.uint64(1) << np.uint64(slot & 63))
        state[PURGEABLE] -= 1
    elif slots_i[slot, DELETED] == NEVER:
        remove_handle(slot, index.places, slots_i)
        state[LIVE] -= 1
    else:
        return 1
    free_slot(slot, slots_i, index.general, index.pool, index.pool_free, state)
    return 0


@njit(cache=True, nogil=True)
def drop_units(cell, term, run, fields):
    """Removes these tags with their postings. A query without any left is removed too, unless its
    delete waits for the watermark: the slots of such queries are the caller's to free, and their
    number is returned. cell uint32[k], term uint64[k], run uint32[k]; fields: a plain tuple of
    those of IndexArrays."""
    index = IndexArrays(*fields)
    table, runs, state = index.table, index.runs, index.state
    waiting = 0
    for k in range(run.shape[0]):
        if k + _AHEAD < run.shape[0]:
            prefetch(runs, np.int64(run[k + _AHEAD]))
        at = np.int64(run[k])
        length = np.int64(runs[at]) & LEN_MASK
        for i in range(length):
            waiting += _release_posting(np.int64(runs[at + 1 + i * POSTING + 2]) & SLOT_MASK, index)
        state[POSTINGS] -= length
        index.level_postings[np.int64(cell[k]) >> CELL_BITS] -= length
        free_run(runs, index.run_free, at, np.int64(runs[at]) >> LEN_BITS)
        state[TABLE_USED] -= 1
        where = home(term[k], cell[k], table.shape[0])
        bucket, word = find_tag(table, where, term[k], np.uint64(cell[k]))
        column = np.int64(0)
        while table[bucket, BUCKET + column] != word:
            column += 1
        remove_tag(table, bucket, column)
    return waiting


@njit(cache=True, nogil=True)
def count_units(run, runs, off):
    """Sets off[k + 1] to the number of postings of the tags 0..k."""
    off[0] = 0
    for k in range(run.shape[0]):
        off[k + 1] = off[k] + (np.int64(runs[np.int64(run[k])]) & LEN_MASK)


@njit(cache=True, nogil=True)
def list_places(run, runs, slots_i, place):
    """Fills in the place of the query of each posting of these tags, by which sharded units divide
    queries."""
    n = 0
    for k in range(run.shape[0]):
        at = np.int64(run[k])
        for i in range(np.int64(runs[at]) & LEN_MASK):
            slot = np.int64(runs[at + 1 + i * POSTING + 2]) & SLOT_MASK
            found = NONE
            for j in range(4):
                found = hash_corner(found, np.uint64(slots_i[slot, j]))
            place[n] = found
            n += 1


@njit(cache=True, nogil=True)
def keep_postings(cell, run, off, kept, fields):
    """Removes the postings of these tags for which `kept`, in the order of `list_places`, is false;
    each tag keeps one or more. Queries are removed and counted as by `drop_units`."""
    index = IndexArrays(*fields)
    runs, waiting = index.runs, 0
    for k in range(run.shape[0]):
        at = np.int64(run[k])
        for i in range(off[k + 1] - off[k] - 1, -1, -1):
            if kept[off[k] + i]:
                continue
            p = at + 1 + i * POSTING
            slot = np.int64(runs[p + 2]) & SLOT_MASK
            last = at + 1 + ((np.int64(runs[at]) & LEN_MASK) - 1) * POSTING
            for z in range(POSTING):
                runs[p + z] = runs[last + z]
            runs[at] = np.uint32(np.int64(runs[at]) - 1)
            index.state[POSTINGS] -= 1
            index.level_postings[np.int64(cell[k]) >> CELL_BITS] -= 1
            waiting += _release_posting(slot, index)
    return waiting


@njit(cache=True, nogil=True)
def free_waiting(slots, places, slots_i, general, pool, pool_free, state):
    """Frees the slots of deleted queries that have no posting left."""
    for i in range(slots.shape[0]):
        remove_handle(slots[i], places, slots_i)
        free_slot(slots[i], slots_i, general, pool, pool_free, state)


@njit(cache=True, nogil=True)
def measure_queries(slots_i, general, pool, slot, out):
    """Fills `out` with the bytes of each query with one posting, in the slots from `slot` on; 0
    where there is no live one."""
    for i in range(out.shape[0]):
        out[i] = 0
        if slots_i[slot + i, DELETED] == NEVER:
            out[i] = _SLOT_BYTES + _POSTING_BYTES
            if general[slot + i]:
                cls = pool[slots_i[slot + i, REST] + P_GEOM] >> np.uint64(48)
                out[i] += (_WORD_BYTES * POOL_UNIT) << np.int64(cls)


@njit(cache=True, nogil=True)
def weigh_units(table, runs, size, level, lon_bits, bucket, end, out):
    """Fills `out`, a plain tuple of the fields of StoredCensus, with the tags from `bucket` to
    `end` that have live queries: the cell (that of `level` where it is finer), how many queries
    there are, and their bytes by `size` of their slots; slots beyond `size` count as empty.
    Returns the next bucket and the number of rows."""
    cell, queries, held = out
    n = 0
    while bucket < end and n + BUCKET <= cell.shape[0]:
        ahead = min(bucket + _AHEAD, table.shape[0] - 1)
        for i in range(BUCKET):
            prefetch(runs, np.int64(table[ahead, BUCKET + i] & LOW))
        for i in range(BUCKET):
            word = table[bucket, BUCKET + i]
            if word == NONE:
                break
            run = np.int64(word & LOW)
            live = total = np.int64(0)
            for j in range(np.int64(runs[run]) & LEN_MASK):
                slot = np.int64(runs[run + 1 + j * POSTING + 2]) & SLOT_MASK
                each = size[slot] if slot < size.shape[0] else np.uint32(0)
                live += each != 0
                total += each
            if live == 0:
                continue
            cell[n] = _find_ancestor(np.int64(word >> np.uint64(32)), level, lon_bits)
            queries[n], held[n] = live, total
            n += 1
        bucket += 1
    return bucket, n


@njit(inline="always")
def _find_ancestor(tag, level, lon_bits):
    """Returns the cell of `level` that a finer cell lies in; a coarser one itself."""
    own = tag >> CELL_BITS
    if own >= level:
        return np.uint32(tag)
    columns, line, up = line_count(lon_bits, own), tag & CELL_MASK, 2 * (level - own)
    above = (line // columns >> up) * line_count(lon_bits, level) + (line % columns >> up)
    return np.uint32(level << CELL_BITS | above)
