"""What `ps2stream plan` prints of the plan that it made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ps2stream.commands.output import printable

if TYPE_CHECKING:
    from ps2stream.routing.plan import RoutingPlan


def plan_facts(plan: RoutingPlan) -> dict[str, Any]:
    """Returns the facts of a plan, without its tree."""
    return {"workers": plan.workers, **{k: v for k, v in plan.made.items() if k != "tree"}}


def format_plan(path: str, plan: RoutingPlan, collected: Mapping[str, int]) -> str:
    """Formats a plan for people. collected: rows that Spark collected, by kind."""
    from ps2stream.planner.show import ratio, scaled

    made = plan.made
    sample, found = made["sample"], made["predicted"]
    loads, unit = scaled(found["loads"])
    rows = {
        "sample": f"{sample['objects']:,} objects; {sample['live']:,} live queries, "
        f"{sample['inserts']:,} inserted, {sample['deletes']:,} deleted; "
        f"{sample['cells']:,} cells, {sample['units']:,} units (a term in a cell)",
        "collected": f"{sum(collected.values()):,} rows, bounded by terms and cells, of "
        f"{sample['objects'] + sample['live'] + sample['deletes']:,} read: "
        + ", ".join(f"{name} {rows:,}" for name, rows in collected.items()),
        "plan": f"{made['algorithm']} for {plan.workers} workers: {found['leaves']:,} leaves, "
        f"{found['text_leaves']:,} of them divided by text",
        "loads": f"{', '.join(loads)} {unit} of work for the sample",
        "balance": f"slowest over fastest {ratio(found['balance'])}, over the lower bound "
        f"{ratio(found['slowest_over_bound'])}",
        "follows": f"plan version {plan.base_version}: `ps2stream apply {path}` changes to it",
        "written to": path,
    }
    if not plan.base_version:
        del rows["follows"]
    if not collected:
        del rows["collected"]
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    lines[-1:-1] = [f"{'warning':<12}{printable(line)}" for line in made["warnings"]]
    return "\n".join(lines)
