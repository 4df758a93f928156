"""Withdrawals amid dispatchers that join and leave: readers of an archive leave out what one had
before it left, and nothing that it accepts later."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from ps2stream.dispatcher import withdrawals
from tests.sim.moving import with_changes
from tests.sim.run import play
from tests.sim.scenario import SHRUNK, Event, Scenario
from tests.support.shortening import choose_first


def with_withdrawals(seed: int) -> Scenario:
    """Dispatchers that join and leave, and withdrawals of what is published at any time."""
    script = with_changes(SHRUNK + seed, (3, 1, 3, 2, 3))
    rng = random.Random(seed)
    published = [event for event in script.events if event.what == "publish"]
    events = list(script.events)
    for of in rng.choices(published, k=24):
        names = tuple(each[0] for each in of.args[2])
        at = rng.randrange(script.peace)
        events.append(Event(at, "withdraw", (rng.randrange(3), names)))
    events.sort(key=lambda event: event.at)
    return script._replace(events=tuple(events))


@contextlib.contextmanager
def withdrawals_leave_what_others_had_that_are_away() -> Iterator[None]:
    """Only dispatchers that are there note a withdrawal."""
    note = withdrawals.ObjectWithdrawals._note

    def alone(self: Any, *args: Any) -> int:
        return note(self, *args[:5])

    with mock.patch.object(withdrawals.ObjectWithdrawals, "_note", alone):
        yield


@contextlib.contextmanager
def withdrawals_take_what_others_accept_when_they_are_back() -> Iterator[None]:
    """A withdrawal concerns all that dispatchers accept which are away."""
    note = withdrawals.ObjectWithdrawals._note

    def greedy(self: Any, *args: Any) -> int:
        return note(self, *args[:6], *(1 << 40 for _ in args[6:]))

    with mock.patch.object(withdrawals.ObjectWithdrawals, "_note", greedy):
        yield


FOUND_BY: dict[Callable[[], AbstractContextManager[None]], int] = {
    withdrawals_leave_what_others_had_that_are_away: 17,
    withdrawals_take_what_others_accept_when_they_are_back: 7,
}
"""Deliberate bugs, and the seed that finds each."""


@pytest.mark.parametrize("seed", choose_first(range(4), 2))
def test_an_archive_lacks_what_is_withdrawn_and_nothing_else(seed: int) -> None:
    found = play(with_withdrawals(seed))
    assert not found.violations
    assert found.events["scaled"]


@pytest.mark.parametrize("bug", FOUND_BY)
def test_deliberate_bugs_are_found(bug: Callable[[], AbstractContextManager[None]]) -> None:
    with bug():
        found = play(with_withdrawals(FOUND_BY[bug]))
    assert any("archive" in wrong for wrong in found.violations), found.violations
