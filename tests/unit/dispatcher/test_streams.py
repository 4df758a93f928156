"""The Deliver streams of a dispatcher: which one counts, what is credited and attached anew."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher import streams
from ps2stream.errors import FailedPrecondition
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.sessions import (
    DeliveryArrivals,
    SessionRequest,
    StreamAttach,
    StreamAttached,
    StreamDetach,
)
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import no_queries
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from ps2stream.protocol.ticks import REPEAT_TICKS
from tests.support.desk import SESSION, Desk, attached, deliver, frames, grant

TAKEN_OVER = "another stream has taken the session over"


@pytest.fixture
def desk() -> Desk:
    return Desk()


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


def test_each_stream_that_ends_has_an_error_of_its_own(desk: Desk) -> None:
    """One that is raised keeps the frames of its traceback, and those of all raises before."""
    first: list[bytes | Exception] = []
    second: list[bytes | Exception] = []
    attached(desk, first, 4)
    attached(desk, second, 5)
    attached(desk, [], 6)
    assert [*map(str, first)] == [*map(str, second)] == [TAKEN_OVER]
    assert first[0] is not second[0]


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
    desk.edge.streams.maps = desk.router.sessions = SessionMaps(SessionMap.first(4))
    attached(desk, [])
    [send] = [s for s in desk.sent if isinstance(s.frame, StreamAttach)]
    assert send.to == ("merger", SESSION % 4)


def move(desk: Desk, merger: int) -> None:
    """The session moves to this merger."""
    before = desk.router.sessions.now
    table = np.full_like(before.table, merger)
    desk.router.sessions = maps = SessionMaps(SessionMap(before.lsn + 1, table), before)
    rows = np.frombuffer(no_queries().encode(), np.uint8)
    desk.edge.on(LedgerBatch(1, 1, 0, 0, 0, rows, sessions=maps.record()))


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
    desk.edge.on(StreamAttached(SESSION, 4, 0, 5, 5, 1))
    assert "7 is above 5" in str(future.exception(0))
    assert len(desk.edge.streams) == 0


def test_a_stream_that_acknowledged_what_there_is_not_ends_when_it_is_attached_anew(
    desk: Desk,
) -> None:
    sink: list[bytes | Exception] = []
    attached(desk, sink).credit(0, 0, 7)
    desk.edge.joined(Address("merger", 0))
    grant(desk, 9)
    desk.edge.on(StreamAttached(SESSION, 9, 0, 5, 5, 1))
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
        desk.edge.on(StreamAttached(SESSION, 4, 2, 0, 0, 0))
    else:
        desk.edge.joined(Address("merger", 0))
    deliver(desk, 4, b"late", number=2)
    grant(desk, 9)
    last = frames(desk, StreamAttach)[-1]
    assert (last.epoch, last.ack, last.credit_batches) == (9, 1, 8)
    desk.edge.on(StreamAttached(SESSION, 9, 0, 2, 1, 0))
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
    desk.edge.on(StreamAttached(SESSION, 4, 0, 0, 0, 0))
    stream = future.result(0)
    deliver(desk, 4, b"one")
    deliver(desk, 4, b"two", number=2)  # under way when the merger is told
    assert [(d.session, d.epoch) for d in frames(desk, StreamDetach)] == [(SESSION, 4)]
    requests = len(frames(desk, SessionRequest))
    desk.edge.joined(Address("merger", 0))
    move(desk, 3)
    assert len(frames(desk, SessionRequest)) == requests, "it would end a stream that takes"
    stream.again(lambda: (1, 3))
    grant(desk, 9)
    last = frames(desk, StreamAttach)[-1]
    assert (last.epoch, last.credit_batches, last.credit_bytes) == (9, 8, 1 << 20)
    assert desk.sent[-1].to == ("merger", desk.router.sessions.now.merger_of(SESSION))
    assert len(desk.edge.streams) == 1


def test_a_stream_that_is_not_open_yet_is_attached_anew_if_something_was_dropped(
    desk: Desk,
) -> None:
    """Its client does not know of it, and so never takes again."""
    opening = desk.edge.attach("s", 0, 8, 1 << 20, lambda data: data == b"dropped")
    grant(desk, 4)
    deliver(desk, 4, b"dropped")  # that it is attached got lost
    assert len(frames(desk, SessionRequest)) == 2
    grant(desk, 6)
    assert not opening.done()
    desk.edge.on(StreamAttached(SESSION, 6, 0, 0, 0, 0))
    assert opening.result(0).epoch == 6


def test_what_is_taken_before_the_stream_is_attached_is_told_then(desk: Desk) -> None:
    stream = attached(desk, [])
    deliver(desk, 4, b"one")
    move(desk, 3)
    grant(desk, 9)
    stream.credit(1, 3, 1)
    desk.edge.tick()
    told = desk.credits()[-1]
    assert (told.epoch, told.batches, told.bytes, told.ack) == (9, 1, 3, 1)
    count = len(desk.credits())
    for _ in range(3):
        desk.edge.on(StreamAttached(SESSION, 9, 0, 1, 0, 0))
    assert len(desk.credits()) == count + 1
    assert desk.credits()[-1].encode() == told.encode()


def test_a_merger_is_told_what_has_arrived(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "ARRIVED_BYTES", 10)
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


def test_credits_gather_to_a_quarter_of_the_window(desk: Desk) -> None:
    stream = attached(desk, [])
    stream.credit(1, 10, 3)
    assert desk.credits() == []
    stream.credit(1, 10, 2)
    assert [(c.batches, c.bytes, c.ack) for c in desk.credits()] == [(2, 20, 3)]
    stream.credit(1, 1 << 18, 4)
    assert [(c.batches, c.bytes, c.ack) for c in desk.credits()][1:] == [(3, 20 + (1 << 18), 4)]


def test_a_window_of_one_is_credited_at_once(desk: Desk) -> None:
    attached(desk, [], batches=1).credit(1, 10, 1)
    assert len(desk.credits()) == 1


def test_a_tick_and_the_end_tell_what_was_gathered_once(desk: Desk) -> None:
    stream = attached(desk, [], batches=100)
    stream.credit(1, 10, 1)
    desk.edge.tick()
    desk.edge.tick()
    stream.credit(0, 0, 7)
    stream.close()
    assert [(c.batches, c.bytes, c.ack) for c in desk.credits()] == [(1, 10, 1), (1, 10, 7)]
    assert isinstance(desk.sent[-1].frame, StreamDetach)
