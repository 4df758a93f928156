"""Kernels that draw keyed streams and measure where their tuples went."""

# mypy: allow-untyped-defs, allow-untyped-decorators, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

_ONE = np.uint64(1)


@njit(cache=True, nogil=True)
def make_aliases(share, other):
    """Turns shares, float64[K] with sum K, into Walker's table of aliases: afterwards number i is
    drawn as itself with probability share[i] and as other[i], int64[K], otherwise."""
    small, large = np.empty(len(share), np.int64), np.empty(len(share), np.int64)
    smalls, larges = 0, 0
    for i in range(len(share)):
        other[i] = i
        if share[i] < 1.0:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    while smalls and larges:
        smalls -= 1
        low, high = small[smalls], large[larges - 1]
        other[low] = high
        share[high] -= 1.0 - share[low]
        if share[high] < 1.0:
            larges -= 1
            small[smalls] = high
            smalls += 1
    for i in range(larges):
        share[large[i]] = 1.0
    for i in range(smalls):
        share[small[i]] = 1.0


@njit(cache=True, nogil=True)
def draw_aliases(share, other, uniform, out):
    """Draws a number for each uniform number in [0, 1) into out, uint64[n]."""
    for i in range(len(uniform)):
        at = uniform[i] * len(share)
        number = np.int64(at)
        out[i] = number if at - number < share[number] else other[number]


@njit(cache=True, nogil=True)
def add_imbalance(chosen, loads, from_tuple, worst):
    """Counts tuples in loads, int64[workers], after those that are there. Returns (the sum of the
    imbalance I(t) over them, the largest I(t) / t from tuple `from_tuple` on, or `worst`)."""
    workers = len(loads)
    most, t = loads.max(), loads.sum()
    total = 0.0
    for i in range(len(chosen)):
        worker = chosen[i]
        loads[worker] += 1
        t += 1
        most = max(most, loads[worker])
        imbalance = most - t / workers
        total += imbalance
        if t >= from_tuple:
            worst = max(worst, imbalance / t)
    return total, worst


@njit(cache=True, nogil=True)
def mark_states(keys, chosen, bits):
    """Marks each pair (key, worker) in bits, uint64[keys, ceil(workers / 64)]. Returns the number
    of pairs that are new."""
    new = 0
    for i in range(len(keys)):
        worker = np.uint64(chosen[i])
        bit = _ONE << (worker & np.uint64(63))
        word = worker >> np.uint64(6)
        if not bits[keys[i], word] & bit:
            bits[keys[i], word] |= bit
            new += 1
    return new


@njit(cache=True, nogil=True)
def work_off(chosen, arrivals, seconds, free):
    """Lets workers handle their tuples in turn, each when it has arrived and the one before is
    done. free float64[workers]: when each is free, before and after. Returns the sum of the times
    from arrival to end."""
    total = 0.0
    for i in range(len(chosen)):
        worker = chosen[i]
        free[worker] = max(free[worker], arrivals[i]) + seconds[worker]
        total += free[worker] - arrivals[i]
    return total


@njit(cache=True, nogil=True)
def work_off_bounded(chosen, arrivals, seconds, queue, free):
    """Does as `work_off`, with room for `queue` tuples before each worker: a tuple for one that is
    full waits, and holds up all that come after it."""
    now = 0.0
    for i in range(len(chosen)):
        worker = chosen[i]
        now = max(now, arrivals[i], free[worker] - queue * seconds[worker])
        free[worker] = max(free[worker], now) + seconds[worker]
