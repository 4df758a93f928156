"""`ps2stream plan`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from ps2stream.commands.file_options import files_option
from ps2stream.commands.migrations import coexistence_fields, coexistence_line
from ps2stream.commands.output import (
    CommandOutput,
    FiniteRange,
    guard_output_file,
    json_option,
    parse_addresses,
    pass_output,
    server_option,
    timeout_option,
)
from ps2stream.commands.plan_candidates import (
    candidate_options,
    format_scores,
    list_candidates,
    list_scores,
    take_values,
)
from ps2stream.commands.plan_limits import max_units_option
from ps2stream.commands.plan_migration import (
    find_steps,
    format_steps,
    list_queries,
    migration_options,
    steps_facts,
    take_choices,
)
from ps2stream.commands.planned import format_plan, list_plan_facts
from ps2stream.commands.progress import StepReporter
from ps2stream.commands.recent import recent, running_plan
from ps2stream.commands.shared_data import shared_file
from ps2stream.errors import invalid
from ps2stream.foldings import FOLDINGS

NO_OBJECTS = (
    "the service has accepted no objects yet, or keeps none (sample_objects = 0); give --objects"
)
LAND = "ne_110m_land.geojson"


@click.group(invoke_without_command=True)
@files_option("--objects", "objects")
@files_option("--queries", "queries")
@click.option(
    "--attributes",
    metavar="NAME[:TYPE],...",
    help="Members and columns of the files of objects that are attributes, as `publish` takes "
    "them.  [default: all that can]",
)
@click.option(
    "--from-service",
    metavar="HOST:PORT",
    multiple=True,
    callback=parse_addresses,
    help="Address of a dispatcher of a running service, which supplies its recent objects (give "
    "the option for each dispatcher), the live queries, and the plan in force as --base, so that "
    "`apply` accepts the new plan.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=8,
    show_default="8, or as many as the running service or --base has",
    help="Number of workers of the service that will use the plan.",
)
@click.option(
    "--load",
    type=click.Choice(["cells", "definition1"]),
    default="cells",
    show_default=True,
    help="Definition of a worker's load: candidates summed over its cells, or the product of "
    "Definition 1.",
)
@click.option(
    "--sigma", type=FiniteRange(min=1), default=1.2, show_default=True,
    help="Balance to reach: largest load over smallest.",
)  # fmt: skip
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of what is drawn.",
)
@click.option(
    "--base",
    metavar="FILE",
    help="File of the plan in force, as `ps2stream plan current` writes it; the new plan can "
    "follow it while the service runs. The grid and the text analysis stay the same, and so does "
    "the number of workers unless it is given.",
)
@click.option(
    "--costs", metavar="FILE", help="File of c1 to c4, as `ps2stream calibrate` writes it."
)
@click.option("--stemmer", help="Snowball language of the stemmer, as the service has it.")
@click.option(
    "--stop-words", help="ISO 639-1 code of the stop words' language, as the service has it."
)
@click.option(
    "--fold",
    type=click.Choice(FOLDINGS),
    multiple=True,
    help="What is folded besides letter case, as the service has it; may be repeated.",
)
@click.option(
    "--grid-bits",
    type=(click.IntRange(0, 14), click.IntRange(0, 14)),
    metavar="LON LAT",
    help="Size of the grid: 2^LON columns and 2^LAT rows. A running service changes its grid only "
    "by a restart.  [default: by --grid]",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "numpy"]),
    default="spark",
    show_default=True,
    help="Engine that makes the plan; numpy runs in one process on local files and makes the same "
    "plan.",
)
@max_units_option
@candidate_options
@migration_options
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    default="plan.json",
    show_default="plan.json; with --migrate steps.json",
    help="File to write the plan, or the steps, to.",
)
@timeout_option
@json_option
@pass_output
@click.pass_context
def plan(
    context: click.Context,
    output: CommandOutput,
    /,
    objects: tuple[str, ...],
    queries: tuple[str, ...],
    attributes: str | None,
    from_service: tuple[str, ...],
    path: str,
    base: str | None,
    costs: str | None,
    grid_bits: tuple[int, int] | None,
    workers: int,
    engine: Any,
    max_units: int,
    seed: int,
    stemmer: str | None,
    stop_words: str | None,
    fold: tuple[str, ...],
    **options: Any,
) -> None:
    """Plan which worker serves which part of space and which terms.

    The plan is made from a sample of objects (text, lat, lon) and of queries (id, expression,
    region) in Parquet, JSON Lines or CSV; the output of `list --json` is a file of queries.
    Start the
    service with it: `serve --plan FILE`.

    \b
      ps2stream plan --objects posts.parquet --queries queries.jsonl --workers 8
      ps2stream serve --plan plan.json --workers 8

    A column `op` marks inserts and deletes in the period of the sample (with a column `time`),
    as opposed to queries that were live before it (`live`, the default). Spark runs on this
    machine unless spark-submit or its settings name a master.

    With --from-service the plan follows the one in force, on its grid:

    \b
      ps2stream plan --from-service localhost:7077 && ps2stream apply plan.json

    Several candidates are planned for in parallel by Spark's executors, and the best is taken:

    \b
      ps2stream plan --objects posts.parquet --queries queries.jsonl --algorithm auto \\
        --delta 0.3,0.5,0.8

    With --migrate it is reached in steps of bounded size, for the fewest bytes:

    \b
      ps2stream plan --from-service localhost:7077 --migrate && ps2stream apply steps.json

    With --grid refine or --grid queries, the grid of a plan that follows another one is a new one,
    which the service takes at its next start:

    \b
      ps2stream plan --from-service localhost:7077 --grid refine
      ps2stream apply plan.json --regrid
    """
    if context.invoked_subcommand is not None:
        return
    from ps2stream.cluster.kernel_cache import use_kernels

    use_kernels(os.environ)  # before any module imports Numba
    from ps2stream.planner.candidates import choose_plan
    from ps2stream.planner.job import PlanJob, plan_of, read_costs, sample_of
    from ps2stream.planner.partition import PartitionOptions
    from ps2stream.routing.costs import Costs
    from ps2stream.routing.plan_file import load_plan, save_plan
    from ps2stream.routing.steps_document import write_steps
    from ps2stream.space.grid import Grid

    choices, values = take_choices(options), take_values(options)
    if choices is not None and not from_service:
        raise invalid("--migrate", "needs the queries of a running service; give --from-service")
    if choices is not None and context.get_parameter_source("path") is ParameterSource.DEFAULT:
        path = "steps.json"
    if not (objects or from_service):
        raise invalid("--objects", "give at least one file of objects, or --from-service")
    fixed = {"--grid-bits": grid_bits, "--stemmer": stemmer, "--stop-words": stop_words}
    chosen = [name for name, value in fixed.items() if value is not None] + ["--fold"] * bool(fold)
    if grid_bits is not None and values.grids != ("auto",):
        raise invalid("--grid", "give one of --grid and --grid-bits")
    if base is not None and chosen:
        raise invalid(chosen[0], "is fixed by --base; give one of them")
    former = load_plan(base) if base is not None else None
    if former is None and from_service and not chosen:
        former = running_plan(output, from_service[0])
    if former is not None:
        stemmer, stop_words = former.analysis.stemmer, former.analysis.stop_words
        fold = former.analysis.fold
        if context.get_parameter_source("workers") is ParameterSource.DEFAULT:
            workers = former.workers
    if choices is not None and values.grids != ("auto",):
        raise invalid("--grid", "a migration in steps keeps the grid; leave one of them out")
    if choices is not None and former is None:
        raise invalid("--migrate", f"the plan in force settles {chosen[0]}; leave that out")
    listed: list[Any] = []
    kept_grid = None if former is None else former.grid
    grid = Grid(*grid_bits) if grid_bits is not None else kept_grid
    with guard_output_file(path), StepReporter(output) as report:
        posts, updates = recent(
            output, from_service, seed, report,
            lambda some: listed.append(list_queries(some)) if choices is not None else None,
        )  # fmt: skip
        if not (objects or posts):
            raise invalid("--from-service", NO_OBJECTS)
        settings = PartitionOptions(
            costs=read_costs(costs) if costs is not None else Costs(),
            progress=report,
            seed=seed,
            **options,
        )
        job = PlanJob(
            objects=objects,
            queries=queries,
            attributes=attributes,
            posts=posts,
            updates=updates,
            workers=workers,
            options=settings,
            stemmer=stemmer,
            stop_words=stop_words,
            fold=tuple(sorted({*fold})),
            grid=grid,
            engine=engine,
            max_units=max_units,
        )
        candidates, compared, table = list_candidates(job, values), dict[str, Any](), ""
        if len(candidates) == 1:
            sample = sample_of(candidates[0])
            made = plan_of(sample, candidates[0])
        else:
            best, made, sample, scores = choose_plan(candidates)
            compared = {"candidates": list_scores(candidates, scores, best)}
            table = format_scores(candidates, scores, best) + "\n\n"
        if former is not None:
            made = replace(made, version=former.version + 1, base_version=former.version)
        if choices is not None and former is not None:
            steps = find_steps(
                choices, listed, sample.stats, (former, made), settings.costs, seed, engine, report
            )
            write_steps(migration := steps.to_dict(), path)
            facts = steps_facts(migration)
            output.emit(
                {"steps_file": path, **facts, **compared}, table + format_steps(path, facts)
            )
            return
        save_plan(made, path)
    regrid = former is not None and former.grid != made.grid
    collected = {"collected": sample.collected} if sample.collected else {}
    derived = {} if former is None else {"version": made.version, "base_version": former.version}
    output.emit(
        {"plan": path, **derived, **list_plan_facts(made), **collected, **compared},
        table + format_plan(path, made, sample.collected, regrid),
    )


@plan.command()
@click.argument("file")
@click.option("--png", metavar="FILE", help="File that a map of the plan is drawn to.")
@files_option("--objects", "objects whose density is drawn")
@files_option("--queries", "queries whose density is drawn")
@click.option(
    "--outlines",
    metavar="FILE",
    help=f"GeoJSON file drawn behind the map.  [default: {LAND} of PS2STREAM_DATA, if there]",
)
@json_option
@pass_output
def show(
    output: CommandOutput,
    /,
    file: str,
    png: str | None,
    objects: tuple[str, ...],
    queries: tuple[str, ...],
    outlines: str | None,
) -> None:
    """Print the leaves, parts, loads and balance of the plan FILE; --png draws it. Of a file of
    migration steps, print what each of them moves."""
    from ps2stream.planner.show import show as shown
    from ps2stream.routing.steps_document import is_steps_file, read_steps

    if is_steps_file(file):
        facts = steps_facts(read_steps(file))
        output.emit({"steps_file": file, **facts}, format_steps(file, facts))
        return
    land = shared_file(LAND)
    behind = outlines or (str(land) if land is not None else None)
    shown(file, output, png, objects, queries, behind)


@plan.command()
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    default="plan.json",
    show_default=True,
    help="Plan file to write.",
)
@server_option
@json_option
@pass_output
def current(output: CommandOutput, /, path: str, server: str) -> None:
    """Write the plan that the running service uses to a file.

    `ps2stream plan --base FILE` makes a plan that can follow it.
    """
    import json

    from ps2stream.routing.plan import RoutingPlan
    from ps2stream.routing.plan_file import save_plan

    with guard_output_file(path):
        with output.connect(server) as client:
            found = RoutingPlan.from_dict(json.loads(client.plan()))
            plans = client.migrations()
        save_plan(found, path)
    line = f"plan version {found.version} for {found.workers} workers: {path}"
    if beside := coexistence_line(plans):
        line += f"\nversion {plans.following_version} coexists with it: {beside}"
    output.emit(
        {
            "plan": path,
            "version": found.version,
            "workers": found.workers,
            **coexistence_fields(plans),
        },
        line,
    )
