"""Lazy deletion in GI2 (algorithms.md 1.7): delete, mark, drop when met, sweep."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.layout import (
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
    find_place,
    give_run,
    home,
    is_dead,
    place,
)


@njit(cache=True, nogil=True)
def delete_handles(handles, lsns, places, place_shift, slots_i, state, out):
    """Set the delete LSNs and forget the handles; out[i] = slot, or -1 if unknown."""
    mask = places.shape[0] - 1
    for i in range(handles.shape[0]):
        at = find_place(places, place_shift, slots_i, handles[i])
        if places[at] == 0:
            out[i] = -1
            continue
        slot = np.int64(places[at]) - 1
        slots_i[slot, DELETED] = lsns[i]
        out[i] = slot
        state[LIVE] -= 1
        gap = at
        at = (at + 1) & mask
        while places[at] != 0:  # close the gap: Knuth 6.4 R
            want = place(slots_i[np.int64(places[at]) - 1, HANDLE], place_shift)
            if (at - want) & mask >= (at - gap) & mask:
                places[gap] = places[at]
                gap = at
            at = (at + 1) & mask
        places[gap] = 0


@njit(cache=True, nogil=True)
def mark_dead(slots, dead, state):
    """These slots can match no object any more: their postings go when met."""
    for i in range(slots.shape[0]):
        dead[slots[i] >> 6] |= np.uint64(1) << np.uint64(slots[i] & 63)
    state[PURGEABLE] += slots.shape[0]


@njit(cache=True, nogil=True)
def drop_posting(
    runs, run, i, level, dead, left, slots_i, general, pool, pool_free, level_postings, state
):
    """Remove posting i of a run; with its last posting a query's slot becomes free."""
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
    if general[slot]:
        at = slots_i[slot, REST]
        cls = np.int64(pool[at + P_GEOM] >> np.uint64(48))
        pool[at] = np.uint64(pool_free[cls])
        pool_free[cls] = at
    slots_i[slot, HANDLE] = state[SLOT_FREE]
    state[SLOT_FREE] = slot
    state[PURGEABLE] -= 1


@njit(cache=True, nogil=True)
def sweep_table(
    budget, table, table_shift, runs, run_free, dead, left, slots_i, general, pool,
    pool_free, level_postings, state,
):  # fmt: skip
    """Purge the lists of the next `budget` table entries; how many postings went."""
    mask = table.shape[0] - 1
    before = state[POSTINGS]
    at = state[CURSOR] & mask
    for _ in range(min(budget, table.shape[0] + state[TABLE_USED])):  # removals stay in place
        word = table[at, 1]
        if word == NONE:
            at = (at + 1) & mask
            continue
        run = np.int64(word & LOW)
        level = np.int64(word >> np.uint64(32)) >> CELL_BITS
        i = 0
        while i < np.int64(runs[run]) & LEN_MASK:
            if is_dead(dead, np.int64(runs[run + 1 + i * POSTING + 2]) & SLOT_MASK):
                drop_posting(runs, run, i, level, dead, left, slots_i, general, pool,
                             pool_free, level_postings, state)  # fmt: skip
            else:
                i += 1
        if np.int64(runs[run]) & LEN_MASK != 0:
            at = (at + 1) & mask
            continue
        give_run(runs, run_free, run, np.int64(runs[run]) >> LEN_BITS)
        state[TABLE_USED] -= 1
        gap = at
        probe = (at + 1) & mask
        while table[probe, 1] != NONE:
            want = home(table[probe, 0], table[probe, 1] >> np.uint64(32), table_shift)
            if (probe - want) & mask >= (probe - gap) & mask:
                table[gap, 0] = table[probe, 0]
                table[gap, 1] = table[probe, 1]
                gap = probe
            probe = (probe + 1) & mask
        table[gap, 1] = NONE
    state[CURSOR] = at
    return before - state[POSTINGS]
