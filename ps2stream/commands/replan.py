"""`ps2stream replan`: change to a new plan where one does better."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ps2stream.commands.apply import START_S, wait_for_end
from ps2stream.commands.apply_steps import run_steps
from ps2stream.commands.migrations import coexistence_fields, coexistence_line
from ps2stream.commands.output import (
    CommandOutput,
    FiniteRange,
    guard_output_file,
    json_option,
    parse_addresses,
    pass_output,
    server_option,
)
from ps2stream.commands.plan_candidates import ALGORITHMS
from ps2stream.commands.plan_migration import MigrationChoices, find_steps, list_queries
from ps2stream.commands.progress import StepReporter
from ps2stream.commands.recent import recent
from ps2stream.errors import FailedPrecondition
from ps2stream.routing.steps_document import complete_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ps2stream.client.client import Client
    from ps2stream.planner.replan import PlanComparison
    from ps2stream.planner.sample import PlannerSample
    from ps2stream.routing.costs import Costs
    from ps2stream.routing.plan import RoutingPlan

ATTEMPTS = 5
PAUSE_S = 2.0
"""Seconds between two attempts: parts may have migrated while the plan was made, or be
migrating now."""
WHY = {
    "load": "the total load falls",
    "balance": "migrating parts alone does not balance the workers",
    None: "nothing to do",
}


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the decision, and change nothing.")
@click.option(
    "--coexist/--migrate",
    default=True,
    show_default=True,
    help="Let new queries belong to the new plan and the others follow once few are left, as "
    "with `apply --coexist`; or migrate now, step by step and for the fewest bytes, as with `plan "
    "--migrate`.",
)
@click.option(
    "--from-service",
    metavar="HOST:PORT",
    multiple=True,
    callback=parse_addresses,
    help="Address of a dispatcher whose recent objects are used; may be given repeatedly.  "
    "[default: --server]",
)
@click.option(
    "--fall",
    type=FiniteRange(0, 1),
    default=0.1,
    show_default=True,
    help="Share by which the sum of the workers' loads must fall.",
)
@click.option("--algorithm", type=click.Choice(ALGORITHMS), default="hybrid", show_default=True,
              help="Planning algorithm, as in `ps2stream plan`.")  # fmt: skip
@click.option(
    "--costs", metavar="FILE", help="File of c1 to c4, as `ps2stream calibrate` writes it."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of what is drawn.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "numpy"]),
    default="spark",
    show_default=True,
    help="Engine that makes the plan; numpy runs in one process and makes the same plan.",
)
@click.option(
    "-o", "--output", "path", metavar="FILE", help="File that the new plan is written to."
)
@server_option
@json_option
@pass_output
def replan(
    output: CommandOutput,
    /,
    dry_run: bool,
    coexist: bool,
    from_service: tuple[str, ...],
    fall: float,
    costs: str | None,
    path: str | None,
    server: str,
    **options: Any,
) -> None:
    """Make a new plan, and change the running service to it if it is worth it.

    The plan is made from recent objects and the live queries. It is worth it if the sum of the
    workers' loads, as both plans would have them for the same sample, falls by a tenth; or if
    the workers are out of balance (sigma), migrating parts alone (`rebalance`) would not help,
    and the new plan is better balanced. Run the command once a day, from cron or as a
    Kubernetes CronJob, or let the service do so (replan_s).

    \b
      ps2stream replan --dry-run
      ps2stream replan

    The exit code is 0 also when there is nothing to do: the current plan is good enough, there
    are no objects or queries, or two plans coexist already. Exit code 7: not possible now,
    because another plan change is in progress, or because the number of workers has changed
    meanwhile.
    """
    with output.connect(server) as client:
        plans = client.migrations()
        if coexistence_fields(plans):
            output.emit(
                {"event": "under_way", "following_version": plans.following_version},
                f"nothing to do: plan version {plans.following_version} coexists with the one in "
                f"force, {coexistence_line(plans)}",
            )
            return
        base, sigma, unmet = _fetch_present_state(client)
    with nullcontext() if path is None else guard_output_file(path), StepReporter(output) as report:
        found = _make_plan(output, base, from_service or (server,), costs, report, **options)
    if found is None:
        decision = {"event": "decided", "reason": None, "sample": None}
        output.emit(decision, "nothing to do: the service has no recent objects, or no queries")
        return
    from ps2stream.planner.replan import judged
    from ps2stream.routing.plan_file import save_plan

    sample, made, weighed, listed = found
    for attempt in range(ATTEMPTS):
        with output.connect(server) as client:
            base = _fetch_plan(client)
        if base.workers != made.workers:
            problem = (
                f"the plan is for {made.workers} workers, but the service now has "
                f"{base.workers}; run the command again"
            )
            raise FailedPrecondition(problem)
        made = replace(made, version=base.version + 1, base_version=base.version)
        if path is not None:
            save_plan(made, path)
        verdict = judged(sample.stats, base, made, weighed, sigma, unmet, fall)
        decision = verdict.to_dict() | {"sample": made.made["sample"]}
        versions = {"plan_version": base.version, "following_version": made.version}
        output.emit(
            {"event": "decided", **versions, **decision}, _format_verdict(verdict, base, made)
        )
        if verdict.reason is None or dry_run:
            return
        try:
            if coexist:
                _let_coexist(output, server, made)
            else:
                settings = {name: options[name] for name in ("seed", "engine")}
                _migrate(output, server, listed, sample, (base, made), weighed, settings)
        except FailedPrecondition:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return
        time.sleep(PAUSE_S)


def _let_coexist(output: CommandOutput, server: str, made: RoutingPlan) -> None:
    body = made.to_dict()
    body.pop("made", None)
    raw = json.dumps(body, separators=(",", ":")).encode()
    with output.connect(server, START_S) as client:
        lsn, version = client.apply_plan(raw, coexist=True)
    output.emit(
        {"event": "coexists", "plan_version": version, "lsn": lsn},
        f"from LSN {lsn} on, new queries belong to plan version {version}",
    )


def _migrate(
    output: CommandOutput,
    server: str,
    listed: Sequence[Any],
    sample: PlannerSample,
    plans: tuple[RoutingPlan, RoutingPlan],
    weighed: Costs,
    settings: Mapping[str, Any],
) -> None:
    """Takes the steps from the plan in force to the other. listed: the live queries."""
    with StepReporter(output) as report:
        found = find_steps(
            MigrationChoices(), listed, sample.stats, plans, weighed, report=report, **settings
        )
    migration = complete_steps(found.to_dict())
    name = f"the migration to plan version {migration['steps'][-1]['plan']['version']}"
    run_steps(output, migration, name, server, wait_for_end, START_S)


def _fetch_plan(client: Client) -> RoutingPlan:
    from ps2stream.routing.plan import RoutingPlan

    return RoutingPlan.from_dict(json.loads(client.plan()))


def _fetch_present_state(client: Client) -> tuple[RoutingPlan, float, bool]:
    """Returns the plan in force, sigma, and whether local adjustment would leave the measured
    balance above sigma; False where nothing was measured yet."""
    import numpy as np

    from ps2stream.routing.costs import balance

    plan = _fetch_plan(client)
    try:
        answer = client.rebalance(dry_run=True)
    except FailedPrecondition:
        return plan, client.load()["sigma"], False
    after, sigma = np.array(answer["after_us"]), answer["sigma"]
    return plan, sigma, bool(after.any()) and balance(after) > sigma


def _make_plan(
    output: CommandOutput,
    base: RoutingPlan,
    targets: tuple[str, ...],
    costs: str | None,
    report: Callable[[str], None],
    *,
    algorithm: str,
    engine: Any,
    seed: int,
) -> tuple[PlannerSample, RoutingPlan, Costs, list[Any]] | None:
    """Returns a sample of recent objects and live queries, a plan for it that can follow `base`,
    the costs of work, and the queries for `find_steps`; None where there are no objects or no
    queries."""
    from ps2stream.cluster.kernel_cache import use_kernels

    use_kernels(os.environ)  # before any module imports Numba
    from ps2stream.planner.job import PlanJob, plan_of, read_costs, sample_of
    from ps2stream.planner.partition import PartitionOptions
    from ps2stream.routing.costs import Costs

    listed: list[Any] = []
    posts, updates = recent(
        output, targets, seed, report, lambda some: listed.append(list_queries(some))
    )
    if not (any(map(len, posts)) and any(map(len, updates))):
        return None
    weighed = read_costs(costs) if costs is not None else Costs()
    job = PlanJob(
        posts=posts,
        updates=updates,
        workers=base.workers,
        algorithm=algorithm,
        options=PartitionOptions(costs=weighed, progress=report, seed=seed),
        stemmer=base.analysis.stemmer,
        stop_words=base.analysis.stop_words,
        fold=base.analysis.fold,
        grid=base.grid,
        engine=engine,
    )
    sample = sample_of(job)
    return sample, plan_of(sample, job), weighed, listed


def _format_verdict(verdict: PlanComparison, base: RoutingPlan, made: RoutingPlan) -> str:
    from ps2stream.planner.show import ratio, scaled

    figures, sample = verdict.to_dict(), made.made["sample"]
    rows = {"sample": f"{sample['objects']:,} objects, {sample['live']:,} live queries"}
    for name, plan in (("now", base), ("planned", made)):
        loads, unit = scaled(figures[name])
        rows[name] = (
            f"plan version {plan.version}: {', '.join(loads)} {unit} of work, balance "
            f"{ratio(figures[f'balance_{name}'])}"
        )
    change = "falls" if verdict.falls >= 0 else "rises"
    rows["load"] = f"{change} by {abs(verdict.falls):.1%}; worth it: {verdict.fall:.0%}"
    if verdict.unmet:
        rows["balance"] = f"migrating parts would not bring it to {verdict.sigma:g}"
    what = "nothing to do" if verdict.reason is None else "change the plan"
    why = "" if verdict.reason is None else f": {WHY[verdict.reason]}"
    rows["decision"] = what + why
    return "\n".join(f"{name:<10}{text}" for name, text in rows.items())
