"""Who is replaced when: as the lease of the settings has it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.cluster.supervisor import Supervisor
from ps2stream.messages import Address

HERE = Address("worker", 0)


class Actor:
    """Answers while `awake`; a call is whether it was."""

    def __init__(self) -> None:
        self.awake = True
        self.leases: list[float] = []
        self.ping = SimpleNamespace(remote=self._ping)

    def _ping(self, until: float) -> list[Actor]:
        self.leases.append(until)
        return [self]


def _wait(calls: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
    assert timeout == 0
    ready = [call for call in calls if call[0].awake]
    return ready, [call for call in calls if call not in ready]


@pytest.mark.parametrize("lease_s", [1.0, 30.0])
def test_who_does_not_answer_within_the_lease_is_dead(
    lease_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor = Actor()
    ray = SimpleNamespace(wait=_wait, get=lambda _: 7, exceptions=SimpleNamespace(RayError=OSError))
    supervisor = Supervisor(ray, {HERE: actor}, threading.RLock(), lambda _: None, lease_s)
    for _ in range(3):
        assert supervisor._look() == []
        now[0] += 0.25
    actor.awake = False
    last = actor.leases[-2]  # of the last ping that was answered
    assert last == 1000.25 + lease_s
    now[0] = last
    assert supervisor._look() == []
    now[0] = last + 0.01
    assert supervisor._look() == [(HERE, actor)]


def test_who_has_gone_and_comes_again_is_not_held_to_the_lease_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ray = SimpleNamespace(wait=_wait, get=lambda _: 7, exceptions=SimpleNamespace(RayError=OSError))
    actors = {HERE: Actor()}
    supervisor = Supervisor(ray, actors, threading.RLock(), lambda _: None, 2.0)
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
