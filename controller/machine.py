"""The controller: gathers the workers' loads, period after period, and says what to move.

Pure, and without authority (contract.md 4): what it knows it has been told in the last
periods, what it wants it asks of the sequencer, which refuses a plan that does not follow on
the current one. So a successor starts from nothing. No adjustment is made while plans change,
nor before a whole period has passed since (algorithms.md 7.22).
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from ps2stream.controller.hot_cells import HotCells
from ps2stream.controller.policy import Counters, Policy
from ps2stream.controller.told import adjustment_told, loads_told
from ps2stream.planner.adjust.adjustment import Adjustment
from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.adjust.apply import apply
from ps2stream.planner.adjust.decide import Rules, decide, divisible
from ps2stream.planner.adjust.units import Units, carried, smoothed, units_of
from ps2stream.protocol.addresses import ROLES, Address, Send, nothing
from ps2stream.protocol.frame import U8, Frame
from ps2stream.protocol.messages.loads import (
    AdjustReply,
    AdjustRequest,
    LoadReport,
    LoadRequest,
    SampleReport,
)
from ps2stream.protocol.messages.plan import Ask, StrategyReply, StrategyRequest
from ps2stream.protocol.messages.updates import Tip
from ps2stream.routing.costs import balance
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import Strategy, route_of

SEQUENCER = Address("sequencer", 0)
CONTROLLER = ROLES.index("controller")
REPEAT_TICKS = 20
PATIENCE_TICKS = 10  # with dispatchers that are asked about hot cells; at most half a period
PROPOSALS = 16
"""Adjustments that are remembered: one that is made takes what is known of its parts along."""


class ControllerMachine:
    """The only one, in its incarnation `epoch`; plan: the one of the service's start."""

    def __init__(self, plan: RoutingPlan, policy: Policy, epoch: int, dispatchers: int = 1) -> None:
        self.policy = policy
        self.counters = Counters(sigma=policy.rules.sigma)
        self.strategy = Strategy(plan)
        self._epoch = epoch
        self._ticks = 0
        self._number = 0  # of the last period that ended
        self._reports: dict[int, LoadReport] = {}
        self._whole = False  # all have reported
        self._units: Units | None = None
        self._settled = 0  # the first period of which all is under the present plan
        self._proposals: dict[tuple[int, int], Adjustment] = {}
        self._seq = epoch << 32
        self._asked: StrategyRequest | None = None
        self._asked_at = 0
        self._known = False
        patience = max(min(PATIENCE_TICKS, policy.period_ticks // 2), 1)
        self._hot = HotCells(epoch, dispatchers, patience)

    @property
    def settled(self) -> bool:
        """Whether an adjustment may begin."""
        quiet = self._known and self.strategy.following is None
        return quiet and self._units is not None and self._number >= self._settled

    @property
    def _moves(self) -> bool:
        return self.strategy.following is not None

    @property
    def _look_ticks(self) -> int:
        """A move ends soon; that plans coexist may last for days."""
        return REPEAT_TICKS if self.strategy.begun else self.policy.period_ticks

    @property
    def period_us(self) -> float:
        """Microseconds of a period."""
        return self.policy.period_ticks * 1e5

    def on(self, frame: Frame) -> list[Send]:
        """A message from a worker, the sequencer or a dispatcher."""
        match frame:
            case LoadReport():
                return self._gather(frame)
            case SampleReport():
                return self._adjust() if self._hot.take(frame) else []
            case StrategyReply():
                return self._learn(frame)
            case AdjustRequest():
                return self._answer(frame)
            case Tip():
                return []
        raise TypeError(f"the controller takes no {type(frame).__name__}")

    def joined(self, peer: Address) -> list[Send]:
        """A new sequencer has not heard what the old one was asked."""
        return [] if peer != SEQUENCER or self._asked is None else [Send(SEQUENCER, self._asked)]

    def tick(self) -> list[Send]:
        """Ten times a second."""
        self._ticks += 1
        out: list[Send] = []
        if self._asked is not None:
            if self._ticks >= self._asked_at + REPEAT_TICKS:
                self._asked_at = self._ticks
                out.append(Send(SEQUENCER, self._asked))
        elif not self._known or (self._moves and self._ticks % self._look_ticks == 0):
            out += self._ask()
        if self._hot.late(self._ticks):
            out += self._adjust()
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

    def _gather(self, report: LoadReport) -> list[Send]:
        strategy = self.strategy
        if report.number != self._number or report.worker >= strategy.workers:
            return []
        moves = strategy.following is not None
        if report.moving != moves or not (moves or report.route == route_of(strategy.plan)):
            return self._ask()
        self._reports[report.worker] = report
        reports = [r for worker, r in self._reports.items() if worker < strategy.workers]
        if self._whole or len(reports) < strategy.workers:
            return []
        self._whole = True
        if strategy.begun or not all(r.periods for r in reports):
            return []  # what moves would be counted where it was and where it will be
        self._units = smoothed(self._units, units_of(reports))
        self._count(self._units)
        if self.settled and len(hot := divisible(self._units, strategy.plan, self.policy.rules)):
            return self._hot.ask(hot, self._number, self._ticks, route_of(strategy.plan))
        return self._adjust()

    def _count(self, units: Units) -> None:
        workers, costs = self.strategy.workers, self.policy.rules.costs
        self.counters.periods += 1
        loads = units.loads(workers, costs)
        self.counters.loads_us = loads.tolist()
        self.counters.balance = balance(loads)
        self.counters.balance_definition1 = balance(units.definition1(workers, costs))

    # --- adjustments -------------------------------------------------------------------

    def _adjust(self) -> list[Send]:
        """Begin an adjustment by itself, if it may."""
        if not self.policy.automatic or not self.settled or self._asked is not None:
            return []
        assert self._units is not None
        loads = self._units.loads(self.strategy.plan.workers, self.policy.rules.costs)
        if loads.max(initial=0.0) < self.policy.idle * self.period_us:
            return []
        _, plan = self._propose(self._units, self.policy.rules)
        return [] if plan is None else self._ask(Ask.MOVE, _packed(plan.to_dict()))

    def _propose(self, units: Units, rules: Rules) -> tuple[Adjustment, RoutingPlan | None]:
        """An adjustment, and the plan that it makes if it moves anything."""
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

    def _answer(self, ask: AdjustRequest) -> list[Send]:
        algorithm = ask.algorithm.tobytes().decode()
        problem = self._why_not(algorithm) if algorithm else ""
        adjustment, made = None, None
        if algorithm and not problem:
            assert self._units is not None
            rules = dataclasses.replace(self.policy.rules, algorithm=algorithm)
            adjustment, made = self._propose(self._units, rules)
        told = loads_told(self.strategy, self._units, self.policy.rules, self.period_us)
        told |= {"periods": self.counters.periods, "automatic": self.policy.automatic}
        if adjustment is not None:
            told["adjustment"] = adjustment_told(adjustment, self.strategy.plan.grid)
        reply = AdjustReply(
            ask.seq,
            np.frombuffer(problem.encode(), np.uint8),
            _packed(told),
            nothing() if made is None else _packed(made.to_dict()),
        )
        return [Send(Address("dispatcher", ask.dispatcher), reply)]

    def _why_not(self, algorithm: str) -> str:
        """Why no adjustment may be made now; empty where it may."""
        if algorithm not in SELECTIONS:
            return f"algorithm {algorithm!r} is none of {', '.join(SELECTIONS)}"
        seconds = self.policy.period_ticks / 10
        if (follow := self.strategy.following) is not None:
            how = "is under way" if self.strategy.begun else "waits, while both plans coexist"
            return f"the move to plan version {follow.version} {how}"
        if self.settled:
            return ""
        return (
            f"no whole period of {seconds:g} s (load_period_s) has passed yet since the service, "
            "its controller or the present plan began"
        )

    # --- the strategy ------------------------------------------------------------------

    def _ask(self, ask: Ask = Ask.TELL, plan: U8 | None = None) -> list[Send]:
        """One question at a time."""
        if self._asked is not None:
            return []
        self._seq += 1
        data = nothing() if plan is None else plan
        self._asked = StrategyRequest(CONTROLLER, 0, self._seq, ask, data)
        self._asked_at = self._ticks
        return [Send(SEQUENCER, self._asked)]

    def _learn(self, reply: StrategyReply) -> list[Send]:
        if self._asked is None or reply.seq != self._seq:
            return []
        asked, self._asked = self._asked.ask, None
        done = not len(reply.problem)
        self.counters.adjustments += asked == Ask.MOVE and done
        self.counters.declined += asked == Ask.MOVE and not done
        self.counters.sunsets += asked == Ask.UNITE and done
        before, self.strategy = self.strategy, self.strategy.after(reply.strategy, reply.lsn)
        self._known = True
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
        if self._units is not None:  # some workers may have gone with a plan
            self._units = self._units.take(self._units.worker < self.strategy.workers)
        if asked == Ask.TELL and self.policy.sunset.due_by(self.strategy, reply):
            return self._ask(Ask.UNITE)
        return []


def _packed(data: dict[str, object]) -> U8:
    return np.frombuffer(json.dumps(data).encode(), np.uint8)
