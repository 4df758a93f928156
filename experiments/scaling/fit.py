"""Least squares with few factors, none of which is negative."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ps2stream.protocol.frame import F64


def fit_factors(features: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[float, ...]:
    """Returns the factors, none negative, with which the features of each row make its value with
    the least relative error. features: [n, k], k at most 4; values: [n], above 0 or 0."""
    matrix, target = np.asarray(features, np.float64), np.asarray(values, np.float64)
    weight = 1 / np.maximum(target, max(float(target.max(initial=0.0)) / 1e3, 1e-9))
    matrix, target = matrix * weight[:, None], target * weight
    count = matrix.shape[1]
    best, found = float((target**2).sum()), np.zeros(count)
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            part: F64 = matrix[:, chosen]
            factors = np.linalg.lstsq(part, target, rcond=None)[0]
            error = float(((part @ factors - target) ** 2).sum())
            if (factors >= 0).all() and error < best - 1e-12:
                best, found = error, np.zeros(count)
                found[list(chosen)] = factors
    return tuple(found.tolist())
