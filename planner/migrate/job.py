"""The job of `ps2stream plan --migrate`: from a plan in force, a target and the live queries to the
steps between them. Queries are counted, and pairs of workers are selected for, by an engine: in
this process or on Spark's executors (spark_migration.py), by the same functions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.errors import PlanError
from ps2stream.planner.migrate import measure
from ps2stream.planner.migrate.assignment import assign
from ps2stream.planner.migrate.measure import KEPT, MOVED, PARTS, STEPS, PlanTexts
from ps2stream.planner.migrate.mixing import Mask, MixedLeaves, renumbered
from ps2stream.planner.migrate.parts import (
    CHOSEN,
    SLACK,
    CellMoves,
    cell_loads,
    find_moves,
    list_pairs,
    select_cells,
)
from ps2stream.planner.migrate.steps import (
    MigrationStep,
    MigrationSteps,
    StepCells,
    merge_steps,
    order_cells,
)
from ps2stream.planner.sample import summed
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import I64
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan

Function = Callable[[Iterator[Any]], Iterator[Any]]
STEP_BYTES = 16 << 20
"""What a step fetches at most: some 60,000 queries of ordinary length, a second or two."""


@dataclasses.dataclass(frozen=True)
class MigrationOptions:
    """The settings of a migration. select: a name in SELECTIONS, or "all": each cell follows the
    target. step_bytes: what a step fetches at most. peak: the bound of a worker's load on the way,
    as a multiple of the largest load before or after. seed: of `ra`."""

    select: str = "gr+"
    step_bytes: int = STEP_BYTES
    peak: float = 1.05
    seed: int = 1
    costs: Costs = dataclasses.field(default_factory=Costs)
    progress: Callable[[str], None] = lambda what: None


class MigrationEngine(Protocol):
    """Runs functions over batches of queries and over pairs of workers."""

    def measure(self, function: Function, schema: Any, keys: list[str], values: list[str]) -> Any:
        """Returns the table that `function` yields of all queries, with `values` added up by
        `keys`, and ordered by these."""

    def choose(self, function: Function, pairs: Any) -> Any:
        """Returns the table of CHOSEN that `function` yields of each pair of a table of PAIRS."""


class LocalEngine:
    """An engine in this process. queries: batches of LIVE."""

    def __init__(self, queries: Sequence[Any]) -> None:
        self._queries = queries

    def measure(self, function: Function, schema: Any, keys: list[str], values: list[str]) -> Any:
        """See MigrationEngine."""
        parts = [pa.Table.from_batches([part], schema) for part in function(iter(self._queries))]
        return order_table(summed(parts, schema, keys, tuple(values)), keys)

    def choose(self, function: Function, pairs: Any) -> Any:
        """See MigrationEngine."""
        each = (
            pairs.filter(pc.equal(pairs["pair"], pair)).combine_chunks()
            for pair in pc.unique(pairs["pair"])
        )
        return pa.Table.from_batches(function(each), CHOSEN)


def order_table(table: Any, keys: list[str]) -> Any:
    """Returns a table ordered by these columns."""
    return table.sort_by([(key, "ascending") for key in keys])


def plan_migration(
    engine: MigrationEngine,
    stats: Statistics,
    base: RoutingPlan,
    target: RoutingPlan,
    options: MigrationOptions,
) -> MigrationSteps:
    """Returns the steps from `base` to the target, whose workers are renumbered, or to as much of
    it as balances the workers alike (parts.py). Raises PlanError for plans on different grids, and
    where nothing differs.

    A target of fewer workers is reached as a whole. Equal arguments give equal steps."""
    if base.grid != target.grid:
        raise PlanError("migration: the target is on another grid than the plan in force")
    options.progress("migration: matching the workers")
    fetched, kept = _measure_kept(engine, base, target)
    roles = np.arange(target.workers)
    worker = assign(kept[: target.workers, : target.workers])
    target = renumbered(target, worker)
    leaves = MixedLeaves(base, target)
    if not leaves.differs.any() and target.workers == base.workers:
        raise PlanError("migration: every unit already has its owner, so nothing would move")
    moves, now, then = _find_moves(engine, stats, base, target, options)
    chosen = _choose_cells(engine, moves, base, target, options, float(then.sum()))
    kept_moves = moves.take(chosen)
    bound = options.peak * float(max(now.max(), then.max()))
    ordered = order_cells(kept_moves, base.grid, now, bound, options.step_bytes)
    last = leaves.differs.copy()
    last[np.setdiff1d(moves.cell, chosen)] = False
    options.progress(f"migration: measuring {len(ordered):,} steps")
    plans = _make_plans(leaves, base, ordered, last)
    figures = _measure_steps(engine, plans)
    if len(merged := merge_steps(ordered, figures[: len(ordered), 1], options.step_bytes)) < len(
        ordered
    ):
        ordered = merged
        plans = _make_plans(leaves, base, ordered, last)
        figures = _measure_steps(engine, plans)
    loads = [step.loads for step in ordered] or [now]
    cells = [len(step.cells) for step in ordered] or [0]
    steps = tuple(map(MigrationStep, plans[1:], *figures.T.tolist(), cells, loads))
    made = {
        "select": options.select,
        "step_bytes": options.step_bytes,
        "bound": bound,
        "peak": float(max(map(max, loads))),
        "workers": worker.tolist(),
        "fetched_as_numbered": fetched - int(kept[roles, roles].sum()),
        "fetched_as_matched": fetched - int(kept[worker, roles].sum()),
        "cells": {"differ": len(moves.cell), "move": len(chosen)},
        "loads": {"now": now.tolist(), "target": then.tolist()},
    }
    return MigrationSteps(base, steps, json.loads(json.dumps(made)))


def _make_plans(
    leaves: MixedLeaves, base: RoutingPlan, ordered: Sequence[StepCells], last: Mask
) -> list[RoutingPlan]:
    """Returns the plan in force and that after each step, of which there is at least one. last: the
    cells that follow the target in the end."""
    plans, follows = [base], np.zeros(len(last), np.bool_)
    for number, step in enumerate(ordered[:-1], 1):
        follows[step.cells] = True
        plans.append(leaves.mixed(follows & leaves.differs, number, is_last=False))
    plans.append(leaves.mixed(last, len(plans), is_last=True))
    return plans


def _measure_kept(
    engine: MigrationEngine, base: RoutingPlan, target: RoutingPlan
) -> tuple[int, I64]:
    """Returns what all workers would fetch that have nothing, in bytes, and what stays of it if a
    worker (row) takes a role (column), int64[workers, workers]."""
    texts = PlanTexts.of(base, target)
    found = engine.measure(
        partial(measure.measure_kept, texts), KEPT, ["worker", "role"], ["bytes"]
    )
    worker, role, size = (found[name].to_numpy() for name in KEPT.names)
    most = max(base.workers, target.workers)
    kept, known = np.zeros((most, most), np.int64), worker >= 0
    kept[worker[known], role[known]] = size[known]
    return int(size[~known].sum()), kept


def _find_moves(
    engine: MigrationEngine,
    stats: Statistics,
    base: RoutingPlan,
    target: RoutingPlan,
    options: MigrationOptions,
) -> tuple[CellMoves, Any, Any]:
    """Returns the cells that change their owners, and the loads by both plans, float64[workers] of
    the one that has more."""
    options.progress("migration: weighing the cells that differ")
    texts = PlanTexts.of(base, target)
    keys = ["cell", "source", "target"]
    parts = engine.measure(partial(measure.measure_parts, texts), PARTS, keys, list(MOVED))
    before = cell_loads(stats, base, options.costs)
    after = cell_loads(stats, target, options.costs)
    most = max(base.workers, target.workers)
    return find_moves(parts, after.less(before)), before.total(most), after.total(most)


def _choose_cells(
    engine: MigrationEngine,
    moves: CellMoves,
    base: RoutingPlan,
    target: RoutingPlan,
    options: MigrationOptions,
    load: float,
) -> I64:
    """Returns the cells that are to move."""
    pairs = list_pairs(moves)
    several = moves.cell[~moves.simple]
    if not len(pairs):
        return several
    options.progress(f"migration: selecting for {len(pc.unique(pairs['pair'])):,} pairs of workers")
    algorithm = "all" if target.workers < base.workers else options.select
    slack = SLACK * load / target.workers / max(target.workers - 1, 1)
    found = engine.choose(partial(select_cells, algorithm, slack, options.seed), pairs)
    return np.sort(np.concatenate([several, found["cell"].to_numpy()]))


def _measure_steps(engine: MigrationEngine, plans: Sequence[RoutingPlan]) -> I64:
    """Returns the queries and bytes that each step fetches, int64[steps, 2]."""
    texts = PlanTexts.of(*plans)
    found = engine.measure(
        partial(measure.measure_steps, texts), STEPS, ["step", "target"], list(MOVED)
    )
    out = np.zeros((len(plans) - 1, 2), np.int64)
    np.add.at(out, found["step"].to_numpy(), np.stack([found[n].to_numpy() for n in MOVED], 1))
    return out
