"""Small cases of Minimum Cost Migration, and their optimum by trying every set of units."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ps2stream.experiments.selections import SelectionCase
from ps2stream.planner.adjust.selection import SelectionAlgorithm


def small_cases(count: int, units: int = 8) -> Iterator[SelectionCase]:
    """Cases in which all units together reach tau; sizes are now alike, now quite different."""
    for seed in range(count):
        rng = np.random.default_rng([3, seed])
        n = int(rng.integers(1, units + 1))
        load = rng.integers(1, 30, n).astype(np.float64)
        size = rng.integers(0, (4, 20, 100_000)[seed % 3], n)
        yield SelectionCase(load, size, float(load.sum() * rng.uniform(0.05, 1.0)))


def sets_of(case: SelectionCase) -> Iterator[tuple[float, int]]:
    """The load and the size of every set of units."""
    for held in itertools.product((False, True), repeat=len(case.load)):
        yield float(case.load[list(held)].sum()), int(case.size[list(held)].sum())


def least_size(case: SelectionCase) -> int:
    """The least size of a set that reaches tau."""
    return min(size for load, size in sets_of(case) if load >= case.tau)


def size_of(algorithm: SelectionAlgorithm, case: SelectionCase, seed: int = 0) -> int:
    """The size of what an algorithm chooses, which reaches tau with each unit once."""
    chosen = algorithm(*case, seed)
    assert len(set(chosen.tolist())) == len(chosen)
    assert case.load[chosen].sum() >= case.tau
    return int(case.size[chosen].sum())
