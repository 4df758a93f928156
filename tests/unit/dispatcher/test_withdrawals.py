"""Withdrawals in a dispatcher: who is asked, when the client is answered, and what befalls them."""

from __future__ import annotations

from typing import Any

import pytest

from ps2stream.dispatcher.events import LogFailed, LogSynced
from ps2stream.dispatcher.withdrawals import OPEN_CALLS, PATIENCE_TICKS, REPEAT_TICKS
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import column_to_strings, decode, strings_to_column
from ps2stream.protocol.log_records import WithdrawalRecord
from ps2stream.protocol.messages.withdrawals import WithdrawForward, WithdrawReply
from ps2stream.protocol.producer_map import ProducerMap
from tests.support.desk import Desk, frames


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.router.dispatchers = 3
    return found


def records(desk: Desk) -> list[WithdrawalRecord]:
    found = [decode(data) for _, data in desk.log.scan()]
    return [record for record in found if isinstance(record, WithdrawalRecord)]


def noted(desk: Desk) -> list[list[str]]:
    """The ids of each record in the log."""
    return [column_to_strings(r.id_off, r.id) for r in records(desk)]


def refuse(_: bytes) -> int:
    raise Unavailable("the disk is full")


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


def test_who_is_called_notes_who_was_there_and_others_do_not(desk: Desk) -> None:
    desk.router.applied = 42
    desk.edge.withdraw_objects(["a"])
    desk.edge.on(forward(4, "x"))
    assert [(r.counted, r.lsn) for r in records(desk)] == [(3, 42), (0, 0)]


def test_what_one_that_has_left_did_not_note_is_noted_here(desk: Desk) -> None:
    shrunk = ProducerMap.first(3).changed(2, 9)
    call = desk.edge.withdraw_objects(["a"])
    desk.edge.sync()
    desk.edge.on(WithdrawReply(1, 1, 1))
    desk.router.producers = shrunk
    desk.edge.tick()
    assert len(records(desk)) == 1  # it counts still
    desk.router.producers, desk.router.applied, desk.router.ready = shrunk.finished(), 50, False
    desk.edge.tick()
    assert len(records(desk)) == 1  # a state is received
    desk.router.ready = True
    desk.edge.tick()
    assert [(r.counted, r.lsn) for r in records(desk)] == [(3, 5), (2, 50)]
    desk.edge.tick()
    assert len(records(desk)) == 2
    assert not call.done()
    desk.edge.sync()
    assert call.result(0) is None


def test_an_answer_waits_for_the_last_record_of_the_call(desk: Desk) -> None:
    call = desk.edge.withdraw_objects(["a"])
    end = desk.log.end
    desk.edge.on(WithdrawReply(1, 1, 1))
    desk.router.dispatchers = 2
    desk.edge.tick()
    desk.edge.events.put(LogSynced(end))
    assert not call.done()
    desk.edge.sync()
    assert call.result(0) is None


def test_a_full_log_puts_the_other_record_off(desk: Desk) -> None:
    call = desk.edge.withdraw_objects(["a"])
    desk.edge.sync()
    desk.edge.on(WithdrawReply(1, 1, 1))
    desk.router.dispatchers = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.log, "append", refuse)
        desk.edge.tick()
    desk.edge.sync()
    assert not call.done()
    desk.edge.tick()
    desk.edge.sync()
    assert call.result(0) is None


def test_one_that_catches_up_takes_no_call(desk: Desk) -> None:
    desk.router.ready = False
    with pytest.raises(Unavailable, match="catching up"):
        desk.edge.withdraw_objects(["a"]).result(0)
    assert records(desk) == []


def test_one_that_leaves_answers_once_its_archive_has_it(desk: Desk) -> None:
    archived = [0]
    desk.edge.machine._log.settle = lambda end: end <= archived[0]
    desk.edge.on(forward(4, "x"))
    desk.edge.sync()
    assert len(frames(desk, WithdrawReply)) == 1
    desk.router.index = 3
    desk.router.producers = ProducerMap.first(4).changed(3, 9)
    desk.edge.on(forward(5, "y"), forward(6, "z"))
    desk.edge.sync()
    desk.edge.tick()
    assert len(frames(desk, WithdrawReply)) == 1
    desk.router.producers = desk.router.producers.finished()
    places = [at for at, data in desk.log.scan() if isinstance(decode(data), WithdrawalRecord)]
    for number, place in enumerate(places):  # the first is answered already
        archived[0] = place + 1
        desk.edge.tick()
        assert len(frames(desk, WithdrawReply)) == 1 + number
    assert [r.number for r in frames(desk, WithdrawReply)] == [4, 5, 6]
    assert desk.edge.machine._withdrawals.is_idle
