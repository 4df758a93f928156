"""What the tests of moves share: clients without faults, the world of a run, and how much of what
is alike is played."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from tests.sim.cluster import Cluster
from tests.sim.scenario import Event, Scenario, scenario

CLIENTS = ("insert", "delete", "publish", "connect")
WHOLE = 1000
SEEDS = int(os.environ.get("SIM_SEEDS", WHOLE))
"""Seeds that are played; CI plays fewer."""


def with_changes(seed: int, numbers: tuple[int, ...]) -> Scenario:
    """Clients, some of whom repeat publications, and dispatchers that join or leave amid what they
    do."""
    script = scenario(seed)
    first, most = numbers[0], max(numbers)
    topology = dataclasses.replace(script.topology, dispatchers=first, most_dispatchers=most)
    events = [e for e in script.events if e.what in (*CLIENTS, "repeat", "insert_until")]
    for n, wanted in enumerate(numbers[1:], 1):
        at = script.peace * n // (len(numbers) + 1)
        events.append(Event(at, "scale_dispatchers", (n, wanted)))
    events.sort(key=lambda event: event.at)
    return script._replace(topology=topology, events=tuple(events))


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
