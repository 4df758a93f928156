"""Global adjustment: when to plan anew, and when the old plan ends (algorithms.md 1.9)."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

from ps2stream.protocol.frame import F64
from ps2stream.protocol.messages.plan import PlanChangeReply
from ps2stream.routing.costs import balance
from ps2stream.routing.plan_changes import PlanState

FALL = 0.10
HOUR_MS = 3_600_000

Reason = Literal["load", "balance"]


def repartition(
    now: F64, planned: F64, sigma: float, unmet: bool, fall: float = FALL
) -> Reason | None:
    """Returns the reason to repartition, or None. now, planned: the load of each worker under the
    current and under a new plan, for the same recent sample, microseconds, float64[workers]
    (load.worker_loads).

    "load": the sum falls by at least the share `fall`. "balance": local adjustment could not
    bring the balance to sigma (unmet), and the new plan is better balanced.
    """
    if planned.sum() <= (1 - fall) * now.sum() and now.sum() > 0:
        return "load"
    better = balance(planned) < balance(now)
    return "balance" if unmet and balance(now) > sigma and better else None


@dataclasses.dataclass(frozen=True, slots=True)
class CoexistenceLimit:
    """The end of an old plan: the queries that are left under it migrate once they are at most
    `share` of the live queries, or `after_ms` after the switch."""

    share: float = 0.05
    after_ms: int = 7 * 24 * HOUR_MS

    def due(self, old: int, live: int, age_ms: int) -> bool:
        """Returns whether the time has come. old, live: the queries of the old plan and of both;
        age_ms: the time since the switch."""
        return old <= self.share * live or age_ms >= self.after_ms

    def due_by(self, strategy: PlanState, reply: PlanChangeReply) -> bool:
        """Returns whether two plans coexist without a migration under way and the time has come,
        by this reply."""
        if not strategy.apart or strategy.begun:
            return False
        age_ms = json.loads(reply.state.tobytes()).get("apart_for", 0)
        return self.due(reply.old, reply.live, age_ms)
