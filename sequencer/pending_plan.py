"""The plan with another grid that the service starts under next time.

Tags, gridt and indexes of all actors are made of cells, so that none of them could follow such a
plan while objects flow. It waits in the ledger beside the records; the next start of the service
makes it the plan in force by a SET record, which takes it away in the same commit
(docs/decisions/0029-a-new-grid-waits-for-a-restart.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ps2stream.errors import PlanError
from ps2stream.protocol.frame import U8
from ps2stream.protocol.ports import LedgerChange, Store
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState, find_base_problem, step_of
from ps2stream.routing.plan_states import PlanStep
from ps2stream.space.grid import cells_of


class PendingPlan:
    """The pending plan of a store, if there is one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plan = _read_plan(store.pending_plan())

    @property
    def version(self) -> int:
        """The version of the plan as it was requested; 0 without one. At the start it becomes a
        higher one if live plan changes came meanwhile."""
        return 0 if self._plan is None else int(self._plan["version"])

    def request(self, data: U8, strategy: PlanState) -> str:
        """Keeps a plan (JSON) for the next start, in the place of an earlier one, durably; returns
        why not, or "". Raises Unavailable when the store cannot be written."""
        try:
            plan = RoutingPlan.from_dict(json.loads(data.tobytes()), strategy.plan.analysis)
        except (ValueError, TypeError) as error:
            return f"plan: it is not JSON: {error}"
        except PlanError as error:
            return str(error)
        present = strategy.plan
        if problem := strategy.occupied:
            return problem
        if problem := find_base_problem(plan, present):
            return problem
        if plan.grid == present.grid:
            return (
                f"plan: its grid, {cells_of(plan.grid)}, is that of the service, which follows it "
                "without a restart; apply it without --regrid"
            )
        self._keep(plan.to_dict())
        return ""

    def withdraw(self) -> None:
        """Takes the plan away, durably. Raises Unavailable."""
        if self._plan is not None:
            self._keep(None)

    def forget(self) -> None:
        """Notes that a record which takes the plan away was committed."""
        self._plan = None

    def _keep(self, plan: dict[str, Any] | None) -> None:
        self._store.commit(LedgerChange(pending="" if plan is None else json.dumps(plan)))
        self._plan = plan


def find_pending(record: U8) -> str | None:
    """Returns what a record makes of the pending plan, as LedgerChange has it: a service that
    starts under a plan leaves none behind."""
    return "" if step_of(record) is PlanStep.SET else None


def _read_plan(text: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = json.loads(text) if text else None
    return found
