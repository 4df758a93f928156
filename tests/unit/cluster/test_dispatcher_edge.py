"""The dispatcher's edge: whom it answers, and what it tells of itself."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

from ps2stream.dispatcher.machine import DispatcherMachine
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.language.query_rows import delete_rows
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import CONTROLLER, SEQUENCER, Address, Send
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.messages.loads import AdjustRequest, SampleReport, SampleRequest
from ps2stream.protocol.messages.plan import PlanChangeRequest
from ps2stream.protocol.messages.sessions import SessionRequest
from ps2stream.protocol.messages.updates import (
    LedgerTip,
    LookupRequest,
    UpdateDecision,
    UpdateRequest,
)
from ps2stream.protocol.tokens import TokensRequest
from ps2stream.store.memory import MemoryLog
from tests.support.desk import Desk, rows
from tests.support.edges import LoneEdge
from tests.support.routers import EAST, insert, machine, posts
from tests.support.routing import Row, query_rows

F = TypeVar("F", bound=Frame)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_past_its_lease_it_answers_nobody(desk: Desk) -> None:
    durable = desk.edge.publish(rows(2))
    desk.complete_batch()
    update = desk.edge.update(delete_rows(strings_to_column(["q"])), [""], [""])
    desk.lapsed = True
    desk.edge.sync()
    desk.show_decision(1)
    for future in (durable, update, desk.edge.publish(rows(1), durable=False)):
        assert "replaced" in str(future.exception(0))


class EdgeOfMachine:
    """An edge over a router machine, alone with a sequencer that the test plays."""

    def __init__(self) -> None:
        self.sent: list[Send] = []
        self.router = machine()
        log = MemoryLog()
        of_dispatcher = DispatcherMachine(
            self.router, ObjectLog(log), ObjectReservoir(100), StageMeter()
        )
        self.edge = LoneEdge(of_dispatcher, log, self.sent.extend)

    def last(self, kind: type[F]) -> tuple[Address, F]:
        """The last message of this kind, and to whom it went."""
        return [(s.to, s.frame) for s in self.sent if isinstance(s.frame, kind)][-1]


def test_an_update_is_answered_once_every_dispatcher_has_applied_it() -> None:
    of = EdgeOfMachine()
    future = of.edge.update(delete_rows(strings_to_column(["q"])), ["s"], ["r"])
    to, request = of.last(UpdateRequest)
    assert (to, request.name.tobytes(), request.request.tobytes()) == (SEQUENCER, b"s", b"r")
    of.edge.on(UpdateDecision(request.seq, np.zeros(1, np.uint8), np.array([1])))
    of.edge.on(insert(1))
    assert not future.done()
    of.edge.on(LedgerTip(1, 1))
    assert future.result(0).lsn.tolist() == [1]


def test_requests_go_to_the_sequencer_and_loads_are_the_controllers() -> None:
    of = EdgeOfMachine()
    of.edge.tokens(drop="x")
    of.edge.strategy()
    of.edge.lookup("q", 0, 0, 1)
    of.edge.session("s")
    future = of.edge.adjustment("dp")
    kinds = (TokensRequest, PlanChangeRequest, LookupRequest, SessionRequest)
    assert [of.last(kind)[0] for kind in kinds] == [SEQUENCER] * 4
    to, request = of.last(AdjustRequest)
    assert (to, request.algorithm.tobytes()) == (CONTROLLER, b"dp")
    assert request.seq == 5
    assert not future.done()


@pytest.mark.takes_turns
def test_nothing_is_estimated_before_the_first_object() -> None:
    of = EdgeOfMachine()
    query = query_rows([Row((7,), (0,), (EAST,), lsn=1, handle=1)])
    assert of.edge.price(query) is None
    of.edge.publish(posts(7, 7, 8, lon=20.0), durable=False).result(0)
    estimate = of.edge.price(query)
    assert estimate is not None
    assert (len(estimate.matched), estimate.sampled) == (2, 3)
    assert len(of.edge.sample().lon) == 3


def test_a_pair_is_explained_and_a_part_weighed_by_the_same_plan() -> None:
    of = EdgeOfMachine()
    query = query_rows([Row((7,), (0,), (EAST,), lsn=1, handle=1)])
    of.edge.on(insert(1, box=EAST))
    assert of.edge.meeting(query, posts(7, lon=20.0)).sent_to == (1,)
    weights = of.edge.weights()
    assert (weights.worker.tolist(), weights.weight.tolist()) == ([1], [1.0])


def test_status_has_what_others_have_noted_last() -> None:
    of = EdgeOfMachine()
    of.edge.note({"hosts": 1, "memory": 5})
    of.edge.note({"hosts": 2})
    of.edge.on(insert(1))
    status = of.edge.status()
    assert (status["hosts"], status["memory"]) == (2, 5)
    assert (status["dispatcher"], status["applied"], status["inserts"]) == (0, 1, 1)


def test_a_request_of_the_controller_is_answered_to_it() -> None:
    of = EdgeOfMachine()
    of.edge.on(SampleRequest(3, 9, np.array([1], np.uint32)))
    to, report = of.last(SampleReport)
    assert (to, report.epoch, report.number, report.dispatcher) == (CONTROLLER, 3, 9, 0)


def test_a_new_controller_is_asked_again_and_a_worker_is_not() -> None:
    of = EdgeOfMachine()
    of.edge.adjustment()
    before = len(of.sent)
    of.edge.joined(Address("worker", 2))
    assert len(of.sent) == before
    of.edge.joined(CONTROLLER)
    assert [(s.to, type(s.frame)) for s in of.sent[before:]] == [(CONTROLLER, AdjustRequest)]
