"""Spread, load, imbalance and throughput of a multicast (S3-TM; algorithms.md 2.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.multicast.bitsets import count_copies
from ps2stream.protocol.frame import F64, U64


class MulticastMeasures(NamedTuple):
    """Measures of publications that were multicast.

    spread: copies of a publication, R; imbalance: the largest worker's load over the mean, B;
    throughput: publications while the most loaded worker takes one unit of load, |P| / max L;
    estimate: 1 / (R B), which is `throughput` over the number of workers if a copy is a unit.
    """

    spread: float
    imbalance: float
    throughput: float
    estimate: float


def measure_multicast(bits: U64, workers: int, load: F64 | None = None) -> MulticastMeasures:
    """Measures the multicast of n publications, n > 0. bits uint64[n, ceil(workers / 64)]: the
    workers of each; load float64[workers]: what each worker did for them, None for the copies
    that it was sent."""
    copies = count_copies(bits, workers).astype(np.float64)
    if load is None:
        load = copies
    spread = float(copies.sum()) / len(bits)
    most, mean = float(load.max()), float(load.mean())
    imbalance = most / mean if mean > 0 else 1.0
    throughput = len(bits) / most if most > 0 else np.inf
    estimate = 1.0 / (spread * imbalance) if spread > 0 else np.inf
    return MulticastMeasures(spread, imbalance, throughput, estimate)
