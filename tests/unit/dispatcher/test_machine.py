"""The dispatcher's machine: events in, instructions out, in order and without anybody's thread."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import numpy as np
import pytest

from ps2stream.dispatcher.events import (
    AnswersDue,
    CongestionWatched,
    CreditGranted,
    DeliveryDropped,
    EstimateRequested,
    Event,
    ExplanationRequested,
    InboxReopened,
    LogSynced,
    PeerJoined,
    PeerLost,
    PublishRequested,
    RequestForwarded,
    SampleRequested,
    StreamClosed,
    StreamRequested,
    StreamResumed,
    TickPassed,
    WatchEnded,
    WatchRequested,
    WeightsRequested,
)
from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.dispatcher.instructions import (
    AnnounceCongestion,
    AnswerCall,
    DeliverBatch,
    EndStream,
    Instruction,
    OpenStream,
    RefuseCall,
    ReopenInbox,
    ShowSample,
    SyncLog,
)
from ps2stream.dispatcher.machine import PATIENCE, DispatcherMachine
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.open_batches import LATE_S
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import MatchRelease, RoutedObjects
from ps2stream.protocol.messages.sessions import (
    SessionGrant,
    SessionRequest,
    StreamAttach,
    StreamAttached,
    StreamCredit,
    StreamDelivery,
    StreamDetach,
)
from ps2stream.protocol.messages.updates import LookupReply, LookupRequest
from ps2stream.protocol.ticks import TICKS_PER_S
from ps2stream.store.memory import MemoryLog
from tests.support import routers
from tests.support.routers import EAST, insert, posts
from tests.support.routing import Row, object_rows, query_rows

pytestmark = pytest.mark.usefixtures("two_leave_at_once")

I = TypeVar("I")  # noqa: E741
NONE = np.zeros(0, np.uint8)


class Play:
    """A machine around the real router, and what it said to do."""

    def __init__(self, mergers: int = 1) -> None:
        self.log = MemoryLog()
        router = routers.machine(mergers=mergers)
        self.machine = DispatcherMachine(
            router, ObjectLog(self.log), ObjectReservoir(100), StageMeter()
        )
        self.now = 0.0

    def __call__(self, *events: Event) -> list[Instruction]:
        return self.machine.handle(events, self.now, int(self.now * 1000))

    def attach(self, stream: str, epoch: int = 4) -> None:
        self(StreamRequested(stream, "s", 0, 8, 1 << 20))
        self(SessionGrant(self.last_number, 9, epoch))
        assert self(StreamAttached(9, epoch, 0, 8, 7, 0)) == [OpenStream(stream, 9, epoch, 7)]

    @property
    def last_number(self) -> int:
        return self.machine._requests._seq

    def deliver(self, data: bytes, number: int = 1, epoch: int = 4) -> list[Instruction]:
        return self(StreamDelivery(9, epoch, number, 0, np.frombuffer(data, np.uint8)))


def only(out: list[Instruction], kind: type[I]) -> list[I]:
    return [each for each in out if isinstance(each, kind)]


def frames(out: list[Instruction], kind: type[Any]) -> list[Any]:
    return [each.frame for each in only(out, Send) if isinstance(each.frame, kind)]


def test_a_durable_publication_is_sent_at_once_and_answered_once_its_log_is_synced() -> None:
    play = Play()
    play(insert(1))
    out = play(PublishRequested("call", posts(7), durable=True, since=0.0))
    assert len(frames(out, RoutedObjects)) == 1
    assert only(out, SyncLog) == [SyncLog()]
    assert not only(out, AnswerCall)
    assert play(LogSynced(play.log.sync())) == [AnswerCall("call", AcceptedBatch(0, 0, 1))]


def test_publications_that_come_together_leave_as_one_batch() -> None:
    play = Play()
    play(insert(1))
    publish = [PublishRequested(i, posts(7, 7), durable=False, since=0.0) for i in range(3)]
    out = play(*publish)
    assert [len(f.row) for f in frames(out, RoutedObjects)] == [6]
    assert [(a.call, a.value.offset) for a in only(out, AnswerCall)] == [  # type: ignore[attr-defined]
        (0, 0), (1, 2), (2, 4),
    ]  # fmt: skip


def test_new_queries_are_matched_against_valid_objects_under_a_constant_load() -> None:
    play = Play()
    done: list[str] = []

    class Retro:
        has_work = True

        def work(self) -> None:
            done.append("work")

    play.machine._retro = cast(Any, Retro())
    for _ in range(2 * PATIENCE - 1):
        assert play(CongestionWatched("listener")), "something leaves in every turn"
    assert len(done) == 1
    for _ in range(3):
        assert not play()
    assert len(done) == 4


def test_a_request_of_a_client_is_numbered_and_answered_to_it() -> None:
    play = Play()
    request = LookupRequest(0, 0, 0, 0, 1, NONE, NONE)
    [sent] = play(RequestForwarded("one", request))
    assert isinstance(sent, Send)
    frame: Any = sent.frame
    assert (sent.to, frame.seq) == (SEQUENCER, 1)
    reply = LookupReply(1, 0, 0, NONE, np.zeros(1, np.int64), NONE)
    assert play(reply) == [AnswerCall("one", reply)]
    assert play(reply) == []


def test_credits_are_sent_when_they_are_a_quarter_of_the_window() -> None:
    play = Play()
    play.attach("stream")
    assert play.deliver(b"x") == [DeliverBatch("stream", b"x")]
    assert play(CreditGranted("stream", 1, 1, 1)) == []
    [credit] = frames(play(CreditGranted("stream", 1, 1, 2)), StreamCredit)
    assert (credit.batches, credit.bytes, credit.ack) == (2, 2, 2)
    assert play(CreditGranted("a stranger's", 8, 8, 8)) == []


def test_a_stream_whose_inbox_drops_pauses_and_gets_everything_again_when_it_takes() -> None:
    play = Play()
    play.attach("stream")
    play.deliver(b"one")
    assert len(frames(play(DeliveryDropped("stream")), StreamDetach)) == 1
    assert play.deliver(b"two", 2) == [], "it belongs to an epoch that is over"
    assert play(StreamResumed("stream")) == [ReopenInbox("stream")]
    [request] = frames(play(InboxReopened("stream", 1, 3)), SessionRequest)
    [attach] = frames(play(SessionGrant(request.seq, 9, 5)), StreamAttach)
    assert (attach.epoch, attach.credit_batches, attach.credit_bytes) == (5, 8, 1 << 20)


def test_nothing_is_delivered_between_the_resumption_of_a_stream_and_its_new_epoch() -> None:
    """An inbox that was cut while nothing came: what the old epoch still brings would leave a
    gap."""
    play = Play()
    play.attach("stream")
    late = StreamDelivery(9, 4, 1, 0, np.frombuffer(b"late", np.uint8))
    assert play(StreamResumed("stream"), late) == [ReopenInbox("stream")]


def test_an_inbox_is_reopened_though_its_stream_is_gone() -> None:
    play = Play()
    assert play(StreamResumed("gone")) == [ReopenInbox("gone")]
    assert play(InboxReopened("gone", 1, 3)) == []
    assert play(StreamClosed("gone")) == []


def test_a_stream_that_is_taken_over_before_it_is_open_ends() -> None:
    play = Play()
    play(StreamRequested("old", "s", 0, 8, 1 << 20))
    play(SessionGrant(play.last_number, 9, 4))
    play(StreamRequested("new", "s", 0, 8, 1 << 20))
    [ended] = only(play(SessionGrant(play.last_number, 9, 5)), EndStream)
    assert (ended.stream, str(ended.error)) == ("old", "another stream has taken the session over")


def test_watchers_are_shown_samples_until_they_leave() -> None:
    play = Play()
    out = play(WatchRequested("call", "watcher", ""))
    assert AnswerCall("call", None) in out
    shown = [only(play(TickPassed()), ShowSample) for _ in range(TICKS_PER_S)]
    assert [s.watcher for each in shown for s in each] == ["watcher"]
    play(WatchEnded("watcher"))
    assert not [
        play(TickPassed()) for _ in range(TICKS_PER_S) if only(play(TickPassed()), ShowSample)
    ]


def test_a_listener_is_informed_of_congestion_at_once() -> None:
    assert Play()(CongestionWatched("gate")) == [AnnounceCongestion(["gate"], False)]


@pytest.mark.parametrize("make", [EstimateRequested, ExplanationRequested])
def test_an_inquiry_that_fails_concerns_its_caller_alone(make: Any) -> None:
    play = Play()
    [refused] = play(make("call", None))
    assert isinstance(refused, RefuseCall)
    query = query_rows([Row((7,), (0,), (EAST,), lsn=1, handle=1)])
    [answer] = play(make("call", query))
    assert isinstance(answer, AnswerCall)


def test_what_a_dispatcher_knows_itself_is_answered_at_once() -> None:
    play = Play()
    play(PublishRequested("publish", posts(7), durable=False, since=0.0))
    weights, sample = play(WeightsRequested("weights"), SampleRequested("sample"))
    assert isinstance(weights, AnswerCall)
    assert isinstance(sample, AnswerCall)
    held: Any = sample.value
    assert len(held.joined().lon) == 1


def test_unanswered_requests_are_repeated_for_a_new_sequencer() -> None:
    play = Play()
    play(RequestForwarded("one", LookupRequest(0, 0, 0, 0, 1, NONE, NONE)))
    assert len(frames(play(PeerJoined(SEQUENCER)), LookupRequest)) == 1


def test_a_message_that_a_dispatcher_does_not_accept_is_a_bug() -> None:
    class Stranger(Frame):
        """Nobody sends it."""

    with pytest.raises(TypeError, match="does not accept Stranger"):
        Play()(Stranger())


def test_completed_batches_let_others_leave() -> None:
    play = Play()
    play(insert(1))
    for call in range(2):
        play(PublishRequested(call, posts(7), durable=False, since=0.0))
    assert play(PublishRequested(2, posts(7), durable=False, since=0.0)) == []
    out = play(routers.answer(0, 0))
    assert [answer.call for answer in only(out, AnswerCall)] == [2]


def test_what_a_slow_worker_delays_is_released_by_whatever_comes_next() -> None:
    play = Play()
    play(insert(1), insert(2, box=EAST))
    both = object_rows([-20.0, 20.0], [0.0, 0.0], [(7,), (7,)])
    play(PublishRequested("call", both, durable=False, since=0.0))
    assert play.machine.answers_due == math.inf
    play.now = 5.0
    assert not frames(play(routers.answer(0, 0, (0, 1, 1), mergers=1)), MatchRelease)
    play.now += 1.1 * LATE_S
    [part] = frames(play(TickPassed()), MatchRelease)
    assert (part.whole, part.row.tolist()) == (0, [0])
    [rest] = frames(play(routers.answer(1, 0, (1, 2, 1), mergers=1)), MatchRelease)
    assert (rest.whole, rest.row.tolist()) == (0, [1])


def test_answers_that_wait_are_due_a_while_after_the_first() -> None:
    play = Play()
    play(insert(1), insert(2, box=EAST))
    both = object_rows([-20.0, 20.0], [0.0, 0.0], [(7,), (7,)])
    for call in range(2):
        play(PublishRequested(call, both, durable=False, since=0.0))
    assert play.machine.answers_due == math.inf, "nobody has answered"
    for play.now, batch in ((5.0, 0), (5.002, 2)):
        play(routers.answer(0, batch, (0, 1, 1), mergers=1))
        assert play.machine.answers_due == 5.0 + LATE_S
    play.now = 5.0 + 0.9 * LATE_S
    assert play(AnswersDue()) == []
    play.now = 5.0 + 1.1 * LATE_S
    [first] = frames(play(AnswersDue()), MatchRelease)
    assert (first.batch, first.whole) == (0, 0)
    assert play.machine.answers_due == 5.002 + LATE_S
    [whole] = frames(play(routers.answer(1, 2, mergers=1)), MatchRelease)
    assert (whole.batch, whole.whole) == (2, 1)
    assert play.machine.answers_due == math.inf


def test_an_answer_without_a_match_is_never_due() -> None:
    play = Play()
    play(insert(1), insert(2, box=EAST))
    both = object_rows([-20.0, 20.0], [0.0, 0.0], [(7,), (7,)])
    play(PublishRequested("call", both, durable=False, since=0.0))
    play(routers.answer(0, 0, mergers=1))
    assert play.machine.answers_due == math.inf


def test_what_a_dead_worker_holds_up_lets_others_leave() -> None:
    play = Play()
    play(insert(1))
    for call in range(2):
        play(PublishRequested(call, posts(7), durable=False, since=0.0))
    assert play(PublishRequested(2, posts(7), durable=False, since=0.0)) == []
    out = play(PeerLost(Address("worker", 0)))
    assert [answer.call for answer in only(out, AnswerCall)] == [2]
