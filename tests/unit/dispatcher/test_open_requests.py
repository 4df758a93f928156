"""Requests to the sequencer and the controller, until they are answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher import open_requests
from ps2stream.dispatcher.open_requests import OpenRequests
from ps2stream.protocol.addresses import CONTROLLER, SEQUENCER, Address
from ps2stream.protocol.messages.loads import AdjustRequest
from ps2stream.protocol.messages.sessions import SessionRequest, StreamAttach
from ps2stream.protocol.messages.updates import LookupReply
from ps2stream.protocol.ticks import REPEAT_TICKS
from tests.support.desk import Desk, attached, deliver, frames, grant

NAME = np.frombuffer(b"name", np.uint8)


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
    attached(desk, [])
    monkeypatch.setattr(open_requests, "WAITING_QUESTIONS", 1)
    waiting = desk.edge.lookup("q", 0, 0, 1)
    assert not waiting.done()
    for refused in (
        desk.edge.lookup("r", 0, 0, 1),
        desk.edge.session("s"),
        desk.edge.attach("t", 0, 8, 1 << 20, lambda _: False),
    ):
        assert "1 requests are waiting" in str(refused.exception(0))
    deliver(desk, 4, b"three", number=3)  # one is lost: the stream that is open asks all the same
    grant(desk, 9)
    assert (frames(desk, StreamAttach)[-1].epoch, len(desk.edge.streams)) == (9, 1)


def test_each_answer_reaches_the_one_who_asked_and_once() -> None:
    sent: list[Any] = []
    requests = OpenRequests(sent)
    requests.ask("first", SessionRequest(0, 0, 0, NAME))
    requests.ask("second", AdjustRequest(0, 0, NAME), CONTROLLER)
    assert [(s.to, s.frame.seq) for s in sent] == [(SEQUENCER, 1), (CONTROLLER, 2)]
    assert requests.take(2) == "second"
    assert requests.take(2) is None
    sent.clear()
    requests.repeat()
    assert [s.to for s in sent] == [SEQUENCER]
    assert requests.take(1) == "first"
    requests.repeat()
    assert [s.to for s in sent] == [SEQUENCER]


def test_what_is_only_expected_is_not_repeated() -> None:
    """As an update, which the router repeats."""
    sent: list[Any] = []
    requests = OpenRequests(sent)
    seq = requests.expect("caller")
    requests.repeat()
    assert sent == []
    assert requests.take(seq) == "caller"
