"""Publications with a producer and a seq: repeats, forwards, and what befalls those under way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher.events import LogFailed
from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity, UnknownPublication
from ps2stream.dispatcher.identified import FORWARD_TICKS
from ps2stream.dispatcher.machine import DispatcherMachine
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.producers import find_owner
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.errors import (
    AlreadyExists,
    FailedPrecondition,
    ResourceExhausted,
    Unavailable,
)
from ps2stream.limits import PRODUCER_WINDOW
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.publications import PublishForward, PublishReply, PublishStatus
from ps2stream.protocol.ports import Log
from ps2stream.protocol.rows import ObjectRows
from tests.support.desk import Desk, Router, frames, rows
from tests.support.edges import LoneEdge

pytestmark = pytest.mark.usefixtures("two_leave_at_once")

DIGEST = bytes(16)
OWN, FOREIGN = (next(p for p in "abcdefgh" if find_owner(p, 2) == i) for i in range(2))
"""Producers that dispatcher 0 and dispatcher 1 of two remember."""


def identity(seq: int, producer: str = OWN, digest: bytes = DIGEST) -> PublicationIdentity:
    return PublicationIdentity(producer, seq, digest)


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.router.dispatchers = 2
    return found


def restarted(log: Log) -> Desk:
    """Another incarnation of the dispatcher, with this log."""
    new: Any = Desk()
    new.log, new.router = log, Router()
    new.router.dispatchers = 2
    machine = DispatcherMachine(new.router, ObjectLog(log), ObjectReservoir(0), StageMeter())
    new.edge = LoneEdge(machine, log, new.post, new.wake, lambda: False)
    return new  # type: ignore[no-any-return]


def forward(number: int, seq: int = 1, digest: bytes = DIGEST, epoch: int = 7) -> PublishForward:
    name, content = (np.frombuffer(raw, np.uint8) for raw in (OWN.encode(), digest))
    encoded = np.frombuffer(rows(2).encode(), np.uint8)
    return PublishForward(1, epoch, number, 0, encoded, np.array([seq], np.uint64), name, content)


def replies(desk: Desk) -> list[tuple[int, int, int, int]]:
    """Epoch, number, status and offset of each."""
    return [(r.epoch, r.number, r.status, r.offset) for r in frames(desk, PublishReply)]


def test_nobody_sees_a_publication_before_it_is_durable(desk: Desk) -> None:
    first = desk.edge.publish(rows(2), durable=False, identity=identity(1))
    other = desk.edge.publish(rows(1), durable=False)
    assert (first.done(), other.done(), desk.router.routed) == (False, True, [])
    desk.edge.sync()
    assert (first.result(0), desk.router.routed) == (AcceptedBatch(0, 0, 5), [0])


def test_a_repeat_gets_the_first_answer_before_and_after_it_is_known(desk: Desk) -> None:
    calls = [desk.edge.publish(rows(2), identity=identity(1)) for _ in range(3)]
    desk.edge.sync()
    calls.append(desk.edge.publish(rows(2), identity=identity(1)))
    assert [call.result(0) for call in calls] == [AcceptedBatch(0, 0, 5)] * 4
    assert desk.router.batches == [2]


def test_publications_of_several_producers_join_and_keep_their_own_offsets(desk: Desk) -> None:
    for _ in range(2):
        desk.edge.publish(rows(1), durable=False)
    calls = [desk.edge.publish(rows(n), identity=identity(n)) for n in (2, 3)]
    plain = desk.edge.publish(rows(4), durable=False)
    desk.complete_batch()
    desk.edge.sync()
    assert [call.result(0).offset for call in calls] == [2, 4]
    desk.complete_batch()
    assert (plain.result(0).offset, desk.router.batches) == (7, [1, 1, 5, 4])
    again = restarted(desk.log)
    found = [again.edge.publish(rows(n), identity=identity(n)).result(0).offset for n in (2, 3)]
    assert found == [2, 4]


def test_another_content_is_refused_before_and_after_the_first_is_durable(desk: Desk) -> None:
    desk.edge.publish(rows(2), identity=identity(1))
    for _ in range(2):
        wrong = desk.edge.publish(rows(2), identity=identity(1, digest=b"another content!"))
        assert isinstance(wrong.exception(0), AlreadyExists)
        desk.edge.sync()
    assert desk.router.batches == [2]


def test_what_was_lost_with_the_log_is_published_and_what_was_not_is_remembered(
    desk: Desk,
) -> None:
    desk.edge.publish(rows(2), identity=identity(1))
    desk.edge.sync()
    desk.edge.publish(rows(3), identity=identity(2))
    new = restarted(desk.log)
    desk.log.sync()
    assert new.edge.publish(rows(2), identity=identity(1)).result(0).offset == 0
    assert [r.batch for r in ObjectLog(desk.log).recover()] == [0, 2], "both come again"
    assert new.edge.publish(rows(3), identity=identity(2)).result(0).offset == 2
    assert new.router.batches == []


def test_what_can_only_be_a_repeat_is_never_published(desk: Desk) -> None:
    """Here, and where another dispatcher asks."""
    repeat, none = identity(1)._replace(repeats=True), rows(1).take(np.zeros(0, np.int64))
    asked = [replace(forward(n), rows=np.frombuffer(none.encode(), np.uint8)) for n in (1, 2, 3)]
    unknown = desk.edge.publish(none, identity=repeat)
    assert isinstance(unknown.exception(0), UnknownPublication)
    desk.edge.on(replace(asked[0], repeats=1))
    first = desk.edge.publish(rows(2), identity=identity(1))
    early = desk.edge.publish(none, identity=repeat)
    desk.edge.on(replace(asked[1], repeats=1))
    desk.edge.sync()
    late = desk.edge.publish(none, identity=repeat)
    desk.edge.on(replace(asked[2], repeats=1))
    answers = [call.result(0) for call in (first, early, late)]
    assert answers == [AcceptedBatch(0, 0, 5)] * 3
    assert desk.router.batches == [2]
    statuses = [PublishStatus.UNKNOWN, PublishStatus.OK, PublishStatus.OK]
    assert [status for _, _, status, _ in replies(desk)] == statuses
    assert isinstance(restarted(desk.log).edge.publish(none, identity=repeat).result(0), tuple)


def test_another_dispatcher_may_say_that_it_is_no_repeat(desk: Desk) -> None:
    none = rows(1).take(np.zeros(0, np.int64))
    call = desk.edge.publish(none, identity=identity(1, FOREIGN)._replace(repeats=True))
    (sent,) = frames(desk, PublishForward)
    assert sent.repeats == 1
    nothing = np.frombuffer(b"it is none", np.uint8)
    desk.edge.on(PublishReply(sent.epoch, sent.number, PublishStatus.UNKNOWN, 0, 0, 0, 0, nothing))
    assert isinstance(call.exception(0), UnknownPublication)
    assert not desk.router.batches


def test_a_refusal_is_not_remembered(desk: Desk) -> None:
    desk.router.ready = False
    refused = desk.edge.publish(rows(2), identity=identity(1))
    assert isinstance(refused.exception(0), Unavailable)
    desk.router.ready = True
    call = desk.edge.publish(rows(2), identity=identity(1, digest=b"another content!"))
    desk.edge.sync()
    assert call.result(0).offset == 0


def test_a_failed_log_ends_all_and_nothing_of_it_is_told(desk: Desk) -> None:
    call = desk.edge.publish(rows(2), identity=identity(1))
    desk.edge.events.put(LogFailed(Unavailable("the disk is gone")))
    again = desk.edge.publish(rows(2), identity=identity(1))
    for future in (call, again):
        assert "the disk is gone" in str(future.exception(0))
    assert desk.router.routed == []


def test_a_full_intake_refuses_all_that_wait_for_the_same(desk: Desk) -> None:
    for _ in range(2 + 3):
        desk.edge.publish(rows(1), durable=False)
    refused = desk.edge.publish(rows(1), identity=identity(1))
    assert "max_in_flight" in str(refused.exception(0))
    late = [desk.edge.publish(rows(1), 1e-9, identity=identity(1)) for _ in range(2)]
    desk.edge.tick()
    assert [type(call.exception(0)) for call in late] == [ResourceExhausted] * 2


def test_who_gives_up_leaves_the_others_waiting(desk: Desk) -> None:
    for _ in range(2):
        desk.edge.publish(rows(1), durable=False)
    one, other = (desk.edge.publish(rows(3), identity=identity(1)) for _ in range(2))
    desk.edge.withdraw(one, 5.0)
    assert isinstance(one.exception(0), Unavailable)
    desk.edge.withdraw(other, 5.0)
    assert "not routed within 5 s" in str(other.exception(0))
    desk.complete_batch()
    desk.edge.sync()
    assert desk.router.batches == [1, 1]


def test_another_dispatcher_is_asked_once_and_answers(desk: Desk) -> None:
    calls = [desk.edge.publish(rows(2), 2.0, identity=identity(s, FOREIGN)) for s in (1, 2)]
    assert [s.to for s in desk.sent] == [Address("dispatcher", 1)] * 2
    asked = frames(desk, PublishForward)
    assert [(f.number, f.epoch, f.wait_ms, f.seq[0]) for f in asked] == [
        (1, 1, 2000, 1), (2, 1, 2000, 2),
    ]  # fmt: skip
    none = np.zeros(0, np.uint8)
    desk.edge.on(PublishReply(9, 1, PublishStatus.OK, 1, 70, 8, 0, none))
    assert not calls[0].done(), "it answers another incarnation"
    for _ in range(2):
        desk.edge.on(PublishReply(1, 1, PublishStatus.OK, 1, 70, 8, 0, none))
    assert calls[0].result(0) == AcceptedBatch(1, 70, 8)
    problem = np.frombuffer(b"full", np.uint8)
    desk.edge.on(PublishReply(1, 2, PublishStatus.FULL, 0, 0, 0, 30, problem))
    error: Any = calls[1].exception(0)
    assert (str(error), error.retry_after_ms) == ("full", 30)
    assert isinstance(error, ResourceExhausted)


@pytest.mark.parametrize("how", ["joined", "silent", "withdrawn"])
def test_what_was_asked_in_vain_is_unavailable(desk: Desk, how: str) -> None:
    call = desk.edge.publish(rows(2), identity=identity(1, FOREIGN))
    if how == "joined":
        desk.edge.joined(Address("dispatcher", 1))
    elif how == "withdrawn":
        desk.edge.withdraw(call, 1.0)
    else:
        for _ in range(FORWARD_TICKS - 1):
            desk.edge.tick()
        assert not call.done()
        desk.edge.tick()
    assert isinstance(call.exception(0), Unavailable)
    desk.edge.on(PublishReply(1, 1, PublishStatus.OK, 1, 70, 8, 0, np.zeros(0, np.uint8)))


def test_what_another_dispatcher_forwards_is_one_publication_with_what_clients_send(
    desk: Desk,
) -> None:
    own = desk.edge.publish(rows(2), identity=identity(1))
    desk.edge.on(forward(1))
    desk.edge.sync()
    desk.edge.on(forward(2))
    assert own.result(0).offset == 0
    assert replies(desk) == [(7, 1, PublishStatus.OK, 0), (7, 2, PublishStatus.OK, 0)]
    assert {s.to for s in desk.sent if isinstance(s, Send)} == {Address("dispatcher", 1)}
    assert desk.router.batches == [2]


def test_what_is_forwarded_is_searched_for_literals_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that another dispatcher has searched objects for says nothing here."""
    sent = rows(2)
    sent = sent.with_terms(sent.term_off, sent.term, searched=9)
    reserved = list[int]()
    reserve = desk.router.reserve

    def note_searched(given: ObjectRows) -> tuple[int, int]:
        reserved.append(given.searched)
        return reserve(given)

    monkeypatch.setattr(desk.router, "reserve", note_searched)
    desk.edge.on(replace(forward(1), rows=np.frombuffer(sent.encode(), np.uint8)))
    desk.edge.sync()
    assert reserved == [0]


