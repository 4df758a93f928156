"""SI, a baseline: the largest units until tau is reached (algorithms.md 1.8)."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.adjust.selection import by_size
from ps2stream.protocol.frame import F64, I64


def si(load: F64, size: I64, tau: float, seed: int) -> I64:
    """Chooses the largest units; see Selection."""
    return until(by_size(np.arange(len(load)), load, size), load, tau)


def until(order: I64, load: F64, tau: float) -> I64:
    """Returns the first units of an order that reach tau together."""
    reached = np.cumsum(load[order]) >= tau
    return order[: int(np.argmax(reached)) + 1] if reached.any() else order
