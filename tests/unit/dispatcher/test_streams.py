"""The dispatcher's edge: who is answered, which stream counts, how much leaves at a time."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher import open_requests, updates
from ps2stream.dispatcher.edge import REPEAT_TICKS
from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.dispatcher.intake import ROWS, PublicationIntake
from ps2stream.errors import FailedPrecondition
from ps2stream.language.query_rows import delete_rows
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.objects import BatchesCompleted
from ps2stream.protocol.messages.sessions import (
    DeliveryArrivals,
    SessionGrant,
    StreamAttach,
    StreamAttached,
    StreamDelivery,
    StreamDetach,
)
from ps2stream.protocol.messages.updates import LookupReply, UpdateDecision
from tests.unit.dispatcher.test_intake import Desk, rows

SESSION = 9
TAKEN_OVER = "another stream has taken the session over"


@pytest.fixture
def desk() -> Desk:
    return Desk()


def grant(desk: Desk, epoch: int) -> None:
    desk.edge._handle_reply(SessionGrant(desk.edge._questions._seq, SESSION, epoch))


def attached(desk: Desk, sink: list[bytes | Exception], epoch: int = 4) -> Any:
    future = desk.edge.attach("s", 0, 8, 1 << 20, sink.append)
    grant(desk, epoch)
    assert not future.done()
    desk.edge._handle_reply(StreamAttached(SESSION, epoch, 0, 0, 0, 0))
    return future.result(0)


def deliver(desk: Desk, epoch: int, data: bytes, closed: int = 0, number: int = 1) -> None:
    desk.edge._handle_reply(
        StreamDelivery(SESSION, epoch, number, closed, np.frombuffer(data, np.uint8))
    )


def frames(desk: Desk, kind: type[Any]) -> list[Any]:
    return [s.frame for s in desk.sent if isinstance(s.frame, kind)]


def test_a_later_stream_ends_the_earlier_one_and_outlives_its_end(desk: Desk) -> None:
    first: list[bytes | Exception] = []
    second: list[bytes | Exception] = []
    old, new = attached(desk, first, 4), attached(desk, second, 5)
    assert [*map(str, first)] == [TAKEN_OVER]
    old.close()
    deliver(desk, old.epoch, b"late")
    deliver(desk, new.epoch, b"match")
    assert (len(first), second) == (1, [b"match"])
    assert desk.edge.status()["streams"] == 1


def test_a_stream_that_moved_to_another_dispatcher_ends_here(desk: Desk) -> None:
    sink: list[bytes | Exception] = []
    stream = attached(desk, sink)
    deliver(desk, stream.epoch - 1, b"", closed=1)  # said of an older one
    assert (sink, desk.edge.status()["streams"]) == ([], 1)
    deliver(desk, stream.epoch, b"", closed=1)
    assert ([*map(str, sink)], desk.edge.status()["streams"]) == ([TAKEN_OVER], 0)
    stream.close()
    assert frames(desk, StreamDetach) == []  # the merger knows


def test_control_goes_to_the_sessions_merger(desk: Desk) -> None:
    desk.edge.streams._mergers = 4
    attached(desk, [])
    [send] = [s for s in desk.sent if isinstance(s.frame, StreamAttach)]
    assert send.to == ("merger", SESSION % 4)


def test_updates_wait_until_all_that_left_are_decided(desk: Desk) -> None:
    one = delete_rows(strings_to_column(["q"]))

    def ask() -> Future[UpdateDecision]:
        return desk.edge.update(one, [""], [""])

    def decide() -> int:
        desk.edge.on(UpdateDecision(1, np.zeros(1, np.uint8), np.ones(1, np.int64)))
        return desk.router.asked

    for _ in range(3):
        ask()
    assert decide() == 3  # the second and the third left together
    ask()
    assert [decide(), decide()] == [3, 4]


def test_no_more_batches_are_under_way_than_may_be(desk: Desk) -> None:
    futures = [desk.edge.publish(rows(ROWS), durable=False) for _ in range(4)]
    assert [f.done() for f in futures] == [True, True, True, False]
    assert len(desk.router.batches) == desk.router.max_in_flight


def test_who_waits_for_room_is_woken_by_it(desk: Desk) -> None:
    looked = threading.Event()

    class Watched(PublicationIntake):
        def __len__(self) -> int:
            looked.set()  # under the lock, which only the wait for room lets go
            return super().__len__()

    for _ in range(2):
        desk.edge.publish(rows(1))
    desk.edge._publications.intake = Watched()
    for _ in range(3):
        desk.edge.publish(rows(1))
    looked.clear()
    found: list[Future[AcceptedBatch]] = []
    waiting = threading.Thread(
        target=lambda: found.append(desk.edge.publish(rows(1), 1e6, durable=False)), daemon=True
    )
    waiting.start()
    assert looked.wait(30)
    desk.edge.on(BatchesCompleted(0, np.zeros(1, np.int64)))
    waiting.join(30)
    assert not waiting.is_alive()
    desk.edge.on(BatchesCompleted(0, np.zeros(1, np.int64)))
    assert isinstance(found[0].result(), AcceptedBatch)


def test_an_attach_is_repeated_until_it_is_answered(desk: Desk) -> None:
    future = desk.edge.attach("s", 3, 8, 1 << 20, lambda _: None, ack=7)
    grant(desk, 4)
    for _ in range(2 * REPEAT_TICKS):
        desk.edge.tick()
    attaches = frames(desk, StreamAttach)
    assert {(a.epoch, a.fields, a.credit_batches, a.ack) for a in attaches} == {(4, 3, 8, 7)}
    assert (len(attaches), future.done()) == (3, False)


def test_a_cursor_from_elsewhere_is_refused(desk: Desk) -> None:
    future = desk.edge.attach("s", 0, 8, 1 << 20, lambda _: None, ack=7)
    grant(desk, 4)
    desk.edge._handle_reply(StreamAttached(SESSION, 4, 0, 5, 5, 1))
    assert "7 is above 5" in str(future.exception(0))
    assert len(desk.edge.streams) == 0


def test_a_stream_that_acknowledged_what_there_is_not_ends_when_it_is_attached_anew(
    desk: Desk,
) -> None:
    sink: list[bytes | Exception] = []
    attached(desk, sink).credit(0, 0, 7)
    desk.edge.joined(Address("merger", 0))
    grant(desk, 9)
    desk.edge._handle_reply(StreamAttached(SESSION, 9, 0, 5, 5, 1))
    [error] = sink
    assert isinstance(error, FailedPrecondition)
    assert "7 is above 5" in str(error)
    assert len(desk.edge.streams) == 0


@pytest.mark.parametrize("how", ["gap", "silent", "merger"])
def test_what_got_lost_is_had_by_attaching_anew(desk: Desk, how: str) -> None:
    sink: list[bytes | Exception] = []
    stream = attached(desk, sink)
    deliver(desk, 4, b"one")
    stream.credit(1, 3, 1)
    if how == "gap":
        deliver(desk, 4, b"three", number=3)
    elif how == "silent":
        desk.edge._handle_reply(StreamAttached(SESSION, 4, 2, 0, 0, 0))
    else:
        desk.edge.joined(Address("merger", 0))
    deliver(desk, 4, b"late", number=2)
    grant(desk, 9)
    last = frames(desk, StreamAttach)[-1]
    assert (last.epoch, last.ack, last.credit_batches) == (9, 1, 8)
    desk.edge._handle_reply(StreamAttached(SESSION, 9, 0, 2, 1, 0))
    deliver(desk, 9, b"two")
    assert sink == [b"one", b"two"]


def test_what_was_not_taken_counts_against_the_window_of_a_stream_attached_anew(
    desk: Desk,
) -> None:
    attached(desk, [])
    deliver(desk, 4, b"one")
    desk.edge.joined(Address("merger", 0))
    grant(desk, 9)
    last = frames(desk, StreamAttach)[-1]
    assert (last.epoch, last.credit_batches, last.credit_bytes) == (9, 7, (1 << 20) - 3)


def test_a_delivery_that_nobody_asked_for_is_detached(desk: Desk) -> None:
    deliver(desk, 4, b"x")
    assert [(d.session, d.epoch) for d in frames(desk, StreamDetach)] == [(SESSION, 4)]


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
    desk.edge._handle_reply(reply)
    assert asked.result(0) is reply
    desk.edge.joined(Address("sequencer", 0))
    assert len(desk.sent) == 7


def test_waiting_inserts_are_bounded_and_deletes_have_room_of_their_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "WAITING_UPDATES", 2)
    drop = delete_rows(strings_to_column(["q"]))
    add = drop.replace(kind=np.ones(1, np.uint8))
    inserts = [desk.edge.update(add, ["s"], [""]) for _ in range(3)]
    deletes = [desk.edge.update(drop, [""], [""]) for _ in range(3)]
    for lane in (inserts, deletes):
        assert [f.done() for f in lane] == [False, False, True]
        assert "waiting_updates" in str(lane[2].exception(0))
    for seq in (1, 2):
        desk.edge._handle_reply(UpdateDecision(seq, np.zeros(1, np.uint8), np.ones(1, np.int64)))
    assert not desk.edge.update(add, ["s"], [""]).done()


def test_the_bytes_of_waiting_updates_are_bounded_by_lane(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop = delete_rows(strings_to_column(["q"]))
    add = drop.replace(kind=np.ones(1, np.uint8))
    monkeypatch.setattr(updates, "WAITING_BYTES", 2 * len(drop.encode()))
    for rows_, name in ((add, "inserts"), (drop, "deletes")):
        lane = [desk.edge.update(rows_, [""], [""]) for _ in range(3)]
        assert [f.done() for f in lane] == [False, False, True]
        assert f"bytes of {name} are waiting" in str(lane[2].exception(0))
        assert "waiting_bytes" in str(lane[2].exception(0))
    for seq in (1, 2):
        desk.edge._handle_reply(UpdateDecision(seq, np.zeros(1, np.uint8), np.ones(1, np.int64)))
    assert not desk.edge.update(add, [""], [""]).done(), "what is answered takes no room"


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
        assert "1 requests are waiting" in str(refused.exception(0))
    deliver(desk, 4, b"three", number=3)  # one is lost: the stream that is open asks all the same
    grant(desk, 9)
    assert (stream.epoch, len(desk.edge.streams)) == (9, 1)


def test_a_stream_that_waits_for_its_epoch_says_nothing(desk: Desk) -> None:
    sink: list[bytes | Exception] = []
    desk.edge.attach("s", 0, 8, 1 << 20, sink.append)
    grant(desk, 4)
    desk.edge.joined(Address("merger", 0))  # before it has answered
    before = len(frames(desk, StreamAttach))
    for _ in range(3 * REPEAT_TICKS):
        desk.edge.tick()
    assert (len(frames(desk, StreamAttach)), sink) == (before, [])
    grant(desk, 9)
    assert frames(desk, StreamAttach)[-1].epoch == 9


def test_a_stream_whose_sink_lets_go_pauses_until_it_takes_again(desk: Desk) -> None:
    future = desk.edge.attach("s", 0, 8, 1 << 20, lambda _: True)
    grant(desk, 4)
    desk.edge._handle_reply(StreamAttached(SESSION, 4, 0, 0, 0, 0))
    stream = future.result(0)
    deliver(desk, 4, b"one")
    deliver(desk, 4, b"two", number=2)  # under way when the merger is told
    assert [(d.session, d.epoch) for d in frames(desk, StreamDetach)] == [(SESSION, 4)]
    stream.again(lambda: (1, 3))
    grant(desk, 9)
    last = frames(desk, StreamAttach)[-1]
    assert (last.epoch, last.credit_batches, last.credit_bytes) == (9, 8, 1 << 20)
    assert len(desk.edge.streams) == 1


def test_a_merger_is_told_what_has_arrived(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.dispatcher.streams.ARRIVED_BYTES", 10)
    attached(desk, [])

    def told() -> list[int]:
        return [frame.bytes for frame in frames(desk, DeliveryArrivals)]

    deliver(desk, 4, bytes(9))
    assert told() == []
    deliver(desk, 3, b"x", number=2)  # of no stream of now
    assert told() == [10]
    deliver(desk, 4, b"x", number=2)
    desk.edge.tick()
    desk.edge.tick()
    assert told() == [10, 11]
    desk.edge.joined(Address("merger", 0))
    desk.edge.tick()
    deliver(desk, 4, bytes(12), number=3)
    assert told() == [10, 11, 12]
