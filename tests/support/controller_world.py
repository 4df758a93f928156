"""A controller machine with its workers and sequencer played by hand."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from ps2stream.controller.machine import ControllerMachine
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.language.analyzer import Analysis
from ps2stream.planner.adjust.decide import Rules
from ps2stream.protocol.addresses import ROLES, Address, Send
from ps2stream.protocol.messages.loads import (
    AdjustReply,
    AdjustRequest,
    HotUnitsRequest,
    LoadReport,
    LoadRequest,
    SampleRequest,
)
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply, PlanChangeRequest
from ps2stream.routing.costs import Costs
from ps2stream.routing.leaves import Space
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState
from ps2stream.space.grid import Grid

GRID = Grid(3, 2)
PERIOD = 30  # ticks, 3 s
COSTS = Costs(c1=1.0, c2=0.0, c3=0.0, c4=0.0)
Part = tuple[int, int, int, int]  # cell, worker, checks, bytes
ROWS: list[Part] = [(0, 0, 600_000, 50), (1, 0, 500_000, 40), (16, 1, 100_000, 10)]


def halves(workers: int = 2) -> RoutingPlan:
    """Cells 0..15 to worker 0, 16..31 to worker 1."""
    cells = np.repeat(np.arange(2, dtype=np.uint32), 16)
    leaves = (Space(0), Space(1))
    return RoutingPlan(workers, Analysis(salt=1), GRID, leaves, cells, {})


def swapped() -> RoutingPlan:
    """The halves, each at the other worker, as the next version."""
    return dataclasses.replace(halves(), leaves=(Space(1), Space(0)), version=2, base_version=1)


class ControllerWorld:
    """A controller, and everyone else by hand. `strategy` is the sequencer's."""

    def __init__(
        self,
        automatic: bool = False,
        plan: RoutingPlan | None = None,
        policy: ControllerPolicy | None = None,
    ) -> None:
        self.strategy = PlanState(plan or halves())
        policy = policy or ControllerPolicy(Rules(COSTS, sigma=1.3), PERIOD, automatic)
        self.machine = ControllerMachine(self.strategy.plan, policy, epoch=3)
        self.lsn = 5
        self.begun: list[RoutingPlan] = []
        self.asked = 0
        self.numbers: list[int] = []
        self.samples: list[tuple[int, SampleRequest]] = []
        self.watched: list[HotUnitsRequest] = []
        self.problem = ""
        self.live, self.old, self.age_ms = 100, 100, 0
        self.united = 0

    def report(self, worker: int, parts: list[Part], number: int, periods: int = 1) -> LoadReport:
        mine = [part for part in parts if part[1] == worker]
        checks, none = [m[2] for m in mine], np.zeros(len(mine), np.int64)
        return LoadReport(
            worker, number, periods, self.strategy.serving.route,
            int(self.strategy.following is not None), np.array([m[0] for m in mine], np.uint32),
            np.ones(len(mine), np.int64), np.array(checks, np.int64), none, none,
            np.full(len(mine), 3), np.array([m[3] for m in mine], np.int64),
        )  # fmt: skip

    def serve(self, sends: list[Send]) -> None:
        """The sequencer answers; requests for loads are noted."""
        for to, frame in sends:
            if isinstance(frame, LoadRequest):
                self.numbers.append(frame.number)
                continue
            if isinstance(frame, SampleRequest):  # nobody answers; see test_hot_cells.py
                self.samples.append((to.index, frame))
                continue
            if isinstance(frame, HotUnitsRequest):  # see test_hot_units.py
                self.watched.append(frame)
                continue
            assert to == Address("sequencer", 0)
            assert isinstance(frame, PlanChangeRequest)
            assert (ROLES[frame.role], frame.index) == ("controller", 0)
            self.asked += 1
            if frame.ask == PlanAction.UNITE and not self.problem:
                self.united += 1
                self.strategy = dataclasses.replace(self.strategy, begun=self.lsn)
            if frame.ask == PlanAction.MOVE and not self.problem:
                body = json.loads(frame.plan.tobytes())
                self.move(RoutingPlan.from_dict(body, self.strategy.plan.analysis))
            raw = np.frombuffer(self.problem.encode(), np.uint8)
            record = self.strategy.record()
            told = json.dumps({"apart_for": self.age_ms} if self.age_ms else {}).encode()
            counts = self.lsn, 0, self.live, self.old
            state = np.frombuffer(told, np.uint8)
            reply = PlanChangeReply(frame.seq, *counts, raw, record, state)
            self.serve(self.machine.on(reply))

    def move(self, plan: RoutingPlan) -> None:
        self.begun.append(plan)
        self.strategy = dataclasses.replace(self.strategy, following=plan, begun=self.lsn)

    def coexist(self, plan: RoutingPlan) -> None:
        self.strategy = dataclasses.replace(self.strategy, following=plan, apart=self.lsn)

    def finish(self) -> None:
        assert self.strategy.following is not None
        self.strategy = PlanState(self.strategy.following)

    def period(self, parts: list[Part] | None = None, periods: int = 1) -> None:
        """The ticks of a period, then the reports of it."""
        for _ in range(self.machine.policy.period_ticks):
            self.serve(self.machine.tick())
        if parts is not None:
            for worker in range(self.strategy.plan.workers):
                report = self.report(worker, parts, self.numbers[-1], periods)
                self.serve(self.machine.on(report))

    def told(self, algorithm: str = "") -> tuple[str, dict[str, Any], RoutingPlan | None]:
        [send] = self.machine.on(AdjustRequest(4, 77, np.frombuffer(algorithm.encode(), np.uint8)))
        assert send.to == Address("dispatcher", 4)
        reply = send.frame
        assert isinstance(reply, AdjustReply)
        assert reply.seq == 77
        plan = None
        if len(reply.plan):
            body = json.loads(reply.plan.tobytes())
            plan = RoutingPlan.from_dict(body, self.strategy.plan.analysis)
        return reply.problem.tobytes().decode(), json.loads(reply.told.tobytes()), plan

    def loads(self) -> list[float]:
        return [w["load_us"] for w in self.told()[1]["workers"]]
