"""GR+: GR from every start, after which a candidate drops or exchanges what it can.

GR fails if a large unit of the optimum comes late in its order, behind units that fill up the way
to tau. Here every unit is taken first in turn, and GR fills up the rest. Each candidate then
drops what it does not need, largest first, and the best one exchanges one of its units for a
smaller one outside as long as that saves bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.planner.adjust.gr import cheapest, gr
from ps2stream.planner.adjust.selection import by_size, without_spare
from ps2stream.protocol.frame import F64, I64

WORK = 1 << 26
"""The limit of starts times units, some 0.1 s; with more units than its square root, only the
cheapest ones are starts."""


def gr_plus(load: F64, size: I64, tau: float, seed: int) -> I64:
    """Chooses units for never more bytes than GR; see Selection."""
    order = cheapest(load, size)
    largest = by_size(np.arange(len(order)), load[order], size[order])
    starts = min(len(order), max(WORK // len(order), 1))
    found = order[_run_from_each(load[order], size[order], tau, largest, starts)]
    candidates = (gr(load, size, tau, seed), found) if len(found) else (gr(load, size, tau, seed),)
    spared = [without_spare(load, size, chosen, tau) for chosen in candidates]
    return _exchange_units(load, size, min(spared, key=lambda c: int(size[c].sum())), tau)


def _exchange_units(load: F64, size: I64, chosen: I64, tau: float) -> I64:
    """Exchanges one unit for one outside, the change that saves most first, until none saves
    bytes."""
    held = np.zeros(len(load), np.bool_)
    held[chosen] = True
    while True:
        inside, outside = np.flatnonzero(held), np.flatnonzero(~held)
        outside = outside[np.argsort(-load[outside], kind="stable")]
        smallest = np.minimum.accumulate(size[outside])
        needed = load[inside] - (load[inside].sum() - tau)
        heavy = np.searchsorted(-load[outside], -needed, "right")
        saved = np.zeros(len(inside), np.int64)
        some = heavy > 0
        saved[some] = size[inside[some]] - smallest[heavy[some] - 1]
        best = int(np.argmax(saved))
        if saved[best] <= 0:
            return without_spare(load, size, inside, tau)
        held[inside[best]] = False
        held[outside[int(np.argmax(size[outside] == smallest[heavy[best] - 1]))]] = True


@njit(cache=True, nogil=True)
def _run_from_each(load: F64, size: I64, tau: float, largest: I64, starts: int) -> I64:
    """Returns the best candidate of GR with each of the first `starts` units taken before all
    others, without the units that it can spare. largest: all units by descending size."""
    n = len(load)
    held = np.zeros(n, np.bool_)
    answer = held.copy()
    best = np.int64(-1)
    for start in range(starts):
        held[:] = False
        sum_load, sum_size, cost, last = load[start], size[start], np.int64(-1), start
        if sum_load < tau:
            last = -1
            for i in range(n):
                if cost >= 0 and sum_size >= cost:
                    break
                if i == start:
                    continue
                if sum_load + load[i] < tau:
                    sum_load += load[i]
                    sum_size += size[i]
                    held[i] = True
                elif cost < 0 or sum_size + size[i] < cost:
                    cost = sum_size + size[i]
                    last = i
            if last < 0:
                continue
            held[last + 1 :] = False
        held[start] = held[last] = True
        moved, cost = 0.0, np.int64(0)
        for i in range(n):
            if held[i]:
                moved += load[i]
                cost += size[i]
        for i in largest:
            if held[i] and moved - load[i] >= tau:
                moved -= load[i]
                cost -= size[i]
                held[i] = False
        if best < 0 or cost < best:
            best = cost
            answer[:] = held
    return np.flatnonzero(answer)
