"""The regions of Q3: a hundred, cut where the posts are."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import F64, Array

REGIONS = 100


def find_region(lon: F64, lat: F64) -> Array:
    """Returns the region of each point, int64[n]: ten columns by the quantiles of the points, and
    in each ten rows by those of its own. A place with many points is in one region."""
    column = _find_tenth(lon)
    region: Array = np.zeros(len(lon), np.int64)
    for k in range(10):
        mine = column == k
        region[mine] = 10 * k + _find_tenth(lat[mine])
    return region


def _find_tenth(values: F64) -> Array:
    """Returns the tenth of the distribution that each value is in, 0 to 9; equal values are in
    one."""
    if not len(values):
        return np.zeros(0, np.int64)
    tenth: Array = np.searchsorted(np.quantile(values, np.linspace(0, 1, 11)[1:-1]), values)
    return tenth


def choose_regions(weight: F64, share: float, rng: np.random.Generator) -> Array:
    """Returns regions in a random order, as many as come nearest to the share together."""
    order = rng.permutation(np.flatnonzero(weight))
    return order[: 1 + int(np.argmin(np.abs(np.cumsum(weight[order]) - share)))]
