"""The constants of Definition 1, fitted to measured times by non-negative least squares."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs


class CostFit(NamedTuple):
    """Fitted costs in microseconds. error: the median of |predicted - measured| / measured."""

    costs: Costs
    error: float


def fit(work: F64, microseconds: F64) -> CostFit:
    """Fits the costs to runs: work float64[n, 4] (candidates, objects, postings inserted and
    deleted) that took microseconds float64[n], > 0. Relative errors count, so that short runs
    matter too."""
    scaled = work / microseconds[:, None]
    best, least = np.zeros(work.shape[1]), float(len(work))
    # With four constants, every subset can be fitted without constraints; the best fit that
    # has no negative constant is the answer.
    for size in range(1, work.shape[1] + 1):
        for chosen in map(list, itertools.combinations(range(work.shape[1]), size)):
            found, *_ = np.linalg.lstsq(scaled[:, chosen], np.ones(len(work)), rcond=None)
            left = float(((scaled[:, chosen] @ found - 1.0) ** 2).sum())
            if (found >= 0).all() and left < least:
                best, least = np.zeros(work.shape[1]), left
                best[chosen] = found
    error = float(np.median(np.abs(scaled @ best - 1.0)))
    return CostFit(Costs(*best.tolist()), error)
