"""The plan change under way, as the sequencer drives it (contract.md 3).

The table of routing/plan_changes.py has the states (docs/decisions/0009 shows it). Users request
BEGIN, APART, UNITE and ABORT; the sequencer writes the other records as soon as they are due, which
it learns from what actors report:

    TRANSFERRING, UNITING   workers that gain units fetch queries from the sequencer; once all have
                            reported that they hold them, SWITCH is due
    RETIRING                the dispatchers' watermarks pass SWITCH; then FINISH is due
    CHECKING                workers and dispatchers count postings; then CHECKED is due

Everything that must last is in the ledger; the rest is reported again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ps2stream.errors import PlanError, Unavailable
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.plan import PostingCounts
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import (
    PlanState,
    figures_of,
    find_base_problem,
    is_equal_plan,
    route_of,
    step_of,
    step_record,
)
from ps2stream.routing.plan_states import ChangeState, PlanSignal, PlanStep
from ps2stream.sequencer.holdings import MigrationCheck
from ps2stream.sequencer.totals import CounterTotals
from ps2stream.space.grid import cells_of

MEASURED = ("objects", "delayed", "stalled", "collapsed")
MOVES = 256  # plan changes that have ended and are reported
ASKED_TICKS = 300
"""Ticks after which the workers that a plan needs are no longer wanted."""
DUE: Mapping[ChangeState, PlanStep] = MappingProxyType(
    {
        ChangeState.READY: PlanStep.SWITCH,
        ChangeState.READY_TO_UNITE: PlanStep.SWITCH,
        ChangeState.RETIRED: PlanStep.FINISH,
        ChangeState.COUNTED: PlanStep.CHECKED,
    }
)
"""The records that the sequencer writes by itself, by the states that call for them."""
REPORTED: Mapping[ChangeState, str] = MappingProxyType(
    {
        ChangeState.NONE: "NONE",
        ChangeState.TRANSFERRING: "TRANSFERRING",
        ChangeState.READY: "READY",
        ChangeState.COEXISTING: "COEXISTING",
        ChangeState.UNITING: "TRANSFERRING",
        ChangeState.READY_TO_UNITE: "READY",
        ChangeState.RETIRING: "RETIRING",
        ChangeState.RETIRED: "RETIRING",
        ChangeState.CHECKING: "NONE",
        ChangeState.COUNTED: "NONE",
    }
)
"""The names of the states in the JSON of a PlanChangeReply, which are those of MigrationState."""


class PlanMigration:
    """Follows the plan change in `strategy`, and makes the records that are due, in a service with
    this number of dispatchers. It knows no ledger and sends nothing."""

    def __init__(self, plan: RoutingPlan, dispatchers: int = 1) -> None:
        self.strategy = PlanState(plan)
        self.dispatchers = dispatchers
        self.changed = False  # whether the ledger has a record of a plan change
        self.moves: list[dict[str, int | str]] = []  # the plan changes that have ended
        self.totals = CounterTotals(MEASURED)  # of the dispatchers' counters
        self.now_ms = 0
        self._record: U8 | None = None
        self._running = 0
        self._wanted_workers = (0, 0)  # workers that a plan needs, and for how many ticks
        self._figures: dict[str, int] = {}  # of the plan change under way
        self._hot: dict[int, tuple[int, int]] = {}  # worker: queries and bytes that it fetched
        self._marks: dict[int, int] = {}  # dispatcher: watermark
        self._holdings = MigrationCheck()
        self._awaited: Mapping[ChangeState, tuple[PlanSignal, Callable[[], bool]]] = {
            ChangeState.TRANSFERRING: (PlanSignal.ALL_HOLD, self._all_hold_queries),
            ChangeState.UNITING: (PlanSignal.ALL_HOLD, self._all_hold_queries),
            ChangeState.RETIRING: (PlanSignal.ALL_PASSED, self._all_passed_switch),
            ChangeState.CHECKING: (PlanSignal.ALL_COUNTED, self._all_counted_postings),
        }

    @property
    def state(self) -> str:
        """The state of the plan change, as replies name it."""
        return REPORTED[self.strategy.state]

    @property
    def running(self) -> int:
        """The number of workers that run, or are being replaced."""
        return max(self._running, self.strategy.workers)

    @property
    def wanted(self) -> int:
        """The number of workers that should run."""
        return max(self._wanted_workers[0], self.strategy.workers)

    def run(self, workers: int) -> None:
        """Takes the number of workers that run now."""
        self._running = workers

    def tick(self, now_ms: int) -> None:
        """Does periodic work, ten times a second; now_ms is Unix time, 0 if unknown."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.strategy.apart and self.now_ms:  # if the record has no time: at least since now
            self._figures.setdefault("apart_ms", self.now_ms)
        workers, left = self._wanted_workers
        self._wanted_workers = (workers, left - 1) if left > 1 else (0, 0)
        self._holdings.tick()
        self._note_signal()

    def describe(self) -> dict[str, Any]:
        """Describes the present plan change and those that have ended, for JSON."""
        strategy = self.strategy
        return {
            "state": self.state,
            "plan_version": strategy.plan.version,
            "following_version": 0 if strategy.following is None else strategy.following.version,
            "begun": strategy.begun,
            "switched": strategy.switched,
            "apart": strategy.apart,
            **self._time_apart(),
            "workers": strategy.plan.workers,
            "moves": self.moves[-MOVES:],
        }

    def _time_apart(self) -> dict[str, int]:
        """Returns when two plans began to coexist, and how long ago that is, in ms; an empty dict
        if that is not known."""
        at = self._figures.get("apart_ms") if self.strategy.apart else None
        return {} if at is None else {"apart_ms": at, "apart_for": max(self.now_ms - at, 0)}

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the start, and the present state."""
        outcomes = Counter(str(move["outcome"]) for move in self.moves)
        return {
            "workers": self.strategy.workers,
            "moving": int(self.state not in ("NONE", "COEXISTING")),
            "coexisting": int(self.state == "COEXISTING"),
            "moves": {outcome: outcomes[outcome] for outcome in ("done", "aborted")},
        }

    def record(self) -> U8:
        """Returns the record of the plans as they are."""
        if self._record is None:
            self._record = self.strategy.record()
        return self._record

    def apply(self, record: U8, lsn: int) -> None:
        """Applies a record that is in the ledger at `lsn`."""
        before, step = self.strategy, step_of(record)
        self.strategy = before.after(record, lsn)
        self.changed = True
        self._record = None
        self._figures = figures_of(record) | (
            {} if step in (PlanStep.BEGIN, PlanStep.APART) else self._figures
        )
        if step is PlanStep.CHECKED and self.moves:
            self.moves[-1].update(figures_of(record))
        ended = self.strategy.state is ChangeState.CHECKING
        self._holdings.wait(lsn if ended else 0)
        if ended:
            self.moves.append(self._describe_end(before, step, lsn))
        self._hot.clear()

    def _describe_end(self, before: PlanState, step: PlanStep, lsn: int) -> dict[str, int | str]:
        """Describes a plan change that ended with this step; `before` is the strategy until it."""
        return {
            "from": before.plan.version,
            "to": (before.following or before.plan).version,
            "apart": before.apart,
            "begun": before.begun,
            "switched": before.switched,
            "ended": lsn,
            "outcome": "done" if step is PlanStep.FINISH else "aborted",
            **self._figures,
        }

    def begin(self, data: U8, apart: bool = False) -> tuple[U8 | None, str]:
        """Returns (the record that begins the migration to a plan in JSON, or lets it coexist, or
        None; why not, or "" if that is the plan already). Raises Unavailable while the plan has
        more workers than run."""
        strategy = self.strategy
        try:
            body = json.loads(data.tobytes())
            plan = RoutingPlan.from_dict(body, strategy.plan.analysis)
        except (ValueError, TypeError) as error:
            return None, f"plan: it is not JSON: {error}"
        except PlanError as error:
            return None, str(error)
        for known in (strategy.plan, strategy.following):
            if known is not None and known.version == plan.version and is_equal_plan(known, plan):
                coexist = strategy.state is ChangeState.COEXISTING
                waits = strategy.following is known and coexist and not apart
                return (
                    None,
                    f"plan version {plan.version} already coexists with the current one"
                    if waits
                    else "",
                )
        if problem := strategy.occupied:
            return None, problem
        if problem := find_base_problem(plan, strategy.plan):
            return None, problem
        if is_equal_plan(plan, strategy.plan):
            return None, (
                "plan: every unit already has its owner, so nothing would migrate, and the "
                "frequencies are those in force"
            )
        if apart and route_of(plan) == route_of(strategy.plan):
            return None, (
                "plan: every unit already has its owner, and only the frequencies differ, so that "
                "there is nothing to coexist with"
            )
        if plan.grid != strategy.plan.grid:
            return None, (
                f"plan: its grid, {cells_of(plan.grid)}, is not that of the service, "
                f"{cells_of(strategy.plan.grid)}, which only a restart changes: `ps2stream apply "
                "--regrid` keeps the plan for the next start, and `ps2stream plan --from-service` "
                "makes one on the grid of the service"
            )
        if apart and plan.replicas:
            return None, "plan: it replicates units, so that it cannot coexist with another"
        if plan.workers > self.running:
            self._wanted_workers = (plan.workers, ASKED_TICKS)
            raise Unavailable(
                f"plan: {plan.workers} workers are needed; {self.running} are running, and the "
                "others are being started"
            )
        self._wanted_workers = (0, 0)
        self.totals.mark()
        figures = {"from": strategy.plan.version} | self._stamp_time(
            "apart_ms" if apart else "begun_ms"
        )
        return strategy.begin(plan, apart, figures), ""

    def unite(self) -> tuple[U8 | None, str]:
        """Returns (the record that begins to unite two plans, or None; why not)."""
        strategy = self.strategy
        if PlanStep.UNITE in strategy.steps:
            self.totals.mark()
            return step_record(PlanStep.UNITE, self._stamp_time("begun_ms")), ""
        return None, "" if strategy.apart else "no two plans coexist"

    def _stamp_time(self, name: str) -> dict[str, int]:
        """Returns the present time under this name; an empty dict if it is not known."""
        return {name: self.now_ms} if self.now_ms else {}

    def abort(self) -> tuple[U8 | None, str]:
        """Returns (the record that aborts the migration under way, or None; why not)."""
        strategy = self.strategy
        if PlanStep.ABORT in strategy.steps:
            return step_record(PlanStep.ABORT, self._end_figures()), ""
        if strategy.following is None:
            return None, ""
        if strategy.apart:
            return None, "new queries already belong to the new plan; unite the plans instead"
        return None, "objects are already routed by the new plan; the plan change will be completed"

    def _end_figures(self) -> dict[str, int]:
        """Returns the counters since the migration began, and the present time as its end."""
        return self.totals.since() | self._stamp_time("ended_ms")

    def hot(self, worker: int, begun: int, queries: int = 0, bytes: int = 0) -> None:
        """Notes that a worker holds all queries that it gains, and how much it fetched for that."""
        if begun == self.strategy.begun:
            self._hot[worker] = queries, bytes
            self._note_signal()

    def hear(self, dispatcher: int, lsn: int, counts: Sequence[int]) -> None:
        """Takes a dispatcher's counters at this LSN, unless it is below that of the plan change."""
        if lsn >= (self.strategy.begun or self.strategy.apart):
            self.totals.hear(dispatcher, counts)

    def posted(self, postings: PostingCounts) -> None:
        """Takes the postings that an actor counted at the end of a migration."""
        self._holdings.hear(postings)
        self._note_signal()

    def mark(self, dispatcher: int, watermark: int) -> None:
        """Notes that no batch of this dispatcher, under way or future, has a lower LSN."""
        self._marks[dispatcher] = max(self._marks.get(dispatcher, 0), watermark)
        self._note_signal()

    def due(self) -> U8 | None:
        """Returns the record that may be written now; None without any."""
        step = DUE.get(self.strategy.state)
        if step is None:
            return None
        if step is PlanStep.SWITCH:
            return step_record(step, self._transfer_figures() | self._stamp_time("switched_ms"))
        if step is PlanStep.FINISH:
            return step_record(step, self._end_figures())
        return step_record(step, self._compare_postings() or {})

    def _note_signal(self) -> None:
        """Takes the signal that the state waits for, if it is there."""
        signal, is_there = self._awaited.get(self.strategy.state, (None, None))
        if signal is not None and is_there is not None and is_there():
            self.strategy = self.strategy.signal(signal)

    def _all_hold_queries(self) -> bool:
        return self._hot.keys() >= set(range(self.strategy.workers))

    def _all_passed_switch(self) -> bool:
        marks = (self._marks.get(dispatcher, 0) for dispatcher in range(self.dispatchers))
        return all(mark >= self.strategy.switched for mark in marks)

    def _all_counted_postings(self) -> bool:
        return self._compare_postings() is not None

    def _compare_postings(self) -> dict[str, int] | None:
        return self._holdings.figures(self.strategy.workers, self.dispatchers)

    def _transfer_figures(self) -> dict[str, int]:
        """Returns how much all workers fetched."""
        queries, size = map(sum, zip(*self._hot.values(), strict=True))
        return {"queries": queries, "bytes": size}
