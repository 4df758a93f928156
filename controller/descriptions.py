"""Descriptions of measured loads and of an adjustment, with the names of the admin calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ps2stream.planner.adjust.adjustment import LoadAdjustment
from ps2stream.planner.adjust.decide import Rules
from ps2stream.planner.adjust.replicate import UnitKey
from ps2stream.planner.adjust.units import COUNTS, PartLoads
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import balance
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.grid import Grid
from ps2stream.space.space_kernels import CELL_MASK

HOTTEST, LEAVES = 10, 1000


def describe_loads(
    strategy: PlanState, units: PartLoads | None, rules: Rules, period_us: float
) -> dict[str, Any]:
    """Describes measured loads, for GetLoadResponse. A balance is left out if a worker has nothing
    to do; `busy` is a worker's share of a period; `hottest` are the parts with the highest load,
    and `leaves` the leaves with the highest load."""
    shown: dict[str, Any] = {
        "plan_version": strategy.plan.version,
        "following_version": 0 if strategy.following is None else strategy.following.version,
        "coexisting": bool(strategy.apart) and not strategy.begun,
        "period_s": period_us / 1e6,
        "sigma": rules.sigma,
    }
    if units is None:
        return shown
    workers, costs = strategy.workers, rules.costs
    loads, product = units.loads(workers, costs), units.definition1(workers, costs)
    sums = {name: np.bincount(units.worker, getattr(units, name), workers) for name in COUNTS}
    sums["postings"] = sums.pop("queries")
    sums["bytes"] = np.bincount(units.worker, units.bytes, workers)
    shown |= _describe_balance("balance", loads) | _describe_balance("balance_definition1", product)
    shown["workers"] = [
        {
            "worker": w,
            "load_us": float(loads[w]),
            "busy": float(loads[w]) / period_us,
            "definition1_us": float(product[w]),
            **{name: float(column[w]) for name, column in sums.items() if name != "bytes"},
            "bytes": int(sums["bytes"][w]),
        }
        for w in range(workers)
    ]
    load = units.load(costs)
    mine = np.flatnonzero(units.movable & (load > 0))
    hottest = mine[np.argsort(-load[mine], kind="stable")[:HOTTEST]]
    shown["hottest"] = [
        {
            "worker": int(units.worker[u]),
            "load_us": float(load[u]),
            "objects": float(units.objects[u]),
            "postings": float(units.queries[u]),
            "bytes": int(units.bytes[u]),
            **describe_cell(strategy.plan.grid, int(units.cell[u])),
        }
        for u in hottest.tolist()
    ]
    base = np.flatnonzero(units.movable)
    leaf = strategy.plan.cells[units.cell[base]]
    held = np.bincount(leaf, load[base], len(strategy.plan.leaves))
    most = np.argsort(-held, kind="stable")[:LEAVES]
    shown["leaves"] = [
        {"leaf": at, "load_us": float(held[at])} for at in most.tolist() if held[at] > 0
    ]
    return shown


def describe_replicas(plan: RoutingPlan, shares: Mapping[UnitKey, float]) -> list[dict[str, Any]]:
    """Describes the replicated and sharded units of a plan, those with the highest share first, for
    GetLoadResponse. shares: of the last objects, as far as they are known."""
    known = {(unit.cell, unit.term): unit for unit in plan.replicas}
    order = sorted(known, key=lambda key: -shares.get(key, 0.0))
    return [
        ({} if cell is None else _describe_place(plan.grid, cell))
        | ({} if term is None else {"term": term})
        | {"workers": list(known[cell, term].workers), "sharded": known[cell, term].sharded}
        | ({"share": shares[cell, term]} if (cell, term) in shares else {})
        for cell, term in order
    ]


def describe_adjustment(adjustment: LoadAdjustment, grid: Grid) -> dict[str, Any]:
    """Describes an adjustment: migrations with their places, bytes, loads of each worker before and
    after, and balances."""
    before, after = np.array(adjustment.before), np.array(adjustment.after)
    migrations = [
        {
            "source": move.source,
            "target": move.target,
            "kind": move.kind,
            "bytes": move.bytes,
            "load_us": move.load,
            "terms": list(move.terms or ()),
            **describe_cell(grid, move.cell),
        }
        for move in adjustment.moves
    ]
    return {
        "migrations": migrations,
        "bytes": adjustment.bytes,
        "before_us": before.tolist(),
        "after_us": after.tolist(),
        **_describe_balance("balance_before", before),
        **_describe_balance("balance_after", after),
    }


def describe_cell(grid: Grid, cell: int) -> dict[str, Any]:
    """Returns a base-level cell and its sides in degrees."""
    west, south, width, height = grid.bounds(cell)
    return {
        "cell": cell, "west": west, "south": south, "east": west + width, "north": south + height,
    }  # fmt: skip


def _describe_place(grid: Grid, cell: int) -> dict[str, Any]:
    """Returns a cell (level << 28 | cell) with its level, and its sides in degrees."""
    place = {"level": cell >> LEVEL_SHIFT, "cell": cell & CELL_MASK}
    return describe_cell(grid, cell) | place


def _describe_balance(name: str, loads: F64) -> dict[str, float]:
    """Returns the balance of the loads under this name; an empty dict if it is infinite."""
    found = balance(loads)
    return {name: found} if math.isfinite(found) else {}
