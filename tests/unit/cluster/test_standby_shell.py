"""A standby is the actor that it becomes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ps2stream.cluster import standby_shell
from ps2stream.cluster.actor_shells import ControllerShell
from ps2stream.cluster.standby_shell import SHELLS, StandbyShell
from ps2stream.cluster.topology import Topology
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid

CONTROLLER = Address("controller", 0)
TOPOLOGY = Topology(built_in_plan(Analysis(salt=0), Grid(), 1))


class EndedError(Exception):
    """The process would have ended."""


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(standby_shell, "load_kernels", lambda _: None)
    return StandbyShell(TOPOLOGY)


def test_it_answers_the_calls_of_the_role_that_it_took(standby: Any) -> None:
    assert standby.is_loaded()
    standby.become(ControllerShell, CONTROLLER, (5, TOPOLOGY))
    pulse = standby.ping(6.0, None)
    assert pulse.pid == os.getpid()
    assert standby.status()["epoch"] == 5
    assert not standby.has_ended(os.getpid())


def test_it_has_all_methods_of_every_role() -> None:
    for shell in SHELLS:
        for name in vars(shell):
            if not name.startswith("_") and callable(getattr(shell, name)):
                assert callable(getattr(StandbyShell, name)), name


def test_one_that_cannot_be_made_ends(standby: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise EndedError(code)

    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(EndedError, match="70"):
        standby.become(ControllerShell, CONTROLLER, ("one argument too few",))
