"""`ps2stream plan --migrate`: the steps from the plan in force to a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ps2stream.commands.loads import format_size
from ps2stream.commands.output import F, FiniteRange
from ps2stream.commands.rebalance import ALGORITHMS as SELECTIONS

if TYPE_CHECKING:
    from ps2stream.client.requests import Query
    from ps2stream.planner.migrate.steps import MigrationSteps
    from ps2stream.planner.statistics import Statistics
    from ps2stream.routing.costs import Costs
    from ps2stream.routing.plan import RoutingPlan

MIB = 1 << 20


class MigrationChoices(NamedTuple):
    """The options of a migration, as given."""

    select: str = "gr+"
    step_bytes: int = 16 * MIB
    peak: float = 1.05


_OPTIONS = (
    click.option(
        "--migrate",
        is_flag=True,
        help="Write the steps of a migration from the plan in force to the new one, with the "
        "fewest bytes, instead of the new plan; `apply` takes them one by one.",
    ),
    click.option(
        "--select",
        type=click.Choice([*SELECTIONS, "all"]),
        default=MigrationChoices().select,
        show_default=True,
        help="With --migrate: algorithm that selects which of a pair's cells move (see "
        "`rebalance`); all: every cell follows the new plan.",
    ),
    click.option(
        "--step-bytes",
        type=click.IntRange(1),
        default=MigrationChoices().step_bytes,
        show_default=True,
        help="With --migrate: bytes that a step moves at most; a cell of more is a step of its "
        "own.",
    ),
    click.option(
        "--peak",
        type=FiniteRange(min=1),
        default=MigrationChoices().peak,
        show_default=True,
        help="With --migrate: bound of a worker's load on the way, as a multiple of the largest "
        "load before or after. Where no order of the cells keeps it, it is exceeded.",
    ),
)


def migration_options(command: F) -> F:
    """Adds the options that `take_choices` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_choices(options: dict[str, Any]) -> MigrationChoices | None:
    """Removes the options of a migration from those of a plan; returns them, or None without
    --migrate."""
    wanted = options.pop("migrate")
    choices = MigrationChoices(*(options.pop(name) for name in MigrationChoices._fields))
    return choices if wanted else None


def list_queries(queries: Sequence[Query]) -> Any:
    """Returns queries as a batch of migrate.queries.LIVE."""
    from ps2stream.planner.migrate.queries import ListedQuery, of_queries

    return of_queries(
        ListedQuery(
            q.id, q.expression, None if q.region is None else q.region.to_json(), q.until or 0
        )
        for q in queries
    )


def find_steps(
    choices: MigrationChoices,
    queries: Sequence[Any],
    stats: Statistics,
    plans: tuple[RoutingPlan, RoutingPlan],
    costs: Costs,
    seed: int,
    engine: str,
    report: Callable[[str], None],
) -> MigrationSteps:
    """Returns the steps between two plans. queries: batches of `list_queries`."""
    from ps2stream.extras import name_missing_extra
    from ps2stream.planner.migrate.job import LocalEngine, MigrationOptions, plan_migration

    options = MigrationOptions(**choices._asdict(), seed=seed, costs=costs, progress=report)
    if engine != "spark":
        return plan_migration(LocalEngine(queries), stats, *plans, options)
    with name_missing_extra("Planning with the engine spark (not with --engine numpy)"):
        from ps2stream.planner.spark_migration import SparkEngine
        from ps2stream.planner.spark_session import session
    with session() as running:
        return plan_migration(SparkEngine(running, queries), stats, *plans, options)


def steps_facts(migration: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts of migration steps, JSON of routing/steps_document.py; without plans."""
    steps = [
        {"version": step["plan"]["version"], **{k: v for k, v in step.items() if k != "plan"}}
        for step in migration["steps"]
    ]
    return {
        "base_version": migration["base_version"],
        "version": steps[-1]["version"],
        "queries": sum(step["queries"] for step in steps),
        "bytes": sum(step["bytes"] for step in steps),
        "steps": steps,
        **migration["made"],
    }


def format_steps(path: str, facts: dict[str, Any]) -> str:
    """Formats the facts of migration steps for people."""
    from ps2stream.planner.show import scaled

    most = max(step["bytes"] for step in facts["steps"])
    cells, loads = facts["cells"], facts["loads"]
    after, bound = facts["steps"][-1]["loads"], facts["bound"]
    exceeded = (
        "" if facts["peak"] <= bound else f", {facts['peak'] / bound - 1:.1%} above the bound"
    )
    rows = {
        "migration": f"plan version {facts['base_version']} to {facts['version']} in "
        f"{len(facts['steps']):,} steps",
        "moves": f"{format_size(facts['bytes'])}, {facts['queries']:,} queries; at most "
        f"{format_size(most)} in a step",
        "instead of": f"{format_size(facts['fetched_as_matched'])} for the whole new plan with its "
        f"workers matched to those that run, {format_size(facts['fetched_as_numbered'])} as it "
        "numbers them",
        "cells": f"{cells['move']:,} of the {cells['differ']:,} that differ, selected by "
        f"{facts['select']}",
    }
    for name, values in (("now", loads["now"]), ("new plan", loads["target"]), ("after", after)):
        figures, unit = scaled(values)
        rows[name] = f"{', '.join(figures)} {unit} of work for the sample"
    figures, unit = scaled([facts["peak"], bound])
    rows["peak"] = f"{figures[0]} {unit} on the way; bound {figures[1]} {unit}{exceeded}"
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    for number, step in enumerate(facts["steps"], 1):
        lines.append(
            f"step {number:<7}plan version {step['version']}: {step['cells']:,} cells, "
            f"{step['queries']:,} queries, {format_size(step['bytes'])}"
        )
    return "\n".join([*lines, f"{'apply':<12}`ps2stream apply {path}`"])
