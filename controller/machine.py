"""The controller: gathers the workers' loads, period after period, and proposes adjustments.

The machine is pure and has no authority (contract.md 4). Everything it knows was reported to it
in the last periods; what it wants it requests of the sequencer, which refuses a plan that is not
derived from the current one. So a successor starts from nothing. No adjustment is made while
plans change, nor before a whole period has passed since (algorithms.md 7.22).
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from ps2stream.controller.descriptions import (
    describe_adjustment,
    describe_loads,
    describe_replicas,
)
from ps2stream.controller.hot_cells import HotCells
from ps2stream.controller.hot_units import REPORT_TICKS, HotUnitWatch
from ps2stream.controller.policy import ControllerCounters, ControllerPolicy
from ps2stream.planner.adjust.adjustment import LoadAdjustment
from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.adjust.apply import apply
from ps2stream.planner.adjust.decide import Rules, decide, divisible
from ps2stream.planner.adjust.units import PartLoads, carried, smoothed, units_of
from ps2stream.protocol.addresses import ROLES, SEQUENCER, Address, Send, nothing
from ps2stream.protocol.frame import U8, Frame
from ps2stream.protocol.messages.loads import (
    AdjustReply,
    AdjustRequest,
    HotUnitsReport,
    LoadReport,
    LoadRequest,
    SampleReport,
)
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply, PlanChangeRequest
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.protocol.ticks import REPEAT_TICKS
from ps2stream.routing.costs import balance
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState, route_of

CONTROLLER = ROLES.index("controller")
PATIENCE_TICKS = 10  # to wait for samples of hot cells; at most half a period
PROPOSALS = 16
"""Adjustments that are remembered: when one comes into force, the loads of its parts are kept."""


class ControllerMachine:
    """The only controller, in its incarnation `epoch`; `plan` is that of the service's start."""

    def __init__(
        self, plan: RoutingPlan, policy: ControllerPolicy, epoch: int, dispatchers: int = 1
    ) -> None:
        self.policy = policy
        self.counters = ControllerCounters(sigma=policy.rules.sigma)
        self.strategy = PlanState(plan)
        self._epoch = epoch
        self._ticks = 0
        self._number = 0  # of the last period that ended
        self._reports: dict[int, LoadReport] = {}
        self._whole = False  # all workers have reported
        self._units: PartLoads | None = None
        self._settled = 0  # the first period that lies under the present plan as a whole
        self._proposals: dict[tuple[int, int], LoadAdjustment] = {}
        self._seq = epoch << 32
        self._request: PlanChangeRequest | None = None
        self._requested_at = 0
        self._knows_plans = False
        patience = max(min(PATIENCE_TICKS, policy.period_ticks // 2), 1)
        self._hot = HotCells(epoch, dispatchers, patience)
        self._watch = HotUnitWatch(epoch, dispatchers, policy.replication, policy.hot)
        self._is_hot_request = False  # the request under way

    @property
    def settled(self) -> bool:
        """True if an adjustment may begin."""
        quiet = self._knows_plans and self.strategy.following is None
        return quiet and self._units is not None and self._number >= self._settled

    @property
    def _is_changing_plan(self) -> bool:
        """True while a plan change is under way, or two plans coexist."""
        return self.strategy.following is not None

    @property
    def _look_ticks(self) -> int:
        """The ticks between two requests for the state of a plan change: a migration ends soon, but
        plans may coexist for days."""
        return REPEAT_TICKS if self.strategy.begun else self.policy.period_ticks

    @property
    def period_us(self) -> float:
        """The length of a period in microseconds."""
        return self.policy.period_ticks * 1e5

    def on(self, frame: Frame) -> list[Send]:
        """Handles a message of a worker, the sequencer or a dispatcher; returns the answers."""
        match frame:
            case LoadReport():
                return self._gather_load(frame)
            case SampleReport():
                return self._request_adjustment() if self._hot.take(frame) else []
            case HotUnitsReport():
                return self._take_hot_units(frame)
            case PlanChangeReply():
                return self._learn_plans(frame)
            case AdjustRequest():
                return self._answer_request(frame)
            case LedgerTip():
                return []
        raise TypeError(f"the controller does not accept {type(frame).__name__}")

    def joined(self, peer: Address) -> list[Send]:
        """Repeats the request that is under way for a new sequencer, which has not received it."""
        if peer != SEQUENCER or self._request is None:
            return []
        return [Send(SEQUENCER, self._request)]

    def tick(self) -> list[Send]:
        """Does periodic work, ten times a second."""
        self._ticks += 1
        out: list[Send] = []
        if self._request is not None:
            if self._ticks >= self._requested_at + REPEAT_TICKS:
                self._requested_at = self._ticks
                out.append(Send(SEQUENCER, self._request))
        elif not self._knows_plans or (
            self._is_changing_plan and self._ticks % self._look_ticks == 0
        ):
            out += self._ask_sequencer()
        if self._hot.late(self._ticks):
            out += self._request_adjustment()
        if self._watches_units and self._ticks % REPORT_TICKS == 0:
            out += self._watch.request()
        if self._ticks % self.policy.period_ticks == 0:
            self.counters.lost += self._number > 0 and not self._whole
            self._number += 1
            self._whole = False
            self._reports.clear()
            within = self.policy.period_ticks // 2
            request = LoadRequest(self._epoch, self._number, within)
            out += [Send(Address("worker", i), request) for i in range(self.strategy.workers)]
        return out

    # --- loads -----------------------------------------------------------------------

    def _gather_load(self, report: LoadReport) -> list[Send]:
        """Takes a worker's loads, and goes on to adjust once all workers have reported."""
        strategy = self.strategy
        if report.number != self._number or report.worker >= strategy.workers:
            return []
        moves = strategy.following is not None
        if report.moving != moves or not (moves or report.route == route_of(strategy.plan)):
            return self._ask_sequencer()
        self._reports[report.worker] = report
        reports = [r for worker, r in self._reports.items() if worker < strategy.workers]
        if self._whole or len(reports) < strategy.workers:
            return []
        self._whole = True
        if strategy.begun or not all(r.periods for r in reports):
            return []  # what migrates would be counted at its old and at its new owner
        self._units = smoothed(self._units, units_of(reports))
        self._count_period(self._units)
        if self.settled and len(hot := divisible(self._units, strategy.plan, self.policy.rules)):
            return self._hot.ask(hot, self._number, self._ticks, route_of(strategy.plan))
        return self._request_adjustment()

    def _count_period(self, units: PartLoads) -> None:
        """Counts the period, and sets the loads and balances of the counters."""
        workers, costs = self.strategy.workers, self.policy.rules.costs
        self.counters.periods += 1
        loads = units.loads(workers, costs)
        self.counters.loads_us = loads.tolist()
        self.counters.balance = balance(loads)
        self.counters.balance_definition1 = balance(units.definition1(workers, costs))

    # --- hot units -------------------------------------------------------------------

    @property
    def _watches_units(self) -> bool:
        """True if the units that the stream meets most are watched now: also only to know whether
        an adjustment would pay."""
        wanted = self.policy.hot or self.policy.automatic
        several = self.strategy.plan.workers > 1
        return wanted and self._knows_plans and not self._is_changing_plan and several

    def _take_hot_units(self, report: HotUnitsReport) -> list[Send]:
        """Takes a report, and changes the plan if all of them require it."""
        if not self._watches_units or self._request is not None or not self._watch.take(report):
            return []
        plan = self.strategy.plan
        made = self._watch.propose(plan, route_of(plan))
        self.counters.hot_balance = self._watch.balance
        if made is None:
            return self._ask_sequencer() if report.route != route_of(plan) else []
        self._is_hot_request = True
        return self._ask_sequencer(PlanAction.MOVE, _encode_json(made.to_dict()))

    # --- adjustments -------------------------------------------------------------------

    def _request_adjustment(self) -> list[Send]:
        """Requests an adjustment on the controller's own account, if it may and there is one."""
        if not self.policy.automatic or not self.settled or self._request is not None:
            return []
        if self._watch.held:
            return []
        assert self._units is not None
        loads = self._units.loads(self.strategy.plan.workers, self.policy.rules.costs)
        if loads.max(initial=0.0) < self.policy.idle * self.period_us:
            return []
        _, plan = self._propose_adjustment(self._units, self.policy.rules)
        return (
            []
            if plan is None
            else self._ask_sequencer(PlanAction.MOVE, _encode_json(plan.to_dict()))
        )

    def _propose_adjustment(
        self, units: PartLoads, rules: Rules
    ) -> tuple[LoadAdjustment, RoutingPlan | None]:
        """Returns an adjustment, and the plan that it makes if anything migrates."""
        plan = self.strategy.plan
        sample = self._hot.statistics(self._number, route_of(plan), plan.grid, plan.analysis)
        adjustment = decide(units, plan, rules, sample)
        if not adjustment.moves:
            return adjustment, None
        made = apply(plan, adjustment)
        self._proposals[made.version, route_of(made)] = adjustment
        while len(self._proposals) > PROPOSALS:
            del self._proposals[next(iter(self._proposals))]
        return adjustment, made

    def _answer_request(self, request: AdjustRequest) -> list[Send]:
        """Answers with the loads, and an adjustment if the request names an algorithm."""
        algorithm = request.algorithm.tobytes().decode()
        problem = self._explain_refusal(algorithm) if algorithm else ""
        adjustment, made = None, None
        if algorithm and not problem:
            assert self._units is not None
            rules = dataclasses.replace(self.policy.rules, algorithm=algorithm)
            adjustment, made = self._propose_adjustment(self._units, rules)
        shown = describe_loads(self.strategy, self._units, self.policy.rules, self.period_us)
        shown |= {"periods": self.counters.periods, "automatic": self.policy.automatic}
        shown["replicated"] = describe_replicas(self.strategy.plan, self._watch.shares)
        if self._watch.balance:
            shown["hot_balance"] = self._watch.balance
        if adjustment is not None:
            shown["adjustment"] = describe_adjustment(adjustment, self.strategy.plan.grid)
        reply = AdjustReply(
            request.seq,
            np.frombuffer(problem.encode(), np.uint8),
            _encode_json(shown),
            nothing() if made is None else _encode_json(made.to_dict()),
        )
        return [Send(Address("dispatcher", request.dispatcher), reply)]

    def _explain_refusal(self, algorithm: str) -> str:
        """Returns why no adjustment may be made now; empty if one may."""
        if algorithm not in SELECTIONS:
            return f"algorithm: expected one of {', '.join(SELECTIONS)}, got {algorithm!r}"
        seconds = self.policy.period_ticks / 10
        if (follow := self.strategy.following) is not None:
            how = "is under way" if self.strategy.begun else "waits while both plans coexist"
            return f"the plan change to version {follow.version} {how}"
        if self.settled:
            return ""
        return (
            f"no complete load period ({seconds:g} s, load_period_s) has passed yet since the "
            "service, its controller or the current plan began"
        )

    # --- plan changes ------------------------------------------------------------------

    def _ask_sequencer(
        self, ask: PlanAction = PlanAction.TELL, plan: U8 | None = None
    ) -> list[Send]:
        """Sends the sequencer a request, unless another one is under way."""
        if self._request is not None:
            return []
        self._seq += 1
        data = nothing() if plan is None else plan
        self._request = PlanChangeRequest(CONTROLLER, 0, self._seq, ask, data)
        self._requested_at = self._ticks
        return [Send(SEQUENCER, self._request)]

    def _learn_plans(self, reply: PlanChangeReply) -> list[Send]:
        """Takes the sequencer's answer: the plans in force, and whether the request was done."""
        if self._request is None or reply.seq != self._seq:
            return []
        asked, self._request = self._request.ask, None
        done = not len(reply.problem)
        is_hot, self._is_hot_request = self._is_hot_request, False
        self.counters.hot_changes += is_hot and done
        self.counters.adjustments += asked == PlanAction.MOVE and done and not is_hot
        self.counters.declined += asked == PlanAction.MOVE and not done
        self.counters.sunsets += asked == PlanAction.UNITE and done
        before, self.strategy = self.strategy, self.strategy.after(reply.strategy, reply.lsn)
        self._knows_plans = True
        now = self.strategy.plan
        if another := (now.version, route_of(now)) != (before.plan.version, route_of(before.plan)):
            made = self._proposals.get((now.version, route_of(now)))
            costs = self.policy.rules.costs
            if self._units is not None:
                self._units = None if made is None else carried(self._units, made.moves, costs)
            for move in () if made is None else made.moves:
                self.counters.splits += move.kind == "split"
                self.counters.merges += move.kind == "merge"
            self._proposals.clear()
        if another or (before.following is not None and self.strategy.following is None):
            self._settled = self._number + 2
            self._watch.forget()
        units = self.strategy.serving.replicas
        self.counters.replicated = len(units)
        self.counters.sharded = sum(unit.sharded for unit in units)
        if self._units is not None:  # some workers may have gone with a plan
            self._units = self._units.take(self._units.worker < self.strategy.workers)
        if asked == PlanAction.TELL and self.policy.sunset.due_by(self.strategy, reply):
            return self._ask_sequencer(PlanAction.UNITE)
        return []


def _encode_json(data: dict[str, object]) -> U8:
    """Returns JSON as a column of a message."""
    return np.frombuffer(json.dumps(data).encode(), np.uint8)
