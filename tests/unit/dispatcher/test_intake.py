"""Joining of publications, and what the edge does with them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher.edge import REPEAT_TICKS, DispatcherEdge
from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.intake import EAGER, ROWS, TEXT_BYTES, PublicationIntake
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.query_rows import delete_rows
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame, decode, strings_to_column
from ps2stream.protocol.log_records import ObjectRecord, ProgressRecord
from ps2stream.protocol.messages.objects import BatchesCompleted, BatchesPartial
from ps2stream.protocol.messages.sessions import (
    SessionGrant,
    StreamAttached,
    StreamCredit,
    StreamDetach,
)
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateRequest
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.space.grid import Grid
from ps2stream.store.memory import MemoryLog
from ps2stream.workers.gi2 import GI2


def rows(n: int, text: str = "flood") -> ObjectRows:
    ids = strings_to_column([str(i) for i in range(n)])
    texts = strings_to_column([text] * n)
    terms = np.arange(n + 1), np.full(n, 7, np.uint64)
    return ObjectRows(*ids, np.zeros(n, np.int64), np.zeros(n), np.zeros(n), *texts, *terms)


def sizes(intake: PublicationIntake, in_flight: int) -> list[int]:
    return [len(waiting.rows) for waiting in intake.take(in_flight)]


def test_a_batch_alone_leaves_at_once_and_one_among_others_waits() -> None:
    intake = PublicationIntake()
    intake.add(rows(3))
    assert sizes(intake, EAGER) == []
    assert sizes(intake, EAGER - 1) == [3]
    assert len(intake) == 0


def test_those_that_waited_leave_together_up_to_the_bounds() -> None:
    intake = PublicationIntake()
    for n in (ROWS // 2, ROWS // 2, 1):
        intake.add(rows(n))
    assert sizes(intake, 100) == [ROWS // 2, ROWS // 2]
    assert sizes(intake, 100) == []
    intake.add(rows(2, "x" * (TEXT_BYTES // 2)))
    assert sizes(intake, 100) == [1, 2]


def test_enough_rows_or_text_leave_among_others_and_what_has_left_counts_no_more() -> None:
    intake = PublicationIntake()
    intake.add(rows(ROWS))
    assert sizes(intake, 100) == [ROWS]
    for _ in range(2):
        intake.add(rows(1, "x" * TEXT_BYTES))
    assert sizes(intake, 100) == [1]
    assert sizes(intake, 100) == [1]
    intake.add(rows(3))
    assert sizes(intake, 100) == []


def test_what_was_cancelled_does_not_leave() -> None:
    intake = PublicationIntake()
    intake.add(rows(1)).cancel()
    kept = intake.add(rows(2))
    assert sizes(intake, 0) == [2]
    assert not kept.cancel()


class Router:
    """Records; a batch is under way until `BatchesCompleted`."""

    index = 0
    mergers = 1
    max_in_flight = 3
    applied = 5
    ready = True
    plan_version = 1
    route = 0
    stall_report = ""
    gridt = Gridt(H1(1, np.zeros(1, np.uint32), [HashedLeaf((0,))]), Grid(0, 0))

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.in_flight = self.active = 0
        self.asked = 0
        self.undecided = 0
        self.oldest = 0

    @property
    def offset(self) -> int:
        return sum(self.batches)

    def publish(self, rows: ObjectRows) -> tuple[int, int, list[Any]]:
        offset = self.offset
        self.batches.append(len(rows))
        self.in_flight += 1
        self.active += 1
        return offset, self.applied, []

    def owned_by(self, handle: int) -> int:
        return 1

    def is_open(self, batch: int) -> bool:
        return batch < self.offset and self.in_flight > 0

    def update(self, request: UpdateRequest) -> list[Any]:
        self.asked += 1
        self.undecided += 1
        return [Send(Address("sequencer", 0), request)]

    def on(self, frame: Frame) -> list[Any]:
        self.in_flight -= isinstance(frame, BatchesCompleted)
        self.active -= isinstance(frame, BatchesCompleted | BatchesPartial)
        self.undecided -= isinstance(frame, UpdateDecision)
        return []

    def joined(self, peer: Address) -> list[Any]:
        return []

    def tick(self) -> list[Any]:
        return []


class Desk:
    def __init__(self) -> None:
        self.router = Router()
        self.sent: list[Send] = []
        self.posts = 0
        self.wakes = 0
        self.lapsed = False
        self.log = MemoryLog()
        analyzer = Analyzer(Analysis(salt=1))
        self.edge = DispatcherEdge(
            self.router,
            analyzer,
            Frequencies.of({}, analyzer),
            self.post,
            lambda: 1,
            ObjectLog(self.log),
            GI2,
            wake=self.wake,
            lapsed=lambda: self.lapsed,
        )

    def wake(self) -> None:
        self.wakes += 1

    def post(self, sends: list[Send]) -> None:
        self.posts += bool(sends)
        self.sent += sends

    def credits(self) -> list[StreamCredit]:
        return [s.frame for s in self.sent if isinstance(s.frame, StreamCredit)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_joined_publications_keep_their_own_offsets(desk: Desk) -> None:
    futures = [desk.edge.publish(rows(n), durable=False) for n in (4, 2, 3, 1)]
    assert [f.done() for f in futures] == [True, True, False, False]
    desk.edge.on(BatchesCompleted(0, np.zeros(1, np.int64)))
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
    desk.edge.on(BatchesCompleted(0, np.zeros(1, np.int64)))
    assert all(f.done() for f in futures)
    assert desk.router.batches == [1, 1, 3]


def test_whether_what_is_routed_waits_is_told_at_once_and_when_it_changes(desk: Desk) -> None:
    told: list[bool] = []
    desk.router.in_flight = desk.router.active = 3  # an earlier incarnation left them
    desk.edge.tick()
    desk.edge.tell_congestion(told.append)
    desk.edge.tick()
    assert told == [True]
    desk.edge.on(BatchesCompleted(0, np.zeros(1, np.int64)))
    assert told == [True, False]


def test_updates_leave_together_while_the_sequencer_is_busy(desk: Desk) -> None:
    one = delete_rows(strings_to_column(["q"]))
    futures: list[Future[UpdateDecision]] = [desk.edge.update(one, [""], [""]) for _ in range(3)]
    assert (desk.router.asked, desk.posts) == (1, 1)
    desk.edge.on(UpdateDecision(1, np.zeros(1, np.uint8), np.ones(1, np.int64)))
    assert (desk.router.asked, desk.posts) == (3, 2)
    assert not any(f.done() for f in futures)  # the router answers, once they are visible


def attached(desk: Desk, batches: int, size: int) -> Any:
    future = desk.edge.attach("s", 0, batches, size, lambda _: None)
    desk.edge._handle_reply(SessionGrant(1, 9, 4))
    desk.edge._handle_reply(StreamAttached(9, 4, 0, 0, 0, 0))
    return future.result(0)


def test_credits_gather_to_a_quarter_of_the_window(desk: Desk) -> None:
    stream = attached(desk, 8, 1 << 20)
    stream.credit(1, 10, 3)
    assert desk.credits() == []
    stream.credit(1, 10, 2)
    assert [(c.batches, c.bytes, c.ack) for c in desk.credits()] == [(2, 20, 3)]
    stream.credit(1, 1 << 18, 4)
    assert [(c.batches, c.bytes, c.ack) for c in desk.credits()][1:] == [(3, 20 + (1 << 18), 4)]


def test_a_window_of_one_is_credited_at_once(desk: Desk) -> None:
    attached(desk, 1, 1 << 20).credit(1, 10, 1)
    assert len(desk.credits()) == 1


def test_a_tick_and_the_end_tell_what_was_gathered_once(desk: Desk) -> None:
    stream = attached(desk, 100, 1 << 20)
    stream.credit(1, 10, 1)
    desk.edge.tick()
    desk.edge.tick()
    stream.credit(0, 0, 7)
    stream.close()
    assert [(c.batches, c.bytes, c.ack) for c in desk.credits()] == [(1, 10, 1), (1, 10, 7)]
    assert isinstance(desk.sent[-1].frame, StreamDetach)


def test_a_durable_publication_is_answered_after_the_sync(desk: Desk) -> None:
    durable, other = desk.edge.publish(rows(2)), desk.edge.publish(rows(1), durable=False)
    assert (durable.done(), other.done(), desk.wakes) == (False, True, 1)
    [_, (_, data)] = desk.log.scan()
    record = ObjectRecord.decode(data)
    assert (record.batch, record.lsn, len(ObjectRows.decode(record.rows.data))) == (0, 5, 2)
    desk.edge.sync()
    assert durable.result(0) == AcceptedBatch(0, 0, 5)


def test_on_a_full_disk_durable_objects_are_refused_and_others_are_not(desk: Desk) -> None:
    def full(record: bytes) -> int:
        raise Unavailable("the disk is full")

    desk.edge.publish(rows(1), durable=False)
    desk.log.append = full  # type: ignore[method-assign]
    durable, other = desk.edge.publish(rows(2)), desk.edge.publish(rows(1), durable=False)
    assert isinstance(durable.exception(0), Unavailable)
    assert other.result(0).offset == 1
    assert desk.router.batches == [1, 1]


def test_past_its_lease_it_answers_nobody(desk: Desk) -> None:
    durable = desk.edge.publish(rows(2))
    update = desk.edge.update(delete_rows(strings_to_column(["q"])), [""], [""])
    desk.lapsed = True
    desk.edge.sync()
    desk.edge._handle_reply(UpdateDecision(1, np.zeros(1, np.uint8), np.ones(1, np.int64)))
    for future in (durable, update, desk.edge.publish(rows(1), durable=False)):
        assert "replaced" in str(future.exception(0))


def test_no_offset_is_used_twice_though_nothing_was_logged(desk: Desk) -> None:
    used = desk.edge.publish(rows(3), durable=False).result(0).offset + 3
    for _ in range(3):
        log = ObjectLog(desk.log)  # as after a crash
        assert log.offset >= used
        log.reserve(log.offset + 7)
        used = log.offset + 7


def test_without_room_to_reserve_offsets_nothing_is_accepted(desk: Desk) -> None:
    def full(record: bytes) -> int:
        raise Unavailable("the disk is full")

    desk.log.append = full  # type: ignore[method-assign]
    assert isinstance(desk.edge.publish(rows(1), durable=False).exception(0), Unavailable)
    assert desk.router.batches == []


def test_progress_is_noted_and_frees_the_log(desk: Desk) -> None:
    for _ in range(3):
        desk.edge.publish(rows(2))
        desk.edge.on(BatchesCompleted(0, np.zeros(1, np.int64)))
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
