"""A worker that goes on from a snapshot when the service was started under another plan."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.follower import LedgerFollower
from ps2stream.protocol.messages.loads import LoadReport, LoadRequest
from ps2stream.protocol.messages.plan import TransferChunk, TransferDone, TransferRequest
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerFetch, WorkerUpdates
from ps2stream.protocol.rows import no_queries
from ps2stream.protocol.ticks import TRANSFER_TICKS
from ps2stream.routing.plan import RoutingPlan, Space, built_in_plan
from ps2stream.routing.plan_changes import PlanState, step_record
from ps2stream.routing.plan_follower import PlanFollower
from ps2stream.routing.plan_states import ChangeState, PlanStep
from ps2stream.routing.replicas import ReplicatedUnit
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid
from ps2stream.workers.machine import WorkerMachine
from ps2stream.workers.portion import OwnedUnits

GRID = Grid(4, 3)
FIRST = built_in_plan(Analysis(salt=7), GRID, 2)
OTHER = dataclasses.replace(FIRST, cells=FIRST.cells[::-1].copy(), version=2, base_version=1)


def worker() -> WorkerMachine:
    analyzer = Analyzer(FIRST.analysis)
    tagger = QueryTagger(FIRST.compile(analyzer), GRID)
    machine = WorkerMachine(0, 1, 1, tagger, FIRST.route, strategist=PlanFollower(FIRST, analyzer))
    machine.on(_applied(1, np.zeros(0, np.uint8)))
    return machine


def _applied(lsn: int, strategy: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> LedgerBatch:
    rows = np.frombuffer(no_queries().encode(), np.uint8)
    return LedgerBatch(lsn, lsn, -1, 0, 0, rows, strategy)


def test_units_are_owned_by_both_plans_while_they_coexist() -> None:
    analyzer = Analyzer(FIRST.analysis)
    tagger = QueryTagger(FIRST.compile(analyzer), GRID)
    updates = LedgerFollower[WorkerUpdates]("worker", 0)
    units = OwnedUnits(0, tagger, FIRST.route, PlanFollower(FIRST, analyzer), updates)
    before = units.is_migrating
    coexisting = PlanState(FIRST, OTHER, apart=1, state=ChangeState.COEXISTING)
    units.resume_plan(coexisting.record(), 1)
    during = units.is_migrating
    units.reset_plan()
    assert (before, during, units.is_migrating) == (False, True, False)


def fetches(machine: WorkerMachine, plan: RoutingPlan) -> list[int]:
    sends = machine.on(_applied(2, PlanState(plan).record()))
    return [send.frame.after for send in sends if isinstance(send.frame, LedgerFetch)]


def test_what_was_laid_out_by_another_plan_is_fetched_anew() -> None:
    machine = worker()
    assert 0 in fetches(machine, OTHER)
    assert machine.route == OTHER.route
    assert machine.applied == 0


def test_under_the_same_plan_it_stays() -> None:
    machine = worker()
    assert 0 not in fetches(machine, FIRST)
    assert machine.applied == 2


def test_a_report_of_loads_says_whether_there_are_two_plans() -> None:
    """Also where nothing moves yet."""
    machine, told = worker(), []
    records = (None, PlanState(FIRST).begin(OTHER, apart=True), step_record(PlanStep.UNITE))
    for number, record in enumerate(records, 1):
        if record is not None:
            machine.on(_applied(number, record))
        sends = machine.on(LoadRequest(1, number, 8))
        while not (reports := [s.frame for s in sends if isinstance(s.frame, LoadReport)]):
            sends = machine.tick()
        told += [(report.number, report.moving) for report in reports]
    assert told == [(1, 0), (2, 1), (3, 1)]


def test_only_a_worker_that_loses_units_looks_for_what_it_has_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a worker keeps, here a cell that is replicated, is not listed to be dropped."""
    cell = int(np.flatnonzero(FIRST.cells == FIRST.leaves.index(Space(0)))[0])
    replicated = dataclasses.replace(
        FIRST, version=2, base_version=1, replicas=(ReplicatedUnit(cell, None, (0, 1)),)
    )
    dropped = []
    for plan in (replicated, OTHER):
        machine, drops = worker(), list[object]()
        monkeypatch.setattr(type(machine._store), "drop", lambda _, keep, to=drops: to.append(keep))
        machine.on(_applied(2, PlanState(FIRST).begin(plan)))
        none = np.frombuffer(no_queries().encode(), np.uint8)
        machine.on(TransferChunk(2, 0, 2, none))
        for lsn, step in enumerate((PlanStep.SWITCH, PlanStep.FINISH), 3):
            machine.on(_applied(lsn, step_record(step)))
        dropped.append(len(drops))
    assert dropped == [0, 1]


def test_a_worker_that_holds_all_it_gains_reports_it_now_and_then() -> None:
    """What it gains, nothing here, is asked of the sequencer first."""
    machine = worker()
    machine.on(_applied(2, PlanState(FIRST).begin(OTHER)))
    found = [send.frame for _ in range(TRANSFER_TICKS) for send in machine.tick()]
    (request, *_) = [frame for frame in found if isinstance(frame, TransferRequest)]
    assert not any(isinstance(frame, TransferDone) for frame in found)
    none = np.frombuffer(no_queries().encode(), np.uint8)
    machine.on(TransferChunk(request.begun, request.after, request.begun, none))
    reports = [
        send.frame
        for _ in range(3 * TRANSFER_TICKS)
        for send in machine.tick()
        if isinstance(send.frame, TransferDone)
    ]
    assert [(report.worker, report.begun) for report in reports] == [(0, 2)] * 3
