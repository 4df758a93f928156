"""The driver of plan changes: what it commits and answers, and who becomes a peer."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import ROLES, Address, Role, Send
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.plan import (
    PlanAction,
    PlanChangeReply,
    PlanChangeRequest,
    TransferChunk,
    TransferDone,
    TransferRequest,
)
from ps2stream.protocol.messages.updates import AppliedReport
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.routing.plan_changes import step_of
from ps2stream.routing.plan_states import ChangeState, PlanStep
from ps2stream.sequencer import plan_changes
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.plan_changes import PlanChangeDriver
from ps2stream.sequencer.registry import QueryRegistry
from ps2stream.space.grid import Grid
from ps2stream.store.memory import MemoryStore
from tests.sim.hostile import ANALYSIS
from tests.support.updates import delete, insert, query_rows

PEERS = [Address("dispatcher", 0), Address("worker", 0), Address("worker", 1)]


def plan(owner: int, workers: int = 2, version: int = 1) -> RoutingPlan:
    cells = np.zeros(16, np.uint32)
    return RoutingPlan(
        workers,
        ANALYSIS,
        Grid(2, 2),
        (Space(owner),),
        cells,
        version=version,
        base_version=version - 1,
    )


NEXT = plan(1, workers=3, version=2)


class DriverLedger:
    """A driver, and a ledger that takes its records unless it is `full`."""

    def __init__(
        self,
        first: RoutingPlan | None,
        store: MemoryStore | None = None,
        restarts: bool = False,
    ) -> None:
        self.peers = list(PEERS)
        self.steps: list[PlanStep] = []
        self.owners: list[int] = []
        self.served: list[str | None] = []
        self.full: Unavailable | None = None
        followers = FollowerProgress(PEERS, 0)
        self.live = QueryRegistry()
        self.driver = PlanChangeDriver(
            first, self.peers, followers, self.live, self.write_record, store or MemoryStore()
        )
        self.driver.start(first if restarts else None)
        self.driver.run(3)

    @property
    def lsn(self) -> int:
        return len(self.steps)

    def write_record(self, record: U8, owner: int) -> list[Send]:
        if self.full is not None:
            raise self.full
        self.served.append(self.driver.find_serving_plan(record, self.lsn + 1))
        self.steps.append(step_of(record))
        self.owners.append(owner)
        self.driver.apply(record, self.lsn)
        return []

    def request(
        self, ask: PlanAction, body: RoutingPlan | None = None, role: Role = "dispatcher"
    ) -> PlanChangeReply:
        raw = b"" if body is None else json.dumps(body.to_dict()).encode()
        asked = PlanChangeRequest(ROLES.index(role), 0, 7, ask, np.frombuffer(raw, np.uint8))
        [sent] = self.driver.answer_request(asked, lambda: self.lsn)
        assert sent.to == Address(role, 0)
        assert isinstance(sent.frame, PlanChangeReply)
        return sent.frame

    def report(self, watermark: int) -> None:
        self.driver.note_report(AppliedReport(0, watermark, watermark))
        self.driver.take_due_step()

    def transfer(self, worker: int, after: int, begun: int, lsn: int, east: float) -> TransferChunk:
        box = np.array([-180.0, -90.0, east, 90.0])
        asked = TransferRequest(worker, begun, after, box, np.zeros(0, np.uint64))
        [sent] = self.driver.answer_transfer(asked, lsn)
        assert sent.to == Address("worker", worker)
        assert isinstance(sent.frame, TransferChunk)
        rows, last = self.live.load(after, begun, box, asked.term, plan_changes.TRANSFER_ROWS)
        assert (sent.frame.rows.tobytes(), sent.frame.last) == (rows.encode(), last)
        return sent.frame

    def hold(self) -> None:
        for worker in range(3):
            self.driver.note_holding_worker(TransferDone(worker, self.driver.strategy.begun))


def problem_of(reply: PlanChangeReply) -> str:
    return reply.problem.tobytes().decode()


def test_a_migration_from_the_request_to_the_end() -> None:
    ledger = DriverLedger(plan(0))
    assert not len(ledger.driver.make_record())
    assert not problem_of(ledger.request(PlanAction.MOVE, NEXT))
    assert ledger.peers == [*PEERS, Address("worker", 2)]
    assert len(ledger.driver.make_record())
    ledger.hold()
    assert ledger.steps == [PlanStep.BEGIN, PlanStep.SWITCH]
    assert "will be completed" in problem_of(ledger.request(PlanAction.MOVE))
    ledger.report(1)
    assert ledger.driver.strategy.state is ChangeState.RETIRING
    ledger.report(2)
    assert ledger.steps[2:] == [PlanStep.FINISH]
    served = [None if text is None else json.loads(text)["version"] for text in ledger.served]
    assert served == [None, 2, None]  # what a restart serves
    assert [move["outcome"] for move in ledger.driver.moves] == ["done"]
    state = json.loads(ledger.request(PlanAction.TELL).state.tobytes())
    assert (state["state"], state["plan_version"]) == ("NONE", 2)


def test_two_plans_that_coexist_are_united() -> None:
    ledger = DriverLedger(plan(0))
    ledger.request(PlanAction.COEXIST, NEXT, role="controller")
    ledger.hold()
    assert ledger.steps == [PlanStep.APART]
    assert ledger.served[0] is not None
    assert "unite the plans instead" in problem_of(ledger.request(PlanAction.MOVE))
    ledger.request(PlanAction.UNITE)
    ledger.hold()
    assert ledger.steps == [PlanStep.APART, PlanStep.UNITE, PlanStep.SWITCH]
    assert ledger.owners == [0, 0, 0]


def test_what_is_due_stays_due_while_the_ledger_is_full() -> None:
    ledger = DriverLedger(plan(0))
    ledger.full = Unavailable("the disk is full")
    refused = ledger.request(PlanAction.MOVE, NEXT)
    assert (problem_of(refused), refused.wait) == ("the disk is full", 1)
    ledger.full = None
    ledger.request(PlanAction.MOVE, NEXT)
    ledger.full = Unavailable("the disk is full")
    ledger.hold()
    assert ledger.driver.strategy.state is ChangeState.READY
    ledger.full = StoreFailed("nobody knows")
    with pytest.raises(StoreFailed):
        ledger.driver.tick(0)
    ledger.full = None
    ledger.driver.tick(0)
    assert ledger.steps == [PlanStep.BEGIN, PlanStep.SWITCH]


def test_a_service_that_starts_ends_the_plan_change_under_way() -> None:
    ledger = DriverLedger(plan(0))
    ledger.request(PlanAction.MOVE, NEXT)
    ledger.driver.start(plan(0))
    assert ledger.steps == [PlanStep.BEGIN, PlanStep.SET]
    assert ledger.driver.strategy.state is ChangeState.NONE
    ledger.driver.start(plan(0))
    assert len(ledger.steps) == 2
    ledger.driver.start(dataclasses.replace(plan(0), frequencies={"flood": 3}))
    assert ledger.steps[2:] == [PlanStep.SET]
    assert ledger.driver.strategy.plan.frequencies == {"flood": 3}


def test_a_service_without_a_plan_changes_none() -> None:
    ledger = DriverLedger(None)
    assert "does not support plan changes" in problem_of(ledger.request(PlanAction.MOVE, NEXT))
    assert (ledger.driver.moves, ledger.driver.counters, ledger.driver.run(5)) == ([], {}, 5)
    ledger.report(3)
    ledger.driver.tick(0)
    assert not ledger.steps
    with pytest.raises(TypeError, match="without a plan"):
        _ = ledger.driver.strategy


def test_workers_that_gain_the_same_share_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is that of a registry that is read anew (`transfer` compares), also after a
    delete and for another box, and it is the same one only while nothing has changed."""
    monkeypatch.setattr(plan_changes, "TRANSFER_ROWS", 8)
    ledger = DriverLedger(plan(0))
    ledger.live.apply(query_rows([insert(str(i)) for i in range(20)], 1))
    ledger.request(PlanAction.MOVE, NEXT)
    first = [ledger.transfer(worker, 0, 20, 21, 180.0) for worker in range(3)]
    assert first[1] is first[0]
    assert first[2] is first[0]
    assert ledger.transfer(1, first[0].last, 20, 21, 180.0) is not first[0]
    assert ledger.transfer(1, 0, 20, 21, -179.0) is not first[0]
    gone = query_rows([delete("3")], 22)
    ledger.live.apply(gone.replace(handle=np.array([4])))
    later = ledger.transfer(2, 0, 20, 22, 180.0)
    assert later is not first[0]
    assert ledger.transfer(0, 0, 20, 22, 180.0) is later
    for after in range(plan_changes.KEPT_CHUNKS + 1):  # the oldest go
        ledger.transfer(0, after + 1, 20, 22, 180.0)
    assert ledger.transfer(0, 0, 20, 22, 180.0) is not later
    kept = ledger.transfer(0, 0, 20, 22, 180.0)
    ledger.driver.tick(0)
    assert ledger.transfer(1, 0, 20, 22, 180.0) is kept
    ledger.request(PlanAction.MOVE)
    ledger.driver.tick(0)  # nothing is kept once the plan change is over
    assert ledger.transfer(1, 0, 20, 22, 180.0) is not kept


