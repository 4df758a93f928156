"""A log that is lost while the service is down: refused by name, and, where that is accepted,
no number is given again and everything that lacks is in a gap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from ps2stream.cluster import log_pairing
from tests.sim.run import Result, play
from tests.sim.scenario import Event, Scenario, scenario

LEAP = 1_000  # the clients of the simulator keep all numbers of a gap


def with_a_loss(seed: int, role: str) -> Scenario:
    """In the middle of it everything stops, and comes back without this log."""
    script = scenario(seed)
    events = [*script.events, Event(script.peace // 2, "lose_log", (role, 0, 300))]
    return script._replace(events=tuple(sorted(events, key=lambda event: event.at)))


@contextmanager
def short_leaps() -> Iterator[None]:
    with mock.patch.object(log_pairing, "LEAP", LEAP):
        yield


def lost(seed: int, role: str) -> Result:
    with short_leaps():
        return play(with_a_loss(seed, role))


@pytest.mark.parametrize("role", ["merger", "dispatcher"])
def test_a_lost_log_is_named_and_told_as_a_gap(role: str) -> None:
    name = {"merger": "matches-0", "dispatcher": "objects-0"}[role]
    for seed in range(2):
        result = lost(seed, role)
        assert not result.violations, seed
        assert any(f"{name} is missing" in told for _, told in result.story), seed


def test_a_loss_that_nobody_notices_is_found() -> None:
    """The deliberate bug: the ledger and the logs are not compared."""
    with mock.patch.object(log_pairing, "find_mismatches", return_value=[]):
        assert any(lost(seed, "merger").violations for seed in range(4))
