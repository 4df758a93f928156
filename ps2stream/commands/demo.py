"""`ps2stream demo`."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ps2stream import config
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.commands.output import (
    FAILED,
    CommandOutput,
    FiniteRange,
    json_option,
    on_interrupt,
    pass_output,
)
from ps2stream.errors import InvalidArgument
from ps2stream.foldings import read_foldings

if TYPE_CHECKING:
    from ps2stream.demo.run import DemoRun

WAIT_S = 5.0


@click.command()
@click.option(
    "--input",
    metavar="FILE",
    help="File of posts to replay, again and again.  [default: made-up posts]",
)
@click.option(
    "--format",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    help="Format of the file.  [default: by its suffix; jsonl for -]",
)
@click.option(
    "--seconds",
    type=FiniteRange(min=0),
    default=30.0,
    show_default=True,
    help="Length of the stream in seconds; 0 runs until Ctrl-C.",
)
@click.option(
    "--rate",
    type=FiniteRange(min=1),
    default=2000.0,
    show_default=True,
    help="Objects published per second.",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Number of live queries when the stream begins.",
)
@click.option(
    "--churn",
    type=FiniteRange(min=0),
    default=20.0,
    show_default=True,
    help="Inserts per second, and as many deletes, while the stream runs.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Number of objects to verify.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the posts and queries."
)
@click.option(
    "--runtime", type=click.Choice(["ray", "local"]), help="Runtime of the service, as in `serve`."
)
@click.option(
    "--server",
    metavar="HOST:PORT",
    help="Address of a running service to use, instead of starting one.",
)
@click.option(
    "--map/--no-map",
    "mapped",
    default=None,
    help="Serve the live map and the HTTP interface too; see `ps2stream map`.  [default: if the "
    "port is free]",
)
@click.option(
    "--map-port",
    type=click.IntRange(0, 65535),
    default=7080,
    show_default=True,
    help="Port of the map on the loopback address; 0 picks a free one.",
)
@json_option
@pass_output
def demo(
    output: CommandOutput,
    /,
    input: str | None,
    format: str | None,
    seconds: float,
    rate: float,
    queries: int,
    churn: float,
    sample: int,
    seed: int,
    runtime: str | None,
    server: str | None,
    mapped: bool | None,
    map_port: int,
) -> None:
    """Show a live stream against thousands of queries, and verify the matches.

    Starts a service of its own with a temporary data directory. Replays the file given with
    --input (anything with text, lat and lon), or makes up posts at real places. Inserts queries
    made from the stream's own words and places, and inserts and deletes more while it runs. At
    the end a sample of the objects is compared with brute force; exit code 1 if one of them
    differs.
    """
    from ps2stream.demo.run import DemoOptions, DemoRun
    from ps2stream.posts.readers import read_posts

    settings = config.load({"port": 0, "runtime": runtime})
    options = DemoOptions(
        input=input,
        format=format,
        seconds=seconds or None,
        rate=rate,
        queries=queries,
        churn=churn,
        sample=sample,
        seed=seed,
        stemmer=settings.stemmer,
        stop_words=settings.stop_words,
        fold=read_foldings(settings.fold or ""),
    )
    if input is not None and input != "-":
        next(read_posts(input, format, 1), None)  # reports a bad file before anything starts
    if input is None:
        output.print_line("no --input: posts are made up, at real places (cities of GeoNames)")
    else:
        output.print_line(f"replaying {input} at {rate:,.0f} objects a second")
    with (
        _provide_service(output, settings, server) as target,
        _serve_map(output, target, mapped, map_port),
    ):
        run = DemoRun(target, options, secrets.token_hex(4))
        with on_interrupt(run.stop), _display_matches(output, run):
            summary = run.run()
    output.emit(summary, _format_summary(summary))
    if summary["equal"] != summary["sampled"] or not summary["sampled"]:
        raise SystemExit(FAILED)


@contextmanager
def _provide_service(
    output: CommandOutput, settings: config.Settings, server: str | None
) -> Iterator[str]:
    """Yields the target to use: the given one, or that of a new service that ends with the demo."""
    if server is not None:
        yield server
        return
    from ps2stream.cluster.service import start

    with PrivateFolder() as folder:
        own = settings.model_copy(
            update={
                "data_dir": folder.path / "data",
                "database_url": None,
                "log_url": None,
                "log_config": None,
                "session_quota": 256 << 20,
            }
        )
        output.print_line(
            f"starting a service ({own.runtime}) with a temporary data directory; the first "
            "run on a machine compiles its kernels, which takes about half a minute"
        )
        with _report_waiting(output, "starting"):
            starting = start(own)
        with starting as service:
            output.print_line(f"it listens on {', '.join(service.targets)}")
            yield service.targets[0]


@contextmanager
def _serve_map(
    output: CommandOutput, target: str, wanted: bool | None, port: int
) -> Iterator[None]:
    """Serves the live map and the HTTP interface within the block, if they are wanted; with None,
    if they can be served."""
    with ExitStack() as stack:
        if wanted is not False:
            from ps2stream.web.serve import MapOptions, serving

            try:
                running = stack.enter_context(serving(target, {}, MapOptions(port=port)))
            except InvalidArgument as error:
                if wanted:
                    raise
                output.print_line(f"the map is not served: {error}")
            else:
                output.print_line(f"the map is at {running.url}")
                stream = f"{running.url}v1/stream?q=flood&near=-0.1,51.5,30"
                output.print_line(f"matches over HTTP: curl -N '{stream}'")
        yield


@contextmanager
def _report_waiting(output: CommandOutput, what: str) -> Iterator[None]:
    """Prints every WAIT_S seconds that the block still runs."""
    done = threading.Event()
    began = time.monotonic()

    def report() -> None:
        while not done.wait(WAIT_S):
            output.print_line(f"{time.monotonic() - began:5.0f} s  {what} ...")

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _display_matches(output: CommandOutput, run: DemoRun) -> Iterator[None]:
    """Shows live matches within the block: as a table on a terminal, else as lines every second."""
    if output.json:
        yield
        return
    console = Console()
    done = threading.Event()
    show = _refresh_table if console.is_terminal else _print_lines
    thread = threading.Thread(target=show, args=(console, run, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(5.0)


def _refresh_table(console: Console, run: DemoRun, done: threading.Event) -> None:
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        began = time.monotonic()
        while not done.wait(0.25):
            table = Table("query", "where", "post", expand=True, title="Live matches")
            for match in list(run.recent):
                expression = run.expressions.get(match.query_id, "")
                where = f"{match.lat:.3f}, {match.lon:.3f}"
                table.add_row(
                    Text(_cut_text(expression, 30), "bold"),
                    where,
                    Text(_cut_text(match.text or "", 80)),
                )
            live.update(Group(table, Text(_format_counters(run, time.monotonic() - began))))


def _print_lines(console: Console, run: DemoRun, done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(1.0):
        click.echo(_format_counters(run, time.monotonic() - began))
        if run.recent:
            match = run.recent[-1]
            expression = run.expressions.get(match.query_id, "")
            click.echo(
                f"   {match.lat:.3f},{match.lon:.3f}  [{_cut_text(expression, 30)}]  "
                f"{_cut_text(match.text or '', 60)}"
            )


def _format_counters(run: DemoRun, seconds: float) -> str:
    return (
        f"{seconds:5.0f} s  {run.phase}  {run.tally.objects:,} objects  {run.live:,} live queries "
        f"(+{run.inserted:,} -{run.deleted:,})  {run.tally.matches:,} matches"
    )


def _cut_text(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def _format_summary(found: dict[str, Any]) -> str:
    queries, latency = found["queries"], found["latency_ms"]
    lines = [
        "",
        (
            f"objects     {found['objects']:,} in {found['seconds']:.1f} s "
            f"({found['objects_per_second']:,.0f}/s)"
        ),
        (
            f"queries     {queries['live']:,} live at the end, {queries['inserted']:,} inserted, "
            f"{queries['deleted']:,} deleted"
        ),
        f"matches     {found['matches']:,} delivered",
    ]
    if latency:
        lines.append(
            "latency     "
            + ", ".join(f"{name} {value:.1f} ms" for name, value in latency.items())
            + " (publish to delivery)"
        )
    lines += [f"differs     {difference}" for difference in found["differences"]]
    lines.append(f"verified: {found['verified']}")
    return "\n".join(lines)
