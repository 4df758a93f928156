"""`ps2stream plan`."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ps2stream.commands.output import Finite, Output, json_option, pass_output, printable
from ps2stream.commands.shared_data import shared_file
from ps2stream.errors import InvalidArgument, Violation

if TYPE_CHECKING:
    from ps2stream.api import Query
    from ps2stream.plan import RoutingPlan

LISTED = 10_000
# As in planner/algorithms.py, whose libraries --help does without.
ALGORITHMS = (
    "hash", "frequency", "hypergraph", "metric", "gC", "gFC", "gFCL", "gNFCL",
    "grid", "kdtree", "rtree", "hybrid", "hybrid+",
)  # fmt: skip

LAND = "ne_110m_land.geojson"


@click.group(invoke_without_command=True)
@click.option(
    "--objects", metavar="FILE", multiple=True, help="A file of objects; may be given repeatedly."
)
@click.option("--queries", metavar="FILE", multiple=True, help="A file of queries; likewise.")
@click.option(
    "--from-service",
    metavar="HOST:PORT",
    multiple=True,
    help="Take the live queries of a running service, and recent objects of this dispatcher; "
    "give it for each dispatcher.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="Of the service that will use the plan.",
)
@click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    default="hybrid",
    show_default=True,
    help="hybrid: Algorithm 1 of PS2Stream; hybrid+: space and text chosen by cost; the others "
    "are baselines.",
)
@click.option(
    "--load",
    type=click.Choice(["cells", "definition1"]),
    default="cells",
    show_default=True,
    help="What a worker's load is: candidates summed over its cells, or Definition 1's product.",
)
@click.option("--delta", type=Finite(0, 1), default=0.5, show_default=True, help="Similarity.")
@click.option("--eps", type=Finite(min=0), default=0.02, show_default=True, help="Minor gain.")
@click.option(
    "--sigma", type=Finite(min=1), default=1.2, show_default=True, help="Balance to reach."
)
@click.option("--theta", type=click.IntRange(min=0), default=0, help="Most leaves; 0: 16 a worker.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of what is drawn.")
@click.option("--costs", metavar="FILE", help="c1 to c4, as `ps2stream calibrate` writes them.")
@click.option("--stemmer", help="A Snowball language, as the service has it.")
@click.option("--stop-words", help="An ISO 639-1 code, as the service has it.")
@click.option(
    "--grid-bits",
    type=(click.IntRange(0, 14), click.IntRange(0, 14)),
    metavar="LON LAT",
    help="2^LON columns, 2^LAT rows; default: by the queries' median box.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "numpy"]),
    default="spark",
    show_default=True,
    help="numpy: one process, local files; the plan is the same.",
)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    default="plan.json",
    show_default=True,
    help="The plan file to write.",
)
@json_option
@pass_output
@click.pass_context
def plan(
    context: click.Context,
    output: Output,
    /,
    objects: tuple[str, ...],
    queries: tuple[str, ...],
    from_service: tuple[str, ...],
    path: str,
    costs: str | None,
    grid_bits: tuple[int, int] | None,
    workers: int,
    algorithm: str,
    engine: Any,
    stemmer: str | None,
    stop_words: str | None,
    **options: Any,
) -> None:
    """Plan which worker serves which part of space and of the terms.

    From a sample of objects (text, lat, lon) and of queries (id, expression, region) in
    Parquet, JSON lines or CSV; what `list --json` prints is a file of queries. Start the
    service with the plan by `serve --plan FILE`.

    \b
      ps2stream plan --objects posts.parquet --queries queries.jsonl --workers 8
      ps2stream serve --plan plan.json --workers 8

    A column `op` tells inserts and deletes of the sample's period (with a column `time`)
    from queries that stood before it (`live`, the default). Spark runs on this machine
    unless spark-submit or its settings name a master.
    """
    if context.invoked_subcommand is not None:
        return
    from ps2stream.grid import Grid
    from ps2stream.plan_file import save_plan
    from ps2stream.planner.job import Job, read_costs, run
    from ps2stream.planner.load import Costs
    from ps2stream.planner.partition import Options

    if not (objects or from_service):
        raise InvalidArgument(
            [Violation("--objects", "give at least one file of objects, or --from-service")]
        )
    if not Path(path).parent.is_dir():  # told before the work, not after it
        raise _unwritable(path, "its folder does not exist")
    with Telling(output) as tell:
        posts, updates = _from_service(output, from_service, tell)
        settings = Options(
            costs=read_costs(costs) if costs is not None else Costs(), progress=tell, **options
        )
        job = Job(
            objects=objects,
            queries=queries,
            posts=posts,
            updates=updates,
            workers=workers,
            algorithm=algorithm,
            options=settings,
            stemmer=stemmer,
            stop_words=stop_words,
            grid=Grid(*grid_bits) if grid_bits is not None else None,
            engine=engine,
        )
        made = run(job)
    try:
        save_plan(made, path)
    except OSError as error:
        raise _unwritable(path, error.strerror) from None
    output.emit({"plan": path, **_facts(made)}, _shown(path, made))


def _from_service(
    output: Output, targets: tuple[str, ...], tell: Telling
) -> tuple[list[Any], list[Any]]:
    """Recent objects of every dispatcher, and the live queries, as batches."""
    from ps2stream.planner.updates import of_records
    from ps2stream.posts import SCHEMA

    posts: list[Any] = []
    updates: list[Any] = []
    for number, target in enumerate(targets):
        with output.connect(target) as client:
            tell(f"{target}: sampling recent objects")
            posts += client.sample().select(SCHEMA.names).cast(SCHEMA).to_batches()
            rows = client.list() if number == 0 else iter(())  # every dispatcher knows all
            while some := list(islice(rows, LISTED)):
                updates.append(of_records((f"{target}: {q.id}", _record(q)) for q in some))
                tell(f"{target}: {sum(map(len, updates)):,} live queries")
    return posts, updates


def _record(query: Query) -> dict[str, Any]:
    region = query.region.to_json() if query.region is not None else None
    return {"id": query.id, "expression": query.expression, "region": region}


@plan.command()
@click.argument("file")
@click.option("--png", metavar="FILE", help="Draw the plan as a map.")
@click.option("--objects", metavar="FILE", multiple=True, help="Drawn as density.")
@click.option("--queries", metavar="FILE", multiple=True, help="Drawn as density.")
@click.option(
    "--outlines",
    metavar="FILE",
    help=f"GeoJSON drawn behind the map.  [default: {LAND} of PS2STREAM_DATA, if there]",
)
@json_option
@pass_output
def show(
    output: Output,
    /,
    file: str,
    png: str | None,
    objects: tuple[str, ...],
    queries: tuple[str, ...],
    outlines: str | None,
) -> None:
    """Print leaves, parts, loads and balance of the plan FILE; draw it with --png."""
    from ps2stream.planner.show import show as shown

    land = shared_file(LAND)
    behind = outlines or (str(land) if land is not None else None)
    shown(file, output, png, objects, queries, behind)


class Telling:
    """Says what is being done: a moving line on a terminal, else a line each."""

    def __init__(self, output: Output) -> None:
        self._console = Console(stderr=True, quiet=output.json)
        self._bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
            console=self._console, transient=True, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task("starting", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, what: str) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, description=what)
        else:
            self._console.print(f"{time.monotonic() - self._began:5.1f} s  {what}", markup=False)


def _unwritable(path: str, why: str | None) -> InvalidArgument:
    return InvalidArgument([Violation("--output", f"cannot write {path}: {why}")])


def _facts(plan: RoutingPlan) -> dict[str, Any]:
    return {"workers": plan.workers, **{k: v for k, v in plan.made.items() if k != "tree"}}


def _shown(path: str, plan: RoutingPlan) -> str:
    from ps2stream.planner.show import ratio

    made = plan.made
    sample, found = made["sample"], made["predicted"]
    loads = ", ".join(f"{load / 1e6:.2f}" for load in found["loads"])
    rows = {
        "sample": f"{sample['objects']:,} objects; {sample['live']:,} live queries, "
        f"{sample['inserts']:,} inserted, {sample['deletes']:,} deleted; "
        f"{sample['cells']:,} cells, {sample['units']:,} units (a term in a cell)",
        "plan": f"{made['algorithm']} for {plan.workers} workers: {found['leaves']:,} leaves, "
        f"{found['text_leaves']:,} of them divided by text",
        "loads": f"{loads} s of work for the sample",
        "balance": f"slowest over fastest {ratio(found['balance'])}, over the lower bound "
        f"{ratio(found['slowest_over_bound'])}",
        "written to": path,
    }
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    lines[-1:-1] = [f"{'warning':<12}{printable(line)}" for line in made["warnings"]]
    return "\n".join(lines)
