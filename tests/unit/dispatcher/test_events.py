"""The events of the machine: each is a value, and the machine knows what to do with it."""

from __future__ import annotations

from typing import get_args

from ps2stream.dispatcher import events
from ps2stream.dispatcher.machine import DispatcherMachine
from ps2stream.protocol.frame import Frame
from tests.support.desk import Desk


def test_the_machine_handles_every_event() -> None:
    machine: DispatcherMachine = Desk().edge.machine
    kinds = {*get_args(events.Event)} - {Frame}
    defined = {each for each in vars(events).values() if isinstance(each, type)}
    here = {each for each in defined if each.__module__ == events.__name__}
    assert kinds == here
    assert kinds <= {*machine._handlers}


def test_an_event_is_its_values() -> None:
    assert events.CreditGranted("s", 1, 2, 3) == events.CreditGranted("s", 1, 2, 3)
    assert events.PublishRequested("call", None, True, 1.0).wait_s == 0.0  # type: ignore[arg-type]
