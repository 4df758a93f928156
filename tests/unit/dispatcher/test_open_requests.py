"""Requests to the sequencer and the controller, until they are answered."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher import open_requests
from ps2stream.dispatcher.edge import REPEAT_TICKS
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.updates import LookupReply
from tests.support.desk import Desk, attached, deliver, grant


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_questions_are_repeated_until_they_are_answered(desk: Desk) -> None:
    desk.edge.session("s")
    asked = desk.edge.lookup("q", 0, 0, 1)
    for _ in range(REPEAT_TICKS):
        desk.edge.tick()
    assert len(desk.sent) == 4
    desk.edge.joined(Address("sequencer", 0))
    assert len(desk.sent) == 6
    none = np.zeros(0, np.uint8)
    reply = LookupReply(2, 0, 0, none, np.zeros(1, np.int64), none)
    desk.edge.on(reply)
    assert asked.result(0) is reply
    desk.edge.joined(Address("sequencer", 0))
    assert len(desk.sent) == 7


def test_unanswered_questions_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = attached(desk, [])
    monkeypatch.setattr(open_requests, "WAITING_QUESTIONS", 1)
    waiting = desk.edge.lookup("q", 0, 0, 1)
    assert not waiting.done()
    for refused in (
        desk.edge.lookup("r", 0, 0, 1),
        desk.edge.session("s"),
        desk.edge.attach("t", 0, 8, 1 << 20, lambda _: False),
    ):
        assert "1 questions are waiting" in str(refused.exception(0))
    deliver(desk, 4, b"three", number=3)  # one is lost: the stream that is open asks all the same
    grant(desk, 9)
    assert (stream.epoch, len(desk.edge.streams)) == (9, 1)
