"""Kernels of Greedy-d and of the schemes that remember a worker for each key."""

# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from ps2stream.keyed.compiling import inline_kernel, kernel
from ps2stream.keyed.key_kernels import hash_to_choice, hash_to_worker, murmur

NOBODY = np.uint16(0xFFFF)
"""The owner in a free place of a table of remembered keys."""


@kernel
def route_greedily(keys, seeds, loads, chosen):
    """Sends each key to the least loaded of its len(seeds) choices, the first of equals, and counts
    it in loads, int64[workers]. Writes the workers into chosen, uint16[n]."""
    workers = loads.shape[0]
    for i in range(keys.shape[0]):
        first = hash_to_worker(keys[i], seeds[0], workers)
        best = first
        if workers > 1:
            for j in range(1, seeds.shape[0]):
                worker = hash_to_choice(keys[i], seeds, j, workers, first)
                if loads[worker] < loads[best]:
                    best = worker
        loads[best] += 1
        chosen[i] = best


@kernel
def find_key(table, owner, key, seed):
    """Returns the place of a key in a table of remembered keys, or of the free place for it."""
    mask = np.uint64(table.shape[0] - 1)
    at = murmur(key, seed) & mask
    while owner[at] != NOBODY and table[at] != key:
        at = at + np.uint64(1) & mask
    return np.int64(at)


@inline_kernel
def least_of(loads):
    """Returns the least loaded of all workers, the first of equals."""
    best = 0
    for worker in range(1, loads.shape[0]):
        if loads[worker] < loads[best]:
            best = worker
    return best


@kernel
def route_remembered(keys, begin, seeds, loads, table, owner, used, chosen):
    """Sends each key from `begin` on to the worker that was chosen when it first came: the least
    loaded of its choices, or of all workers where seeds has only that of the table, seeds[0].

    Stops before a new key where more than half of the table would be full. Returns (the number of
    keys that were sent, the new `used`). table uint64[2^k], owner uint16[2^k].
    """
    workers = loads.shape[0]
    choices = seeds[1:]
    for i in range(begin, keys.shape[0]):
        at = find_key(table, owner, keys[i], seeds[0])
        if owner[at] == NOBODY:
            if 2 * (used + 1) > table.shape[0]:
                return i, used
            best = 0
            if choices.shape[0] == 0:
                best = least_of(loads)
            else:
                first = hash_to_worker(keys[i], choices[0], workers)
                best = first
                if workers > 1:
                    for j in range(1, choices.shape[0]):
                        worker = hash_to_choice(keys[i], choices, j, workers, first)
                        if loads[worker] < loads[best]:
                            best = worker
            table[at], owner[at] = keys[i], best
            used += 1
        loads[owner[at]] += 1
        chosen[i] = owner[at]
    return keys.shape[0], used


@kernel
def place_by_weight(keys, weights, seed, loads, table, owner):
    """Places keys that are in descending order of weight, int64[n], on the least loaded worker
    each, and adds the weight to its load: Off-Greedy. The table has room for all of them."""
    for i in range(keys.shape[0]):
        at = find_key(table, owner, keys[i], seed)
        best = least_of(loads)
        loads[best] += weights[i]
        table[at], owner[at] = keys[i], best


@kernel
def copy_table(table, owner, seed, new_table, new_owner):
    """Copies the remembered keys into a larger table, which is empty."""
    for i in range(table.shape[0]):
        if owner[i] != NOBODY:
            at = find_key(new_table, new_owner, table[i], seed)
            new_table[at], new_owner[at] = table[i], owner[i]
