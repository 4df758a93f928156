"""Access predicates: the universal one, single equalities, and conjunctions in a hash of all
tables of several attributes, whose keys are the numbers of their equalities and so exact."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.layout import (
    ENTRIES,
    ENTRY_SLOTS_USED,
    FREE_ENTRY,
    MAX_SCHEMA,
)

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)
_S = np.uint64(32)


@kernel
def hash_key(first, second, third):
    """Returns 32 bits of three ids, the last of which may be -1."""
    h = (np.uint64(first) << _S | np.uint64(second)) * _C1 ^ np.uint64(third + 1) * _C2
    h = (h ^ h >> _S) * _C2
    return np.int64(h >> _S)


@kernel
def find_entry(entry_slots, first, second, third):
    """Returns the access predicate of these two or three equalities, or -1."""
    mask = entry_slots.shape[0] - 1
    at = hash_key(first, second, third) & mask
    while entry_slots[at, 3] != 0:
        if (
            entry_slots[at, 0] == first
            and entry_slots[at, 1] == second
            and entry_slots[at, 2] == third
        ):
            return np.int64(entry_slots[at, 3]) - 1
        at = (at + 1) & mask
    return -1


@kernel
def take_entry(a, key, table):
    """Returns the access predicate of `table` with these ids, int32[3], filled up with -1: the one
    that exists, or a new one, for which there must be room."""
    if key[0] < 0:
        return 0
    found = np.int64(a.pred_entry[key[0]])
    if key[1] >= 0:
        found = find_entry(a.entry_slots, key[0], key[1], key[2])
    if found >= 0:
        return found
    number = a.state[FREE_ENTRY]
    if number >= 0:
        a.state[FREE_ENTRY] = a.entry_head[number]
    else:
        number = a.state[ENTRIES]
        a.state[ENTRIES] += 1
    nu = 1.0
    for k in range(MAX_SCHEMA):
        a.entry_key[number, k] = key[k]
        if key[k] >= 0:
            nu *= a.pred_nu[key[k]]
    a.entry_table[number] = table
    a.entry_head[number] = -1
    a.entry_nu[number] = nu
    if key[1] < 0:
        a.pred_entry[key[0]] = number
    else:
        _insert_key(a.entry_slots, a.entry_key, number)
        a.state[ENTRY_SLOTS_USED] += 1
    return number


@kernel
def remove_entry(a, number):
    """Removes an access predicate without clusters; the universal one stays."""
    if number == 0:
        return
    first, second, third = a.entry_key[number, 0], a.entry_key[number, 1], a.entry_key[number, 2]
    if second < 0:
        a.pred_entry[first] = -1
    else:
        _remove_key(a.entry_slots, first, second, third)
        a.state[ENTRY_SLOTS_USED] -= 1
    a.entry_table[number] = -1
    a.entry_head[number] = a.state[FREE_ENTRY]
    a.state[FREE_ENTRY] = number


@kernel
def fill_entry_slots(entry_slots, entry_key, entry_table, count):
    """Fills an empty hash with the access predicates of several attributes."""
    for number in range(1, count):
        if entry_table[number] >= 0 and entry_key[number, 1] >= 0:
            _insert_key(entry_slots, entry_key, number)


@kernel
def _insert_key(entry_slots, entry_key, number):
    """Writes the key of an access predicate into a free slot."""
    mask = entry_slots.shape[0] - 1
    at = hash_key(entry_key[number, 0], entry_key[number, 1], entry_key[number, 2]) & mask
    while entry_slots[at, 3] != 0:
        at = (at + 1) & mask
    for k in range(MAX_SCHEMA):
        entry_slots[at, k] = entry_key[number, k]
    entry_slots[at, 3] = number + 1


@kernel
def _remove_key(entry_slots, first, second, third):
    """Frees the slot of a key, and moves up what was displaced by it."""
    mask = entry_slots.shape[0] - 1
    at = hash_key(first, second, third) & mask
    while (
        entry_slots[at, 0] != first
        or entry_slots[at, 1] != second
        or entry_slots[at, 2] != third
        or entry_slots[at, 3] == 0
    ):
        at = (at + 1) & mask
    ahead = (at + 1) & mask
    while entry_slots[ahead, 3] != 0:
        home = hash_key(entry_slots[ahead, 0], entry_slots[ahead, 1], entry_slots[ahead, 2]) & mask
        if (ahead - home) & mask >= (ahead - at) & mask:
            for k in range(4):
                entry_slots[at, k] = entry_slots[ahead, k]
            at = ahead
        ahead = (ahead + 1) & mask
    entry_slots[at, 3] = 0
