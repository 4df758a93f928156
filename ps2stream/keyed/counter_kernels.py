"""Kernels of the epoch-decayed SpaceSaving counters and of the number of workers of a hot key
(algorithms.md 5.1 and 5.2).

Nothing is decayed by a pass over the counters: what a tuple counts grows by 1/alpha from epoch to
epoch instead, and a frequency is a ratio in which that scale is no more. The least counter is the
root of a heap that is ordered by (count, slot). The largest is known without a search, because on
this scale no counter ever falls and only the least is replaced. The keys above theta are in a list
of their own, which a key joins when a tuple of its own lifts it above, the only event that can.
"""

# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.keyed.compiling import inline_kernel, kernel
from ps2stream.keyed.key_kernels import murmur
from ps2stream.protocol.frame import F64, I64, U64

I32 = NDArray[np.int32]

CHK, ALL, SINGLE = 0, 1, 2
"""The rules for the workers of a hot key: FISH's by frequency, all as W-Choices, one number for the
whole head as D-Choices."""
USED, IN_EPOCH, EPOCH, HOT, DEGREE = range(5)
STEP, TOTAL, TOP = range(3)
NO_PLACE = -1
LARGE = 2.0**512
"""The step from which the scale begins anew. At the default alpha that takes 220 epochs."""
TOLERANCE = 1e-4  # of D-Choices
_ONE = np.uint64(1)


class CounterArrays(NamedTuple):
    """The counters of one source, for K keys at most.

    key uint64[K]; counts float64[K], scaled; degree int32[K]: M_k, 0 for none; needed int64[K]: the
    last epoch that required that degree; heap int32[K]: slots; place int32[K]: of a slot in the
    heap; table int32[2^k]: slot + 1 by the hash of its key, 0 free; hot int32[K]: slots of keys
    above theta at their last tuple; hot_place int32[K]: of a slot in it, or -1; head float64[K]:
    room for frequencies; whole int64[5]:
    slots used, tuples of the epoch, number of the epoch, keys in hot, and dmin or the degree of
    SINGLE; real float64[3]: what a tuple counts, the sum of all counts, the largest; seed
    uint64[1].
    """

    key: U64
    counts: F64
    degree: I32
    needed: I64
    heap: I32
    place: I32
    table: I32
    hot: I32
    hot_place: I32
    head: F64
    whole: I64
    real: F64
    seed: U64


class DegreeLimits(NamedTuple):
    """How counters decay and which degrees they give: float64 alpha and theta; int64 tuples of an
    epoch, the rule, workers, and epochs after which a degree that nothing required falls."""

    alpha: float
    theta: float
    epoch: int
    rule: int
    workers: int
    cool: int


@inline_kernel
def comes_before(c, a, b):
    """Tells whether slot a is replaced before slot b."""
    return c.counts[a] < c.counts[b] or (c.counts[a] == c.counts[b] and a < b)


@kernel
def sink(c, at):
    """Moves a slot whose count has grown down the heap, from position `at`."""
    used = c.whole[USED]
    slot = c.heap[at]
    while True:
        child = 2 * at + 1
        if child >= used:
            break
        if child + 1 < used and comes_before(c, c.heap[child + 1], c.heap[child]):
            child += 1
        if not comes_before(c, c.heap[child], slot):
            break
        c.heap[at] = c.heap[child]
        c.place[c.heap[at]] = at
        at = child
    c.heap[at] = slot
    c.place[slot] = at


@kernel
def rise(c, at):
    """Moves a new slot up the heap, from position `at`."""
    slot = c.heap[at]
    while at > 0:
        parent = (at - 1) // 2
        if not comes_before(c, slot, c.heap[parent]):
            break
        c.heap[at] = c.heap[parent]
        c.place[c.heap[at]] = at
        at = parent
    c.heap[at] = slot
    c.place[slot] = at


