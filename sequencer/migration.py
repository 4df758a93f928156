"""The migration from one plan to the next, as the sequencer drives it (contract.md 3).

    PLANNED    BEGIN is in the ledger: from its LSN on, updates go to the owners by both plans
    LOADING    workers that gain units fetch the queries of before BEGIN from the sequencer
    HOT        all workers have reported that they hold them
    SWITCHING  SWITCH is in the ledger: a dispatcher that has applied it routes by the new plan
    RETIRING   the dispatchers' watermarks pass SWITCH: no batch that was routed by the old plan
               is under way
    DONE       FINISH is in the ledger: old owners drop what they do not own

Everything that must last is in the ledger; the rest is reported again. Until SWITCH, ABORT undoes
the migration.

Two plans may coexist first (APART). Then only queries of before APART migrate, once the ledger
has UNITE, which takes the place of BEGIN.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ps2stream.errors import PlanError, Unavailable
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.plan import PostingCounts
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import (
    PlanState,
    figures_of,
    route_of,
    step_of,
    step_record,
)
from ps2stream.routing.plan_states import PlanStep
from ps2stream.sequencer.holdings import MigrationCheck
from ps2stream.sequencer.totals import CounterTotals
from ps2stream.space.grid import cells_of

MEASURED = ("objects", "delayed", "stalled", "collapsed")
MOVES = 256  # plan changes that have ended and are reported
ASKED_TICKS = 300
"""Ticks after which the workers that a plan needs are no longer wanted."""


class PlanMigration:
    """Follows the plan change in `strategy`, and makes the records that are due. It knows no ledger
    and sends nothing."""

    def __init__(self, plan: RoutingPlan) -> None:
        self.strategy = PlanState(plan)
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

    @property
    def state(self) -> str:
        """The state of the plan change, as the module lists them."""
        strategy = self.strategy
        if strategy.following is None:
            return "DONE"
        if strategy.switched:
            return "RETIRING"
        if not strategy.begun:
            return "APART"
        return "HOT" if self._all_hold_queries else "LOADING"

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
            "moving": int(self.state not in ("DONE", "APART")),
            "coexisting": int(self.state == "APART"),
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
        ends = step in (PlanStep.FINISH, PlanStep.ABORT)
        self._holdings.wait(lsn if ends else 0)
        if ends and before.following is not None:
            move: dict[str, int | str] = {
                "from": before.plan.version,
                "to": before.following.version,
                "apart": before.apart,
                "begun": before.begun,
                "switched": before.switched,
                "ended": lsn,
                "outcome": "done" if step is PlanStep.FINISH else "aborted",
            }
            move.update(self._figures)
            self.moves.append(move)
        self._hot.clear()

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
            same = known is not None and known.version == plan.version
            if same and route_of(known) == route_of(plan):
                waits = strategy.following is known and self.state == "APART" and not apart
                return None, f"plan version {plan.version} coexists already" if waits else ""
        if problem := strategy.occupied:
            return None, problem
        if plan.base_version != strategy.plan.version:
            return None, (
                f"plan: derived from version {plan.base_version}; the current one is "
                f"{strategy.plan.version}"
            )
        if route_of(plan) == route_of(strategy.plan):
            return None, "plan: every unit has its owner already; there is nothing to move"
        if plan.grid != strategy.plan.grid:
            return None, (
                f"plan: its grid, {cells_of(plan.grid)}, is not that of the service, "
                f"{cells_of(strategy.plan.grid)}, which only a restart changes; make the plan with "
                "`ps2stream plan --from-service` or --base"
            )
        if plan.workers > self.running:
            self._wanted_workers = (plan.workers, ASKED_TICKS)
            raise Unavailable(
                f"plan: {plan.workers} workers; {self.running} run, and the others are started"
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
        return None, "" if strategy.apart else "there are no two plans that coexist"

    def _stamp_time(self, name: str) -> dict[str, int]:
        """Returns the present time under this name; an empty dict if it is not known."""
        return {name: self.now_ms} if self.now_ms else {}

    def abort(self) -> tuple[U8 | None, str]:
        """Returns (the record that aborts the migration under way, or None; why not)."""
        if self.strategy.following is None:
            return None, ""
        if self.strategy.apart:
            return None, "new queries belong to the new plan already; the two can be united"
        if self.strategy.switched:
            return None, "objects are routed by the new plan already; the move will be finished"
        return step_record(PlanStep.ABORT, self._end_figures()), ""

    def _end_figures(self) -> dict[str, int]:
        """Returns the counters since the migration began, and the present time as its end."""
        return self.totals.since() | self._stamp_time("ended_ms")

    def hot(self, worker: int, begun: int, queries: int = 0, bytes: int = 0) -> None:
        """Notes that a worker holds all queries that it gains, and how much it fetched for that."""
        if begun == self.strategy.begun:
            self._hot[worker] = queries, bytes

    def hear(self, dispatcher: int, lsn: int, counts: Sequence[int]) -> None:
        """Takes a dispatcher's counters at this LSN, unless it is below that of the plan change."""
        if lsn >= (self.strategy.begun or self.strategy.apart):
            self.totals.hear(dispatcher, counts)

    def posted(self, postings: PostingCounts) -> None:
        """Takes the postings that an actor counted at the end of a migration."""
        self._holdings.hear(postings)

    def mark(self, dispatcher: int, watermark: int) -> None:
        """Notes that no batch of this dispatcher, under way or future, has a lower LSN."""
        self._marks[dispatcher] = max(self._marks.get(dispatcher, 0), watermark)

    def due(self, dispatchers: int) -> U8 | None:
        """Returns the record that may be written now; None without any."""
        strategy = self.strategy
        if strategy.following is None:
            found = self._holdings.figures(strategy.workers, dispatchers)
            return None if found is None else step_record(PlanStep.CHECKED, found)
        if not strategy.begun:
            return None
        if not strategy.switched:
            if not self._all_hold_queries:
                return None
            queries, size = map(sum, zip(*self._hot.values(), strict=True))
            loaded = {"queries": queries, "bytes": size}
            return step_record(PlanStep.SWITCH, loaded | self._stamp_time("switched_ms"))
        passed = [mark for mark in self._marks.values() if mark >= strategy.switched]
        return (
            step_record(PlanStep.FINISH, self._end_figures())
            if len(passed) == dispatchers
            else None
        )

    @property
    def _all_hold_queries(self) -> bool:
        return self._hot.keys() >= set(range(self.strategy.workers))