def test_a_forward_is_refused_as_a_client_would_be(desk: Desk) -> None:
    for seq in range(2, 3 + PRODUCER_WINDOW):
        desk.edge.publish(rows(1), identity=identity(seq))
        desk.edge.sync()
        desk.complete_batch()
    desk.edge.on(forward(1))
    desk.edge.on(forward(2, seq=9, digest=b"another content!"))
    desk.router.ready = False
    desk.edge.on(forward(3, seq=PRODUCER_WINDOW + 9))
    assert [status for _, _, status, _ in replies(desk)] == [
        PublishStatus.TOO_OLD, PublishStatus.OTHER_CONTENT, PublishStatus.UNAVAILABLE,
    ]  # fmt: skip
    sender = Desk()
    sender.router.dispatchers = 2
    kinds = [FailedPrecondition, AlreadyExists, Unavailable]
    for number, (reply, kind) in enumerate(zip(frames(desk, PublishReply), kinds, strict=True), 1):
        call = sender.edge.publish(rows(1), identity=identity(1, FOREIGN))
        assert reply.number == number
        fields = {**reply.__dict__, "epoch": 1}
        sender.edge.on(PublishReply(**fields))
        assert isinstance(call.exception(0), kind)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_log_that_takes_nothing_more_is_synced_so_that_it_fails(
    desk: Desk, is_first: bool
) -> None:
    """Whether it fails as offsets are reserved, before the first publication, or later."""

    def refuse(record: bytes) -> int:
        raise Unavailable("the disk is gone")

    if not is_first:
        desk.edge.publish(rows(1), durable=False)
    desk.log.append = refuse  # type: ignore[method-assign]
    call = desk.edge.publish(rows(1), identity=identity(1))
    assert (str(call.exception(0)), desk.wakes) == ("the disk is gone", 1)
