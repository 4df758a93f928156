"""A comparison of the present plan with one that could follow it, by the same sample."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.replicate import fill_up
from ps2stream.planner.adjust.strategy import FALL, Reason, repartition
from ps2stream.planner.load import worker_loads
from ps2stream.planner.partition import plan_holders
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs, balance
from ps2stream.routing.plan import RoutingPlan


@dataclasses.dataclass(frozen=True, eq=False)
class PlanComparison:
    """The comparison of two plans. now, planned: the loads of each worker under the present plan
    and under the other one, microseconds of the sample, float64[workers]. sigma: the balance to
    keep. unmet: local adjustment cannot reach it. fall: the share by which the sum must fall.
    reason: the reason to repartition, or None."""

    now: F64
    planned: F64
    sigma: float
    unmet: bool
    fall: float
    reason: Reason | None

    @property
    def falls(self) -> float:
        """The share by which the sum of the loads falls; below zero if it rises."""
        before = float(self.now.sum())
        return 1 - float(self.planned.sum()) / before if before else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison as JSON-ready data; a balance is None if a worker has no load."""
        found = {"now": self.now, "planned": self.planned}
        balances = {f"balance_{name}": balance(loads) for name, loads in found.items()}
        return {
            "reason": self.reason,
            "falls": self.falls,
            "fall": self.fall,
            "sigma": self.sigma,
            "unmet": self.unmet,
            **{name: b if math.isfinite(b) else None for name, b in balances.items()},
            **{name: loads.tolist() for name, loads in found.items()},
        }


def judged(
    stats: Statistics,
    present: RoutingPlan,
    other: RoutingPlan,
    costs: Costs,
    sigma: float,
    unmet: bool,
    fall: float = FALL,
) -> PlanComparison:
    """Compares both plans under these statistics, with the load of replicated units divided as
    waiting times do. unmet: as in `repartition`. Raises PlanError for a plan on another grid."""

    def loads(plan: RoutingPlan) -> F64:
        if plan.grid != stats.grid:
            raise PlanError(f"plan: its grid {plan.grid.to_dict()} is not that of the sample")
        owner, groups = plan_holders(plan, stats, Analyzer(plan.analysis))
        return divide_loads(worker_loads(stats, owner, plan.workers + len(groups), costs), groups)

    now, planned = loads(present), loads(other)
    reason = repartition(now, planned, sigma, unmet, fall)
    return PlanComparison(now, planned, sigma, unmet, fall, reason)


def divide_loads(loads: F64, groups: Sequence[tuple[int, ...]]) -> F64:
    """Returns the load of each worker, float64[workers]. loads: of each worker by itself, then of
    each group, float64[workers + groups], which goes to those of its workers that have least."""
    found = loads[: len(loads) - len(groups)].copy()
    for group, load in zip(groups, loads[len(found) :].tolist(), strict=True):
        found[[*group]] = fill_up(found[[*group]], load)
    return found