def test_a_plan_with_another_grid_waits_for_the_start() -> None:
    store = MemoryStore()
    cells = np.zeros(64, np.uint32)
    fine = RoutingPlan(2, ANALYSIS, Grid(3, 3), (Space(1),), cells, version=2, base_version=1)
    ledger = DriverLedger(plan(0), store)
    assert "--regrid" in problem_of(ledger.request(PlanAction.MOVE, fine))
    assert not problem_of(ledger.request(PlanAction.REGRID, fine))
    assert ledger.steps == []
    state = json.loads(ledger.request(PlanAction.TELL).state.tobytes())
    assert (state["pending_version"], state["plan_version"]) == (2, 1)
    again = DriverLedger(plan(0), store)  # a replacement of the sequencer
    assert again.steps == []
    started = DriverLedger(fine, store, restarts=True)
    assert started.steps == [PlanStep.SET]
    assert started.driver.strategy.plan.grid == Grid(3, 3)
    assert json.loads(started.served[0] or "")["grid"] == Grid(3, 3).to_dict()
    state = json.loads(started.request(PlanAction.TELL).state.tobytes())
    assert state["pending_version"] == 0


def test_an_abort_by_a_user_withdraws_the_plan_that_waits() -> None:
    store = MemoryStore()
    cells = np.zeros(64, np.uint32)
    fine = RoutingPlan(2, ANALYSIS, Grid(3, 3), (Space(1),), cells, version=2, base_version=1)
    ledger = DriverLedger(plan(0), store)
    ledger.request(PlanAction.REGRID, fine)
    ledger.request(PlanAction.MOVE, NEXT)
    ledger.request(PlanAction.MOVE)  # there is a migration to abort
    assert ledger.steps == [PlanStep.BEGIN, PlanStep.ABORT]
    ledger.request(PlanAction.MOVE, role="controller")
    assert store.pending_plan()
    assert not problem_of(ledger.request(PlanAction.MOVE))
    assert store.pending_plan() == ""
