"""RA, a baseline: random units until tau is reached (algorithms.md 1.8)."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.adjust.si import until
from ps2stream.protocol.frame import F64, I64


def ra(load: F64, size: I64, tau: float, seed: int) -> I64:
    """Chooses units at random; see Selection."""
    return until(np.random.default_rng(seed).permutation(len(load)), load, tau)
