"""What the tests of moves share: clients without faults, and the world of a run."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from tests.sim.cluster import Cluster
from tests.sim.scenario import scenario

CLIENTS = ("insert", "delete", "publish", "connect")


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
