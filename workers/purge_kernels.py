"""Lazy deletion in GI2 (algorithms.md 1.7): delete, mark, drop when met, sweep."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER
from ps2stream.workers.arrays import IndexArrays
from ps2stream.workers.layout import (
    BUCKET,
    CELL_BITS,
    CURSOR,
    DELETED,
    HANDLE,
    LEN_BITS,
    LEN_MASK,
    LIVE,
    LOW,
    NONE,
    P_GEOM,
    POSTING,
    POSTINGS,
    PURGEABLE,
    REST,
    SLOT_FREE,
    SLOT_MASK,
    TABLE_USED,
    count_tags,
    find_place,
    free_run,
    home,
    home_place,
    is_dead,
    next_position,
    probe_distance,
)


@njit(cache=True, nogil=True)
def delete_handles(handles, lsns, places, slots_i, state, out):
    """Sets the delete LSNs; out[i] is the slot, or -1 if it is unknown or was deleted before. The
    handles stay in `places` until their slots are dead or free."""
    for i in range(handles.shape[0]):
        slot = np.int64(places[find_place(places, slots_i, handles[i])]) - 1
        if slot >= 0 and slots_i[slot, DELETED] == NEVER:
            slots_i[slot, DELETED] = lsns[i]
            state[LIVE] -= 1
        else:
            slot = np.int64(-1)
        out[i] = slot


@njit(cache=True, nogil=True)
def remove_handle(slot, places, slots_i):
    """Removes the handle of a slot from `places`."""
    size = places.shape[0]
    gap = find_place(places, slots_i, slots_i[slot, HANDLE])
    at = next_position(gap, size)
    while places[at] != 0:  # close the gap: Knuth 6.4 R
        want = home_place(slots_i[np.int64(places[at]) - 1, HANDLE], size)
        if probe_distance(at, want, size) >= probe_distance(at, gap, size):
            places[gap] = places[at]
            gap = at
        at = next_position(at, size)
    places[gap] = 0


@njit(cache=True, nogil=True)
def mark_dead(slots, dead, places, slots_i, state):
    """Marks slots that can match no object any more: their postings are removed when met."""
    for i in range(slots.shape[0]):
        remove_handle(slots[i], places, slots_i)
        dead[slots[i] >> 6] |= np.uint64(1) << np.uint64(slots[i] & 63)
    state[PURGEABLE] += slots.shape[0]


@njit(inline="always")
def free_slot(slot, slots_i, general, pool, pool_free, state):
    """Frees a slot, and its block in the pool, that nothing refers to any more."""
    if general[slot]:
        at = slots_i[slot, REST]
        cls = np.int64(pool[at + P_GEOM] >> np.uint64(48))
        pool[at] = np.uint64(pool_free[cls])
        pool_free[cls] = at
    slots_i[slot, HANDLE] = state[SLOT_FREE]
    slots_i[slot, DELETED] = 0
    state[SLOT_FREE] = slot


@njit(cache=True, nogil=True)
def drop_posting(
    runs, run, i, level, dead, left, slots_i, general, pool, pool_free, level_postings, state
):
    """Removes posting i of a run; with its last posting, the slot of a query becomes free. It is
    called for each dead posting, so it takes the arrays it needs and not all of IndexArrays."""
    head = np.int64(runs[run])
    last = run + 1 + ((head & LEN_MASK) - 1) * POSTING
    p = run + 1 + i * POSTING
    slot = np.int64(runs[p + 2]) & SLOT_MASK
    for z in range(POSTING):
        runs[p + z] = runs[last + z]
    runs[run] = np.uint32(head - 1)
    state[POSTINGS] -= 1
    level_postings[level] -= 1
    left[slot] -= 1
    if left[slot] != 0:
        return
    dead[slot >> 6] &= ~(np.uint64(1) << np.uint64(slot & 63))
    free_slot(slot, slots_i, general, pool, pool_free, state)
    state[PURGEABLE] -= 1


@njit(cache=True, nogil=True)
def remove_tag(table, b, i):
    """Removes tag i of bucket b; a tag that went past b because it was full moves up."""
    size = table.shape[0]
    while True:
        n = count_tags(table, b)
        table[b, i], table[b, BUCKET + i] = table[b, n - 1], table[b, BUCKET + n - 1]
        table[b, BUCKET + n - 1] = NONE
        if n < BUCKET:
            return
        full, found, p, j = True, False, b, 0
        while full and not found:
            p = next_position(p, size)
            m = count_tags(table, p)
            full = m == BUCKET
            for k in range(m):
                want = home(table[p, k], table[p, BUCKET + k] >> np.uint64(32), size)
                if probe_distance(p, want, size) >= probe_distance(p, b, size):
                    found, j = True, k
                    break
        if not found:
            return
        table[b, n - 1], table[b, BUCKET + n - 1] = table[p, j], table[p, BUCKET + j]
        b, i = p, j


@njit(cache=True, nogil=True)
def sweep_table(budget, fields):
    """Purges the lists of the next `budget` places in the table; returns the number of postings
    removed. fields: a plain tuple of those of IndexArrays."""
    index = IndexArrays(*fields)
    table, runs, dead, state = index.table, index.runs, index.dead, index.state
    left = index.left
    slots_i, general, level_postings = index.slots_i, index.general, index.level_postings
    pool, pool_free = index.pool, index.pool_free
    size = BUCKET * table.shape[0]
    before = state[POSTINGS]
    at = state[CURSOR] % size
    for _ in range(min(budget, size + state[TABLE_USED])):  # a removal does not move on
        bucket, column = at // BUCKET, at % BUCKET
        word = table[bucket, BUCKET + column]
        if word == NONE:
            at = next_position(at, size)
            continue
        run = np.int64(word & LOW)
        level = np.int64(word >> np.uint64(32)) >> CELL_BITS
        i = np.int64(0)
        while i < np.int64(runs[run]) & LEN_MASK:
            if is_dead(dead, np.int64(runs[run + 1 + i * POSTING + 2]) & SLOT_MASK):
                drop_posting(
                    runs, run, i, level, dead, left, slots_i, general, pool, pool_free,
                    level_postings, state,
                )  # fmt: skip
            else:
                i += 1
        if np.int64(runs[run]) & LEN_MASK != 0:
            at = next_position(at, size)
            continue
        free_run(runs, index.run_free, run, np.int64(runs[run]) >> LEN_BITS)
        state[TABLE_USED] -= 1
        remove_tag(table, bucket, column)
    state[CURSOR] = at
    return before - state[POSTINGS]
