"""Passes over all units of GI2: which there are, what they hold, and dropping them."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER
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
def drop_units(cell, term, run, fields):
    """Removes these tags with their postings. A query without any left is removed too, unless its
    delete waits for the watermark: the slots of such queries are the caller's to free, and their
    number is returned. cell uint32[k], term uint64[k], run uint32[k]; fields: a plain tuple of
    those of IndexArrays."""
    index = IndexArrays(*fields)
    table, runs, places, slots_i = index.table, index.runs, index.places, index.slots_i
    left, dead, state = index.left, index.dead, index.state
    waiting = 0
    for k in range(run.shape[0]):
        if k + _AHEAD < run.shape[0]:
            prefetch(runs, np.int64(run[k + _AHEAD]))
        at = np.int64(run[k])
        length = np.int64(runs[at]) & LEN_MASK
        for i in range(length):
            slot = np.int64(runs[at + 1 + i * POSTING + 2]) & SLOT_MASK
            left[slot] -= 1
            if left[slot] != 0:
                continue
            if is_dead(dead, slot):
                dead[slot >> 6] &= ~(np.uint64(1) << np.uint64(slot & 63))
                state[PURGEABLE] -= 1
            elif slots_i[slot, DELETED] == NEVER:
                remove_handle(slot, places, slots_i)
                state[LIVE] -= 1
            else:
                waiting += 1
                continue
            free_slot(slot, slots_i, index.general, index.pool, index.pool_free, state)
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
