"""The live move from one plan to the next, as the sequencer drives it (contract.md 3).

    PLANNED    BEGIN is in the ledger: from its LSN on, updates go to the owners by both plans
    LOADING    workers that gain units load the queries of before from the ledger
    HOT        all have said that they hold them
    SWITCHING  SWITCH is in the ledger: a dispatcher that has applied it routes by the new plan
    RETIRING   the dispatchers' watermarks pass it: no batch that was routed by the old plan
               is under way
    DONE       FINISH is in the ledger: old owners drop what they do not own

All that matters is in the ledger; what is not is said again. Until SWITCH, ABORT undoes it.

Two plans may coexist first (APART): then only queries of before it move, once UNITE is there
in place of BEGIN.
"""

from __future__ import annotations

import json

from ps2stream.batch import U8
from ps2stream.errors import PlanError
from ps2stream.plan import RoutingPlan
from ps2stream.strategy import Step, Strategy, route_of, step_of, step_record


class Migration:
    """Follows `strategy`, and says what is due. Knows no ledger and sends nothing."""

    def __init__(self, plan: RoutingPlan) -> None:
        self.strategy = Strategy(plan)
        self.changed = False  # whether the ledger has a record of it
        self.moves: list[dict[str, int | str]] = []  # that have ended
        self._hot: set[int] = set()
        self._marks: dict[int, int] = {}  # dispatcher: watermark

    @property
    def state(self) -> str:
        """See the module."""
        strategy = self.strategy
        if strategy.following is None:
            return "DONE"
        if strategy.switched:
            return "RETIRING"
        if not strategy.begun:
            return "APART"
        return "HOT" if self._all_hot else "LOADING"

    def apply(self, record: U8, lsn: int) -> None:
        """A record that is in the ledger at `lsn`."""
        before, step = self.strategy, step_of(record)
        self.strategy = before.after(record, lsn)
        self.changed = True
        if step in (Step.FINISH, Step.ABORT) and before.following is not None:
            move = {
                "from": before.plan.version,
                "to": before.following.version,
                "apart": before.apart,
                "begun": before.begun,
                "switched": before.switched,
                "ended": lsn,
                "outcome": "done" if step is Step.FINISH else "aborted",
            }
            self.moves.append(move)
        self._hot.clear()

    def begin(self, data: U8, apart: bool = False) -> tuple[U8 | None, str]:
        """(the record that begins the move to a plan in JSON, or lets it coexist, or None; why
        not, or "" where that is the plan already)."""
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
                return None, ""
        if strategy.following is not None:
            return None, f"a move to plan version {strategy.following.version} is under way"
        if plan.base_version != strategy.plan.version:
            return None, (
                f"plan: derived from version {plan.base_version}; the current one is "
                f"{strategy.plan.version}"
            )
        if route_of(plan) == route_of(strategy.plan):
            return None, "plan: every unit has its owner already; there is nothing to move"
        if plan.grid != strategy.plan.grid:
            return None, (
                f"plan: its grid {plan.grid.to_dict()} is not that of the service, "
                f"{strategy.plan.grid.to_dict()}, which only a restart changes"
            )
        return strategy.begin(plan, apart), ""

    def unite(self) -> tuple[U8 | None, str]:
        """(the record that begins to move what is left, or None; why not)."""
        strategy = self.strategy
        if Step.UNITE in strategy.steps:
            return step_record(Step.UNITE), ""
        return None, "" if strategy.apart else "there are no two plans that coexist"

    def abort(self) -> tuple[U8 | None, str]:
        """(the record that ends the move under way, or None; why not)."""
        if self.strategy.following is None:
            return None, ""
        if self.strategy.apart:
            return None, "new queries belong to the new plan already; the two can be united"
        if self.strategy.switched:
            return None, "objects are routed by the new plan already; the move will be finished"
        return step_record(Step.ABORT), ""

    def hot(self, worker: int, begun: int) -> None:
        """A worker holds all that it gains."""
        if begun == self.strategy.begun:
            self._hot.add(worker)

    def mark(self, dispatcher: int, watermark: int) -> None:
        """No batch of this dispatcher, under way or to come, has a lower LSN."""
        self._marks[dispatcher] = max(self._marks.get(dispatcher, 0), watermark)

    def due(self, dispatchers: int) -> U8 | None:
        """The record that may be written now."""
        strategy = self.strategy
        if strategy.following is None or not strategy.begun:
            return None
        if not strategy.switched:
            return step_record(Step.SWITCH) if self._all_hot else None
        passed = [mark for mark in self._marks.values() if mark >= strategy.switched]
        return step_record(Step.FINISH) if len(passed) == dispatchers else None

    @property
    def _all_hot(self) -> bool:
        return self._hot >= set(range(self.strategy.workers))
