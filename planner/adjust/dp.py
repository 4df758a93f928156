"""DP, the exact algorithm: the most load for every total size (algorithms.md 1.8).

B(i, j) is the most load that units 1..i contribute in a total size of at most j; the smallest j
with B(n, j) >= tau is the answer, and the cost of GR bounds j. Time and memory are units times
sizes, so sizes are counted in quanta: of one byte, or of the sizes' common divisor, if the table
is small enough, else of as many bytes as it takes, rounded up. The answer is then at most one
quantum per chosen unit above the optimum, and never above GR. If there are too many units for any
quantum, GR's answer is taken.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ps2stream.planner.adjust.gr import gr
from ps2stream.protocol.frame import F64, I64

TABLE = 1 << 26
"""The limit of the table's entries, one byte each, but for one per unit: 64 MiB, 0.2 s."""


def dp(load: F64, size: I64, tau: float, seed: int) -> I64:
    """Chooses units by dynamic programming; see Selection."""
    greedy = gr(load, size, tau, seed)
    common = max(int(np.gcd.reduce(size)), 1)
    quantum = common * max(1, -(-int(size[greedy].sum()) // common * len(load) // TABLE))
    quanta = -(-size // quantum)
    bound = int(quanta[greedy].sum())
    if bound * len(load) > 2 * TABLE:
        return greedy
    # A unit that alone exceeds the bound is in no better set.
    offered = np.flatnonzero(quanta <= bound)
    taken = np.zeros((len(offered), bound + 1), np.bool_)
    found = offered[_fill_table(load[offered], quanta[offered], tau, taken)]
    better = len(found) and size[found].sum() < size[greedy].sum()
    return found if better else greedy


@njit(cache=True, nogil=True)
def _fill_table(load: F64, size: I64, tau: float, taken: NDArray[np.bool_]) -> I64:
    """Returns the units of the smallest total size that reach tau. It returns none if no set
    does: rounding may put their sums on the other side of tau."""
    n, sizes = taken.shape
    most = np.zeros(sizes)
    for i in range(n):
        for j in range(sizes - 1, size[i] - 1, -1):
            with_it = most[j - size[i]] + load[i]
            if with_it > most[j]:
                most[j] = with_it
                taken[i, j] = True
    j = 0
    while j < sizes and most[j] < tau:
        j += 1
    chosen = np.empty(n, np.int64)
    k = 0
    if j < sizes:
        for i in range(n - 1, -1, -1):
            if taken[i, j]:
                chosen[k] = i
                k += 1
                j -= size[i]
    return chosen[:k]
