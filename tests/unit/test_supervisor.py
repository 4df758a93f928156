"""Who is replaced when: as the lease of the settings has it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.cluster.shell import Pulse
from ps2stream.cluster.supervisor import Supervisor
from ps2stream.messages import Address

HERE = Address("worker", 0)


class Actor:
    """Answers while `awake`, and its clock goes `ahead` of the supervisor's; a call is whether
    it was, and `lost`: Ray says that it has died."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.awake = True
        self.lost = False
        self.ahead = ahead
        self.lease = float("inf")  # by its clock
        self.ping = SimpleNamespace(remote=self._ping)

    def _ping(self, lease_s: float, heard: float | None) -> list[Actor]:
        if self.awake and not self.lost:
            self.lease = (self.clock if heard is None else heard) + lease_s
        return [self]

    @property
    def clock(self) -> float:
        return time.monotonic() + self.ahead


def _get(call: list[Actor]) -> Pulse:
    if call[0].lost:
        raise OSError
    return Pulse(7, call[0].clock)


def _wait(calls: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
    assert timeout == 0
    ready = [call for call in calls if call[0].awake]
    return ready, [call for call in calls if call not in ready]


RAY = SimpleNamespace(
    wait=_wait, get=_get, kill=lambda _: None, exceptions=SimpleNamespace(RayError=OSError)
)


@pytest.mark.parametrize("lease_s", [1.0, 30.0])
@pytest.mark.parametrize("ahead", [0.0, -500.0, 1e6])
def test_who_does_not_answer_within_the_lease_is_dead(
    lease_s: float, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor = Actor(ahead)
    supervisor = Supervisor(RAY, {HERE: actor}, threading.RLock(), lambda _: None, lease_s)
    for _ in range(3):
        assert supervisor._look() == []
        now[0] += 0.25
    actor.awake = False
    last = 1000.5 + lease_s  # from the last answer
    assert actor.lease - ahead <= last
    assert supervisor.silent_s(HERE) == 0.25
    now[0] = last
    assert supervisor._look() == []
    now[0] = last + 0.01
    assert supervisor._look() == [(HERE, actor)]
    assert now[0] > actor.lease - ahead


@pytest.mark.parametrize("near", [True, False])
def test_whom_ray_has_lost_on_another_host_may_live_until_its_lease_is_over(
    near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor = Actor()
    supervisor = Supervisor(RAY, {HERE: actor}, threading.RLock(), lambda _: None, 6.0, near)
    for _ in range(3):
        assert supervisor._look() == []
        now[0] += 0.25
    actor.lost = True
    found = supervisor._look()
    assert found == ([(HERE, actor)] if near else [])
    if not near:
        now[0] = actor.lease
        assert supervisor._look() == []
        now[0] = 1000.5 + 6.01
        assert supervisor._look() == [(HERE, actor)]
        supervisor._dead(HERE, actor)
        assert supervisor._look() == []  # it is asked once more
        assert supervisor._look() == [(HERE, actor)]


def test_one_that_never_answered_and_is_lost_is_waited_for_no_longer_than_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor = Actor()
    actor.lost = True
    supervisor = Supervisor(RAY, {HERE: actor}, threading.RLock(), lambda _: None, 6.0, near=False)
    for _ in range(2):
        assert supervisor._look() == []
    now[0] += 6.01
    assert supervisor._look() == [(HERE, actor)]


def test_who_has_gone_and_comes_again_is_not_held_to_the_lease_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actors = {HERE: Actor()}
    supervisor = Supervisor(RAY, actors, threading.RLock(), lambda _: None, 2.0)
    for _ in range(3):
        assert supervisor._look() == []
        now[0] += 0.25
    gone = actors.pop(HERE)
    assert supervisor._look() == []
    now[0] += 60
    actors[HERE] = again = Actor()
    assert again is not gone
    again.awake = False  # it is being made
    for _ in range(3):
        assert supervisor._look() == []
        now[0] += 0.25
