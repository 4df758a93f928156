"""Publications: gathered, logged, routed, synced and answered; what is refused."""

from __future__ import annotations

import pytest

from ps2stream.dispatcher.events import LogFailed, LogSynced, StopBegun
from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.dispatcher.intake import ROWS
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.publications import RESERVED
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.protocol.frame import decode
from ps2stream.protocol.log_records import ObjectRecord, ProgressRecord
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.ticks import REPEAT_TICKS
from tests.support.desk import Desk, rows

pytestmark = pytest.mark.usefixtures("two_leave_at_once")


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_joined_publications_keep_their_own_offsets(desk: Desk) -> None:
    futures = [desk.edge.publish(rows(n), durable=False) for n in (4, 2, 3, 1)]
    assert [f.done() for f in futures] == [True, True, False, False]
    desk.complete_batch()
    assert desk.router.batches == [4, 2, 4]
    assert [f.result() for f in futures] == [
        AcceptedBatch(0, 0, 5), AcceptedBatch(0, 4, 5), AcceptedBatch(0, 6, 5),
        AcceptedBatch(0, 9, 5),
    ]  # fmt: skip


def test_a_full_edge_refuses_with_nothing_accepted(desk: Desk) -> None:
    futures = [desk.edge.publish(rows(1), durable=False) for _ in range(2 + 3)]
    refused = desk.edge.publish(rows(1))
    assert isinstance(refused.exception(), ResourceExhausted)
    assert "max_in_flight" in str(refused.exception())
    desk.complete_batch()
    assert all(f.done() for f in futures)
    assert desk.router.batches == [1, 1, 3]


def test_whether_what_is_routed_waits_is_told_at_once_and_when_it_changes(desk: Desk) -> None:
    told: list[bool] = []
    desk.router.in_flight = desk.router.active = 3  # an earlier incarnation left them
    desk.edge.tick()
    desk.edge.tell_congestion(told.append)
    desk.edge.tick()
    assert told == [True]
    desk.complete_batch()
    assert told == [True, False]


def test_a_durable_publication_is_answered_after_the_sync(desk: Desk) -> None:
    durable, other = desk.edge.publish(rows(2)), desk.edge.publish(rows(1), durable=False)
    assert (durable.done(), other.done(), desk.wakes) == (False, True, 1)
    [_, (_, data)] = desk.log.scan()
    record = ObjectRecord.decode(data)
    assert (record.batch, record.lsn, len(ObjectRows.decode(record.rows.data))) == (0, 5, 2)
    desk.edge.sync()
    assert durable.result(0) == AcceptedBatch(0, 0, 5)


def test_what_is_logged_after_a_sync_has_begun_waits_for_the_next(desk: Desk) -> None:
    first = desk.edge.publish(rows(2))
    end = desk.log.sync()
    second = desk.edge.publish(rows(1))
    desk.edge.events.put(LogSynced(end))
    assert (first.done(), second.done()) == (True, False)
    desk.edge.sync()
    assert second.result(0) == AcceptedBatch(0, 2, 5)


def test_on_a_full_disk_durable_objects_are_refused_and_others_are_not(desk: Desk) -> None:
    def full(record: bytes) -> int:
        raise Unavailable("the disk is full")

    desk.edge.publish(rows(1), durable=False)
    desk.log.append = full  # type: ignore[method-assign]
    durable, other = desk.edge.publish(rows(2)), desk.edge.publish(rows(1), durable=False)
    assert isinstance(durable.exception(0), Unavailable)
    assert other.result(0).offset == 1
    assert desk.router.batches == [1, 1]


def test_without_room_to_reserve_offsets_nothing_is_accepted(desk: Desk) -> None:
    def full(record: bytes) -> int:
        raise Unavailable("the disk is full")

    desk.log.append = full  # type: ignore[method-assign]
    assert isinstance(desk.edge.publish(rows(1), durable=False).exception(0), Unavailable)
    assert desk.router.batches == []


def test_progress_is_noted_and_frees_the_log(desk: Desk) -> None:
    for _ in range(3):
        desk.edge.publish(rows(2))
        desk.complete_batch()
    desk.router.oldest = 4
    for _ in range(REPEAT_TICKS):
        desk.edge.tick()
    assert [r.batch for r in ObjectLog(desk.log).recover()] == [4]
    desk.router.oldest = 6
    for _ in range(REPEAT_TICKS):
        desk.edge.tick()
    assert len(list(desk.log.scan())) > 1  # the note is not yet durable
    desk.edge.sync()
    assert [type(decode(data)) for _, data in desk.log.scan()] == [ProgressRecord]


def test_progress_is_noted_at_a_stop(desk: Desk) -> None:
    desk.edge.publish(rows(2))
    desk.complete_batch()
    desk.router.oldest = 2
    assert [r.batch for r in ObjectLog(desk.log).recover()] == [0]
    desk.edge.events.put(StopBegun())
    assert ObjectLog(desk.log).recover() == []


def test_no_more_batches_are_under_way_than_may_be(desk: Desk) -> None:
    futures = [desk.edge.publish(rows(ROWS), durable=False) for _ in range(4)]
    assert [f.done() for f in futures] == [True, True, True, False]
    assert len(desk.router.batches) == desk.router.max_in_flight


def test_who_waits_for_room_gets_it_when_a_batch_leaves(desk: Desk) -> None:
    for _ in range(2 + 3):
        desk.edge.publish(rows(1))
    waiting = desk.edge.publish(rows(1), 1e6, durable=False)
    assert not waiting.done()
    desk.complete_batch()
    assert not waiting.done(), "it has room now, and waits for its turn"
    desk.complete_batch()
    desk.complete_batch()
    assert isinstance(waiting.result(0), AcceptedBatch)


def test_who_waits_for_room_too_long_is_refused(desk: Desk) -> None:
    for _ in range(2 + 3):
        desk.edge.publish(rows(1))
    waiting = desk.edge.publish(rows(1), 1e-9)
    desk.edge.tick()
    assert "max_in_flight" in str(waiting.exception(0))
    assert desk.router.batches == [1, 1]


def test_what_is_withdrawn_before_it_is_routed_is_never_accepted(desk: Desk) -> None:
    routed, _, waiting = (desk.edge.publish(rows(n)) for n in (1, 2, 3))
    for future in (routed, waiting):
        desk.edge.withdraw(future, 5.0)
    assert "publish: not routed within 5 s" in str(waiting.exception(0))
    desk.complete_batch()
    desk.edge.sync()
    assert (desk.router.batches, routed.result(0).offset) == ([1, 2], 0)


def test_a_log_that_fails_refuses_what_will_not_be_durable(desk: Desk) -> None:
    durable, other = desk.edge.publish(rows(2)), desk.edge.publish(rows(1), durable=False)
    desk.edge.events.put(LogFailed(Unavailable("the disk is gone")))
    assert "the disk is gone" in str(durable.exception(0))
    assert other.result(0).offset == 2


def test_it_is_told_when_few_batches_may_still_be_under_way() -> None:
    """At once to a new listener, and again when it changes."""
    desk = Desk()
    told: list[bool] = []
    desk.edge.tell_congestion(told.append)
    most = desk.router.max_in_flight
    desk.router.in_flight = desk.router.active = most - most // RESERVED
    desk.edge.tick()
    desk.edge.tell_congestion(told.append)
    desk.router.in_flight = desk.router.active = 0
    desk.edge.tick()
    assert told == [False, True, True, False, False]
