"""Withdrawals in a dispatcher: who is asked, when the client is answered, and what befalls them."""

from __future__ import annotations

from typing import Any

import pytest

from ps2stream.dispatcher.events import LogFailed
from ps2stream.dispatcher.withdrawals import OPEN_CALLS, PATIENCE_TICKS, REPEAT_TICKS
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import column_to_strings, decode, strings_to_column
from ps2stream.protocol.log_records import WithdrawalRecord
from ps2stream.protocol.messages.withdrawals import WithdrawForward, WithdrawReply
from tests.support.desk import Desk, frames


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.router.dispatchers = 3
    return found


def noted(desk: Desk) -> list[list[str]]:
    """The ids of each record in the log."""
    records = [decode(data) for _, data in desk.log.scan()]
    return [column_to_strings(r.id_off, r.id) for r in records if isinstance(r, WithdrawalRecord)]


def asked(desk: Desk) -> list[int]:
    """The dispatchers that were asked, in order."""
    sent = [s for s in desk.sent if isinstance(s, Send) and isinstance(s.frame, WithdrawForward)]
    assert all(s.to.role == "dispatcher" for s in sent)
    return [s.to.index for s in sent]


def forward(number: int, *ids: str, epoch: int = 7, oldest: int = 1) -> WithdrawForward:
    return WithdrawForward(2, epoch, number, oldest, *strings_to_column(list(ids)))


def test_a_client_is_answered_once_every_dispatcher_has_it_durably(desk: Desk) -> None:
    call = desk.edge.withdraw_objects(["b", "a"])
    assert (noted(desk), asked(desk)) == ([["a", "b"]], [1, 2])
    desk.edge.on(WithdrawReply(1, 1, 1))
    desk.edge.on(WithdrawReply(2, 1, 1))
    assert not call.done()  # its own log is not synced
    desk.edge.sync()
    assert call.result(0) is None


def test_what_is_not_answered_is_asked_again_and_then_given_up(desk: Desk) -> None:
    call = desk.edge.withdraw_objects(["a"])
    desk.edge.sync()
    desk.edge.on(WithdrawReply(1, 1, 1), WithdrawReply(2, 9, 1), WithdrawReply(2, 1, 5))
    for _ in range(REPEAT_TICKS):
        desk.edge.tick()
    assert asked(desk) == [1, 2, 2]
    assert not call.done()
    for _ in range(PATIENCE_TICKS):
        desk.edge.tick()
    with pytest.raises(Unavailable, match="dispatcher 2 did not answer"):
        call.result(0)
    desk.edge.on(WithdrawReply(2, 1, 1))  # too late


def test_a_repeat_is_answered_and_not_noted_again(desk: Desk) -> None:
    """As an object that was published in between is another one."""

    def answered() -> list[tuple[int, int, int]]:
        return [(r.dispatcher, r.epoch, r.number) for r in frames(desk, WithdrawReply)]

    for _ in range(2):
        desk.edge.on(forward(4, "x"))
    assert answered() == []
    desk.edge.sync()
    assert answered() == [(0, 7, 4)] * 2
    desk.edge.on(forward(4, "x"))
    desk.edge.sync()
    assert answered() == [(0, 7, 4)] * 3
    assert noted(desk) == [["x"]]
    desk.edge.on(forward(4, "x", epoch=8))  # of the next incarnation
    assert noted(desk) == [["x"], ["x"]]


def test_what_cannot_come_again_is_forgotten(desk: Desk) -> None:
    for number in range(1, 9):
        desk.edge.on(forward(number, "x", oldest=max(1, number - 2)))
    kept = desk.edge.machine._withdrawals._noted[2]
    assert sorted(kept) == [(7, number) for number in (6, 7, 8)]


def test_a_full_log_refuses_the_client_and_leaves_the_others_to_ask_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: bytes) -> int:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(desk.log, "append", refuse)
    with pytest.raises(Unavailable, match="the disk is full"):
        desk.edge.withdraw_objects(["a"]).result(0)
    desk.edge.on(forward(4, "x"))
    desk.edge.sync()
    assert asked(desk) == []
    assert frames(desk, WithdrawReply) == []


def test_a_log_that_fails_refuses_what_is_under_way(desk: Desk) -> None:
    call = desk.edge.withdraw_objects(["a"])
    desk.edge.events.put(LogFailed(Unavailable("failed")))
    with pytest.raises(Unavailable, match="failed"):
        call.result(0)


def test_calls_under_way_are_bounded(desk: Desk) -> None:
    calls: list[Any] = [desk.edge.withdraw_objects(["a"]) for _ in range(OPEN_CALLS + 1)]
    with pytest.raises(ResourceExhausted, match="64 calls are under way"):
        calls[-1].result(0)
    assert not any(call.done() for call in calls[:-1])
    assert Address("dispatcher", 0) not in {s.to for s in desk.sent}
