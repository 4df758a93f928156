"""Minimum Cost Migration (algorithms.md 1.8, Definition 4): which units leave a worker.

Given units of load L and size S and the load to move tau, find the units with sum L >= tau whose
sum S is least, and whose load is at most 2 tau: more than the gap between the two workers would
only reverse it. The problem is NP-hard; dp, gr, si and ra are the paper's four answers, `gr+` is
ours.

The limit of 2 tau is kept as follows. A unit above it is in no good set and is not offered. A set
that an algorithm chooses too large is thinned, largest size first, as long as it still reaches
tau. That is always enough: if no unit can be spared, each is heavier than what the set has above
tau, so two units or more have less than 2 tau together. Therefore all algorithms find a set
exactly when the units of at most 2 tau reach tau together, and a set of least size is never
thinned if sizes are positive.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ps2stream.protocol.frame import F64, I64

ROUNDING = 1e-9
"""A set reaches tau, or stays within 2 tau, up to this share of it: sums depend on their order."""


class SelectionAlgorithm(Protocol):
    """An algorithm for Minimum Cost Migration."""

    def __call__(self, load: F64, size: I64, tau: float, seed: int) -> I64:
        """Returns the numbers of units whose loads reach tau together, int64[k], each once.

        load float64[n] > 0; size int64[n] >= 0, bytes; tau > 0, which all units together reach.
        seed: of random choices. Equal arguments give equal answers.
        """


def select(
    algorithm: SelectionAlgorithm, load: F64, size: I64, tau: float, seed: int = 0
) -> I64 | None:
    """Returns the chosen units, int64[k] ascending, with tau <= load <= 2 tau, or None if there
    is no such set. load float64[n] and tau in microseconds; size int64[n] in bytes. Units without
    load are never chosen. Raises ValueError for values that are no loads or sizes."""
    if len(load) != len(size):
        raise ValueError(f"load has {len(load)} units, size has {len(size)}")
    if not (np.isfinite(load).all() and (load >= 0).all() and tau > 0 and np.isfinite(tau)):
        raise ValueError("loads must be finite and not negative, tau finite and positive")
    if (size < 0).any():
        raise ValueError(f"a size must not be negative, got {size.min()} bytes")
    least, most = tau * (1 - ROUNDING), 2 * tau * (1 + ROUNDING)
    offered = np.flatnonzero((load > 0) & (load <= most))
    if load[offered].sum() < least:
        return None
    chosen = algorithm(load[offered], size[offered], least, seed)
    return np.sort(_thin_set(load, size, offered[chosen], least, most))


def by_size(chosen: I64, load: F64, size: I64) -> I64:
    """Returns `chosen` by descending size, then ascending load, then number."""
    return chosen[np.lexsort((chosen, load[chosen], -size[chosen]))]


def without_spare(load: F64, size: I64, chosen: I64, tau: float) -> I64:
    """Returns `chosen` without the units that it does not need to reach tau, largest size first."""
    total = float(load[chosen].sum())
    kept = []
    for unit in by_size(chosen, load, size).tolist():
        if total - load[unit] >= tau:
            total -= float(load[unit])
        else:
            kept.append(unit)
    return np.array(kept, np.int64)


def _thin_set(load: F64, size: I64, chosen: I64, least: float, most: float) -> I64:
    return without_spare(load, size, chosen, least) if load[chosen].sum() > most else chosen
