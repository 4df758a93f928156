"""Replicated and sharded units for plans of tests: around the places where their objects are."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np

from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.replicas import ReplicatedUnit


def draw_replicas(
    rng: random.Random,
    plan: RoutingPlan,
    words: Sequence[str],
    lons: Sequence[float],
    lats: Sequence[float],
    most: int = 6,
) -> tuple[ReplicatedUnit, ...]:
    """Draws up to `most` replicated units of cells on all levels, of words and of both; a third of
    them are sharded."""
    if plan.workers < 2:
        return ()
    units: dict[tuple[int | None, str | None], ReplicatedUnit] = {}
    for _ in range(rng.randint(0, most)):
        level = rng.choice([0, 0, rng.randrange(plan.grid.levels)])
        place = np.array([rng.choice(lons)]), np.array([rng.choice(lats)])
        cell: int | None = int(plan.grid.cells(*place, level)[0])
        term: str | None = rng.choice(words)
        kind = rng.randrange(3)
        if kind == 0:
            term = None
        elif kind == 1:
            cell = None
        size = rng.randint(2, plan.workers)
        workers = tuple(rng.sample(range(plan.workers), size))
        units[cell, term] = ReplicatedUnit(cell, term, workers)
    kinds = random.Random(repr(units))
    drawn = units.values()
    return tuple(dataclasses.replace(unit, sharded=kinds.random() < 1 / 3) for unit in drawn)


def replicated(
    rng: random.Random,
    plan: RoutingPlan,
    words: Sequence[str],
    lons: Sequence[float],
    lats: Sequence[float],
) -> RoutingPlan:
    """Returns the plan, three times in four with replicated units. Draws nothing of `rng`."""
    own = random.Random(rng.getstate()[1][0])
    if not own.randrange(4):
        return plan
    return dataclasses.replace(plan, replicas=draw_replicas(own, plan, words, lons, lats))
