"""GR, the paper's greedy algorithm: cheap load first (algorithms.md 1.8).

Units come by size over load. Each either fits below tau and is taken, or reaches tau with
those taken so far: then they are a candidate together. The smallest candidate wins; at most
twice the optimum.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64


def gr(load: F64, size: I64, tau: float, seed: int) -> I64:
    """As printed, with its early stop; see Selection."""
    order = cheapest(load, size)
    taken = np.zeros(len(order), np.bool_)
    last = _scan(load[order], size[order], tau, taken)
    return np.append(order[:last][taken[:last]], order[last])


def cheapest(load: F64, size: I64) -> I64:
    """Units by ascending size over load; of equals, the heavier and then the first one."""
    with np.errstate(over="ignore"):  # next to no load: infinitely dear
        return np.lexsort((np.arange(len(load)), -load, size / load))


@njit(cache=True, nogil=True)
def _scan(load: F64, size: I64, tau: float, taken: NDArray[np.bool_]) -> int:
    """Marks the units taken (GS), in order; the one that completes the best candidate (GL),
    whose others are those taken before it."""
    sum_load, sum_size, best, last = 0.0, 0, -1, -1
    for i in range(len(load)):
        if best >= 0 and sum_size >= best:
            break
        if sum_load + load[i] < tau:
            taken[i] = True
            sum_load += load[i]
            sum_size += size[i]
        elif best < 0 or sum_size + size[i] < best:
            best = sum_size + size[i]
            last = i
    return last
