"""GR, the paper's greedy algorithm: cheap load first (algorithms.md 1.8).

Units are visited by size over load. A unit that stays below tau with those taken so far is taken
too; one that reaches tau with them completes a candidate. The smallest candidate wins; it is at
most twice the optimum.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64


def gr(load: F64, size: I64, tau: float, seed: int) -> I64:
    """Chooses units greedily, as printed in the paper, with its early stop; see Selection."""
    order = cheapest(load, size)
    taken = np.zeros(len(order), np.bool_)
    last = _scan_units(load[order], size[order], tau, taken)
    return np.append(order[:last][taken[:last]], order[last])


def cheapest(load: F64, size: I64) -> I64:
    """Returns the units by ascending size over load; of equals, the heavier and then the first
    one."""
    with np.errstate(over="ignore"):  # a load near zero makes the ratio infinite
        return np.lexsort((np.arange(len(load)), -load, size / load))


@njit(cache=True, nogil=True)
def _scan_units(load: F64, size: I64, tau: float, taken: NDArray[np.bool_]) -> int:
    """Marks the units taken (GS), in order. Returns the unit that completes the best candidate
    (GL); the candidate's other units are those taken before it."""
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