@kernel
def find_slot(c, key):
    """Returns the place of a key in the table, or -1 - that of the free place for it."""
    mask = np.uint64(c.table.shape[0] - 1)
    at = murmur(key, c.seed[0]) & mask
    while c.table[at] != 0:
        if c.key[c.table[at] - 1] == key:
            return np.int64(at)
        at = at + _ONE & mask
    return -1 - np.int64(at)


@kernel
def forget_key(c, key):
    """Takes a key out of the table, and moves those after it back towards their own places."""
    mask = np.uint64(c.table.shape[0] - 1)
    gap = np.uint64(find_slot(c, key))
    at = gap + _ONE & mask
    while c.table[at] != 0:
        home = murmur(c.key[c.table[at] - 1], c.seed[0]) & mask
        if (at - home & mask) >= (at - gap & mask):
            c.table[gap] = c.table[at]
            gap = at
        at = at + _ONE & mask
    c.table[gap] = 0


@kernel
def drop_hot(c, slot):
    """Takes a slot out of the list of hot ones."""
    last = c.hot[c.whole[HOT] - 1]
    c.hot[c.hot_place[slot]] = last
    c.hot_place[last] = c.hot_place[slot]
    c.hot_place[slot] = NO_PLACE
    c.whole[HOT] -= 1


@kernel
def count_hot(c, theta, rule):
    """Drops keys that are no longer hot, and returns the sum of the frequencies of the others."""
    share = 0.0
    i = 0
    while i < c.whole[HOT]:
        slot = c.hot[i]
        if is_hot(c, slot, theta, rule):
            share += c.counts[slot] / c.real[TOTAL]
            i += 1
        else:
            drop_hot(c, slot)
    return share


@inline_kernel
def is_hot(c, slot, theta, rule):
    """Tells whether a frequency is above theta; for D- and W-Choices, not below it."""
    f = c.counts[slot] / c.real[TOTAL] if c.real[TOTAL] > 0.0 else 0.0
    return f > theta or (rule != CHK and f == theta)


@kernel
def least_degree(share, hot, workers):
    """Returns dmin: the smallest d >= 2 whose candidates cover the hot keys' share of the tuples,
    1 - (1 - 1/workers)^(d hot) >= share; at most all workers."""
    missed = (1.0 - 1.0 / workers) ** hot
    left = missed * missed
    d = 2
    while d < workers and 1.0 - left < share:
        left *= missed
        d += 1
    return min(d, workers)


@kernel
def single_degree(head, n, tail, workers):
    """Returns the d of D-Choices for a head of n frequencies in descending order, float64[], and
    the sum of all others; all workers where no smaller d meets the condition for every prefix."""
    if n == 0:
        return min(2, workers)
    whole = 0.0
    for i in range(n):
        whole += head[i]
    d = max(np.int64(np.ceil(head[0] * workers)), 2)
    while d < workers:
        missed = (1.0 - 1.0 / workers) ** d
        left, before, met = 1.0, 0.0, True
        for i in range(n):
            left *= missed
            before += head[i]
            share = 1.0 - left  # b / workers
            load = before + share**d * (whole - before) + share * share * tail
            if load > share + TOLERANCE:
                met = False
                break
        if met:
            return d
        d += 1
    return workers


@kernel
def list_head(c):
    """Writes the frequencies of the hot keys into head, in descending order. The list is nearly in
    order, because it was sorted when the last epoch ended."""
    for i in range(c.whole[HOT]):
        slot = c.hot[i]
        j = i
        while j > 0 and c.counts[c.hot[j - 1]] < c.counts[slot]:
            c.hot[j] = c.hot[j - 1]
            c.hot_place[c.hot[j]] = j
            j -= 1
        c.hot[j] = slot
        c.hot_place[slot] = j
    for i in range(c.whole[HOT]):
        c.head[i] = c.counts[c.hot[i]] / c.real[TOTAL]


