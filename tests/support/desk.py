"""A dispatcher's edge over a router that only records, for the tests of what the edge does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.hot_units import HotUnitCounter
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.machine import DispatcherMachine
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.dispatcher.retro_queue import RetroQueue
from ps2stream.dispatcher.shedding import LoadShedding
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import CONTROLLER, Address, Reply, Send
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.log_records import RetroRecord
from ps2stream.protocol.messages.objects import MatchBatch
from ps2stream.protocol.messages.sessions import (
    SessionGrant,
    SessionRequest,
    StreamAttached,
    StreamCredit,
    StreamDelivery,
)
from ps2stream.protocol.messages.updates import (
    LedgerTip,
    LookupReply,
    UpdateDecision,
    UpdateRequest,
)
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import NEVER, ObjectRows
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.space.grid import Grid
from ps2stream.store.memory import MemoryLog
from tests.support.edges import LoneEdge
from tests.support.routers import answer


def rows(n: int, text: str = "flood") -> ObjectRows:
    ids = strings_to_column([str(i) for i in range(n)])
    texts = strings_to_column([text] * n)
    terms = np.arange(n + 1), np.full(n, 7, np.uint64)
    return ObjectRows(*ids, np.zeros(n, np.int64), np.zeros(n), np.zeros(n), *texts, *terms)


class Router:
    """Records; the first batch under way is complete at a worker's answer. As the machine does, it
    passes on what is for the edge, but for decisions."""

    index = 0
    producers = ProducerMap.first(1)
    epoch = 1
    sessions = SessionMaps(SessionMap.first(1))
    max_in_flight = 3
    applied = 5
    ready = True
    plan_version = 1
    term_counts = None
    route = 0
    stall_report = ""
    answers_due = math.inf
    visible: Frame  # what a tip of the ledger lets out
    gridt = Gridt(H1(1, np.zeros(1, np.uint32), [HashedLeaf((0,))]), Grid(0, 0))
    literals = LiteralTable()
    hot_units = HotUnitCounter()
    shedding = LoadShedding(None, 1)

    @property
    def dispatchers(self) -> int:
        return self.producers.dispatchers

    @dispatchers.setter
    def dispatchers(self, dispatchers: int) -> None:
        self.producers = ProducerMap.first(dispatchers)

    @property
    def counted(self) -> int:
        return self.producers.counted

    @property
    def is_current(self) -> bool:
        return self.ready

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.routed: list[int] = []  # reserved batches, by offset
        self.open: list[int] = []  # offsets
        self.closed: list[int] = []
        self.in_flight = self.active = 0
        self.asked = 0
        self.undecided = 0
        self.oldest = 0
        self.retro = RetroQueue()
        self.reserved_from = NEVER

    def reserve_found(self, batch: int, size: int, lsn: int) -> None:
        self.batches.append(size)

    def release_found(self, record: RetroRecord, rows: ObjectRows) -> list[Send]:
        return []

    @property
    def offset(self) -> int:
        return sum(self.batches)

    def publish(self, rows: ObjectRows, may_shed: Any = None) -> tuple[int, int, list[Any]]:
        offset = self.offset
        self.batches.append(len(rows))
        self.open.append(offset)
        self.in_flight += 1
        self.active += 1
        return offset, self.applied, []

    def reserve(self, rows: ObjectRows) -> tuple[int, int]:
        return self.publish(rows)[:2]

    def route_reserved(self, batch: int) -> list[Any]:
        self.routed.append(batch)
        return []

    def announce_shedding(self, now_ms: int) -> list[Send]:
        raise AssertionError("nothing is shed")

    def list_lost_terms(self, find_texts: Any) -> dict[str, int]:
        return {}

    def owned_by(self, handle: int) -> int:
        return 1

    def update(self, request: UpdateRequest) -> list[Any]:
        self.asked += 1
        self.undecided += 1
        return [Send(Address("sequencer", 0), request)]

    def on(self, frame: Frame) -> list[Any]:
        self.undecided -= isinstance(frame, UpdateDecision)
        if isinstance(frame, LedgerTip):
            return [Reply(self.visible)]
        passed = SessionGrant | LookupReply | StreamAttached | StreamDelivery
        return [Reply(frame)] if isinstance(frame, passed) else []

    def take_answer(self, frame: MatchBatch, now: float) -> list[Any]:
        self.in_flight -= 1
        self.active -= 1
        self.closed += self.open[:1]
        self.open = self.open[1:]
        return []

    def report_hot_units(self, request: Any, texts: Any) -> Send:
        return Send(CONTROLLER, request)

    def release_late(self, now: float) -> list[Any]:
        return []

    def take_closed(self) -> list[int]:
        closed, self.closed = self.closed, []
        return closed

    def joined(self, peer: Address) -> list[Any]:
        return []

    def lost(self, peer: Address) -> list[Any]:
        return []

    def tick(self) -> list[Any]:
        return []


class Desk:
    """An edge, its log, and what it has sent."""

    def __init__(self) -> None:
        self.router = Router()
        self.sent: list[Send] = []
        self.posts = 0
        self.wakes = 0
        self.lapsed = False
        self.log = MemoryLog()
        machine = DispatcherMachine(
            self.router, ObjectLog(self.log), ObjectReservoir(0), StageMeter()
        )
        self.edge = LoneEdge(machine, self.log, self.post, self.wake, lambda: self.lapsed)

    def wake(self) -> None:
        self.wakes += 1

    def post(self, sends: list[Send]) -> None:
        self.posts += bool(sends)
        self.sent += sends

    def complete_batch(self) -> None:
        """The first batch under way is complete."""
        self.edge.on(answer(0, 0))

    def show_decision(self, seq: int) -> None:
        """The decision on an update has come and is visible now."""
        self.router.visible = UpdateDecision(seq, np.zeros(1, np.uint8), np.ones(1, np.int64))
        self.edge.on(LedgerTip(1, 1))

    def credits(self) -> list[StreamCredit]:
        return [s.frame for s in self.sent if isinstance(s.frame, StreamCredit)]


SESSION = 9


def grant(desk: Desk, epoch: int) -> None:
    """The answer to the last request for a session."""
    request = frames(desk, SessionRequest)[-1]
    desk.edge.on(SessionGrant(request.seq, SESSION, epoch))


def attached(
    desk: Desk, sink: list[bytes | Exception], epoch: int = 4, batches: int = 8, size: int = 1 << 20
) -> Any:
    future = desk.edge.attach("s", 0, batches, size, sink.append)
    grant(desk, epoch)
    assert not future.done()
    desk.edge.on(StreamAttached(SESSION, epoch, 0, 0, 0, 0))
    return future.result(0)


def deliver(desk: Desk, epoch: int, data: bytes, closed: int = 0, number: int = 1) -> None:
    desk.edge.on(StreamDelivery(SESSION, epoch, number, closed, np.frombuffer(data, np.uint8)))


def frames(desk: Desk, kind: type[Any]) -> list[Any]:
    return [s.frame for s in desk.sent if isinstance(s.frame, kind)]
