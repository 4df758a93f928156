"""The loads that the workers of a plan measure in a period: the units that an adjustment moves."""

from __future__ import annotations

from ps2stream.experiments.evaluate import StreamPeriod, divide_period, run_worker
from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.units import PartLoads, units_of
from ps2stream.protocol.messages.loads import LoadRequest
from ps2stream.routing.plan import RoutingPlan
from ps2stream.workers.load import LoadCounter


def measured(plan: RoutingPlan, analyzer: Analyzer, period: StreamPeriod) -> PartLoads:
    """Returns what the workers of this plan report to the controller for this period, counted by
    the GI2s and the counters of a service. Raises PlanError as `evaluate` does."""
    dealt, reports = divide_period(plan, analyzer, period), []
    for w in range(plan.workers):
        counter = LoadCounter(w, plan.grid)
        index = run_worker(plan.grid, period.live, dealt.start[w], dealt.steps[w], counter)[2]
        [census] = index.census()
        assert census is not None
        reports.append(counter.report(LoadRequest(0, 1, 0), census, 0, False))
    return units_of(reports)
