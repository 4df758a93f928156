"""Cases of Minimum Cost Migration, and the answers of the algorithms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.adjust.selection import select
from ps2stream.planner.adjust.units import PartLoads
from ps2stream.protocol.frame import F64, I64
from ps2stream.routing.costs import Costs

DRAWS = 8
"""The draws of `ra`, whose answer is random: its bytes are their mean."""


class SelectionCase(NamedTuple):
    """A case: load float64[n], microseconds; size int64[n], bytes; tau: the load to move."""

    load: F64
    size: I64
    tau: float


def chosen(name: str, case: SelectionCase, seed: int = 0) -> I64 | None:
    """Returns the answer of one of SELECTIONS."""
    return select(SELECTIONS[name], case.load, case.size, case.tau, seed)


def bytes_of(name: str, case: SelectionCase) -> float:
    """Returns the size of its choice. Raises ValueError for a case without an answer."""
    draws = [chosen(name, case, seed) for seed in range(DRAWS if name == "ra" else 1)]
    if any(found is None for found in draws):
        raise ValueError("no set of these units has a load of tau to 2 tau")
    return float(np.mean([case.size[found].sum() for found in draws]))


def optimum(case: SelectionCase) -> int | None:
    """Returns the least bytes by trying all subsets, or None if no subset will do."""
    sets = itertools.product((0.0, 1.0), repeat=len(case.load))
    matrix = np.array(list(sets)).reshape(-1, len(case.load))
    moved, costs = matrix @ case.load, matrix @ case.size
    good = (moved >= case.tau * (1 - 1e-9)) & (moved <= 2 * case.tau * (1 + 1e-9))
    return int(costs[good].min()) if good.any() else None


def cases_of_worker(
    units: PartLoads, workers: int, costs: Costs, shares: Sequence[float]
) -> dict[str, SelectionCase]:
    """Returns cases of the movable parts of the most loaded worker. "gap": tau is half of what it
    has above the least loaded one, as in an adjustment; the others: tau is each of `shares` of
    its own load."""
    loads = units.loads(workers, costs)
    source = int(np.argmax(loads))
    mine = units.take(units.movable & (units.worker == source))
    load = mine.load(costs)
    taus = {"gap": float(loads[source] - loads.min()) / 2}
    taus |= {f"{share:.0%}": share * float(loads[source]) for share in shares}
    return {label: SelectionCase(load, mine.bytes, tau) for label, tau in taus.items()}


def draw_small_cases(count: int, seed: int) -> Iterator[SelectionCase]:
    """Yields cases of so few units that all subsets can be tried."""
    for k in range(count):
        rng = np.random.default_rng([seed, 9, k])
        n = int(rng.integers(1, 13))
        load = rng.integers(0, 21, n).astype(np.float64) if k % 2 else rng.lognormal(3, 1.5, n)
        size = rng.integers(0, 13, n) if k % 3 else rng.integers(1, 1 << 20, n)
        yield SelectionCase(load, size, max(float(load.sum() * rng.uniform(0.01, 1.0)), 1e-3))


def generated(count: int, seed: int = 7) -> Iterator[SelectionCase]:
    """Yields cases of realistic workers: loads and sizes are skewed like words and cities, and
    more or less related."""
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        n = int(rng.integers(8, 400))
        rank = 1 / np.arange(1, n + 1) ** rng.uniform(0.6, 1.4)
        objects = rng.permutation(rank) * 1e5 * rng.lognormal(0, 0.5, n)
        queries = rng.permutation(rank) * 1e4 * rng.lognormal(0, 0.7, n)
        if k % 3:
            queries = objects / 10 * rng.lognormal(0, 0.8, n)
        load = 0.02 * objects * queries + 0.6 * objects
        size = (queries * rng.lognormal(5, 0.2, n)).astype(np.int64) + 1
        yield SelectionCase(load, size, float(load.sum() * rng.uniform(0.02, 0.45)))
