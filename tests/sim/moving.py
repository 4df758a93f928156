"""What the tests of moves share: clients without faults, the world of a run, and how much of what
is alike is played."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from tests.sim.cluster import Cluster
from tests.sim.scenario import scenario

CLIENTS = ("insert", "delete", "publish", "connect")
WHOLE = 1000
SEEDS = int(os.environ.get("SIM_SEEDS", WHOLE))
"""Seeds that are played; CI plays fewer."""


def choose_combinations(*axes: Sequence[Any], share: int = 2) -> list[tuple[Any, ...]]:
    """Returns all combinations of these values; or, where fewer seeds than WHOLE are played, one in
    `share`. With two they are the white squares of a chessboard: each value of an axis stays, and
    each pair of values of two axes where there is a third one of several."""
    places = itertools.product(*(range(len(axis)) for axis in axes))
    return [
        tuple(axis[i] for axis, i in zip(axes, place, strict=True))
        for place in places
        if SEEDS >= WHOLE or sum(place) % share == 0
    ]


@functools.cache
def a_seed() -> int:
    """Of a schedule without poison in which much is published."""
    return next(
        seed
        for seed in itertools.count()
        if sum(e.what in ("insert", "publish") for e in scenario(seed).events) > 60
        and "poison" not in repr(scenario(seed).events)
    )


def worlds_of(found: list[Any]) -> AbstractContextManager[object]:
    """Every world that is made meanwhile goes there."""
    begin = Cluster.begin

    def remembered(self: Cluster) -> None:
        found.append(self)
        begin(self)

    return mock.patch.object(Cluster, "begin", remembered)
