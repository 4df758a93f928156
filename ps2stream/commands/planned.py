"""A plan that was just made, as JSON fields and as lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ps2stream.commands.output import printable

if TYPE_CHECKING:
    from ps2stream.routing.plan import RoutingPlan
    from ps2stream.space.grid import Grid


def list_plan_facts(plan: RoutingPlan) -> dict[str, Any]:
    """Returns what is told of a plan that was made; JSON-able."""
    return {"workers": plan.workers, **{k: v for k, v in plan.made.items() if k != "tree"}}


def format_plan(path: str, plan: RoutingPlan, collected: Mapping[str, int], regrid: bool) -> str:
    """Formats a plan that was made for people. collected: rows by table; regrid: its grid is not
    that of the plan that it follows."""
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
        "grid": _format_grid(plan.grid, made["refinement"]) if "refinement" in made else "",
        "follows": f"plan version {plan.base_version}: {_format_follow(path, regrid)}",
        "written to": path,
    }
    if not plan.base_version:
        del rows["follows"]
    if not rows["grid"]:
        del rows["grid"]
    if not collected:
        del rows["collected"]
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    lines[-1:-1] = [f"{'warning':<12}{printable(line)}" for line in made["warnings"]]
    return "\n".join(lines)


def _format_grid(grid: Grid, found: Mapping[str, Any]) -> str:
    first, *finer = found["tried"]
    from ps2stream.space.grid import cells_of

    line = f"{cells_of(grid)}; the fullest holds {found['share']:.1%} of the load"
    if finer:
        line += f" ({first['share']:.1%} of {1 << first['lon_bits']} x {1 << first['lat_bits']}"
        line += f" cells; {len(found['tried'])} grids tried)"
    return line + f", at most {found['limit']:.1%} was wanted"


def _format_follow(path: str, regrid: bool) -> str:
    if regrid:
        return f"its grid is new: `ps2stream apply {path} --regrid` and a restart change to it"
    return f"`ps2stream apply {path}` changes to it"