@kernel
def end_epoch(c, limits):
    """Learns dmin, or the single degree, from the hot keys, and decays all counters."""
    share = count_hot(c, limits.theta, limits.rule)
    hot = c.whole[HOT]
    if limits.rule == CHK:
        c.whole[DEGREE] = least_degree(share, hot, limits.workers)
    elif limits.rule == SINGLE:
        list_head(c)
        c.whole[DEGREE] = single_degree(c.head, hot, 1.0 - share, limits.workers)
    c.whole[IN_EPOCH] = 0
    c.whole[EPOCH] += 1
    if limits.alpha == 0.0:
        scale_counts(c, 0.0)
    else:
        c.real[STEP] /= limits.alpha
        if c.real[STEP] > LARGE:
            scale_counts(c, 1.0 / LARGE)
            c.real[STEP] /= LARGE


@kernel
def scale_counts(c, by):
    """Multiplies all counts, which keeps the heap's order up to slots that become equal."""
    for slot in range(c.whole[USED]):
        c.counts[slot] *= by
    c.real[TOTAL] *= by
    c.real[TOP] *= by
    # Slots whose counts have become equal, or nothing, are ordered by their numbers.
    for at in range(c.whole[USED] // 2 - 1, -1, -1):
        sink(c, at)


@kernel
def count_key(c, limits, key):
    """Counts a tuple (Algorithm 1), after the decay that ends the epoch before it. Returns the slot
    of its key."""
    if c.whole[IN_EPOCH] == limits.epoch:
        end_epoch(c, limits)
    c.whole[IN_EPOCH] += 1
    at = find_slot(c, key)
    step = c.real[STEP]
    if at >= 0:
        slot = np.int64(c.table[at] - 1)
        c.counts[slot] += step
        sink(c, np.int64(c.place[slot]))
    elif c.whole[USED] < c.key.shape[0]:
        slot = c.whole[USED]
        c.whole[USED] += 1
        c.key[slot], c.counts[slot] = key, step
        c.table[-1 - at] = slot + 1
        c.heap[slot] = slot
        rise(c, slot)
    else:
        slot = np.int64(c.heap[0])
        forget_key(c, c.key[slot])
        if c.hot_place[slot] != NO_PLACE:
            drop_hot(c, slot)
        c.key[slot], c.degree[slot] = key, 0
        c.table[-1 - find_slot(c, key)] = slot + 1
        c.counts[slot] += step
        sink(c, np.int64(c.place[slot]))
    c.real[TOTAL] += step
    c.real[TOP] = max(c.real[TOP], c.counts[slot])
    return slot


@kernel
def find_degree(c, limits, slot):
    """Returns the number of candidates of the key that was just counted (Algorithm 2)."""
    if not is_hot(c, slot, limits.theta, limits.rule):
        return min(2, limits.workers)
    if c.hot_place[slot] == NO_PLACE:
        c.hot_place[slot] = c.whole[HOT]
        c.hot[c.whole[HOT]] = slot
        c.whole[HOT] += 1
    if limits.rule == ALL:
        return limits.workers
    if limits.rule == SINGLE:
        return c.whole[DEGREE]
    d = limits.workers
    twice = 2.0 * c.counts[slot]
    while twice <= c.real[TOP] and d > 0:
        twice *= 2.0
        d //= 2
    d = min(max(d, c.whole[DEGREE]), limits.workers)
    if d >= c.degree[slot] or c.whole[EPOCH] - c.needed[slot] > limits.cool:
        c.degree[slot], c.needed[slot] = d, c.whole[EPOCH]
    return np.int64(c.degree[slot])


@kernel
def count_keys(c, limits, keys, degrees):
    """Counts each key and writes the number of its candidates at that moment into degrees,
    int32[n]."""
    for i in range(keys.shape[0]):
        slot = count_key(c, limits, keys[i])
        degrees[i] = find_degree(c, limits, slot)


@kernel
def read_frequencies(c, keys, out):
    """Writes the frequency of each key into out, float64[n], 0 for one without a counter."""
    for i in range(keys.shape[0]):
        at = find_slot(c, keys[i])
        out[i] = 0.0
        if at >= 0 and c.real[TOTAL] > 0.0:
            out[i] = c.counts[c.table[at] - 1] / c.real[TOTAL]
