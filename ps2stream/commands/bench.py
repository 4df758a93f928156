"""`ps2stream bench`: engine, pipeline, overload, stalled, log, store and metering."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from ps2stream.commands.output import FAILED, Finite, Output, json_option, pass_output

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def bench() -> None:
    """Measure this machine. docs/benchmarks.md says what was measured, and how."""


def _workload_options(command: F) -> F:
    for option in (
        click.option("--seed", type=int, default=1, show_default=True, help="Of the workload."),
        click.option(
            "--mo",
            type=Finite(min=0, min_open=True),
            help="Scale the regions until an object has about this many matches.",
        ),
        click.option(
            "--workload",
            default="synthetic",
            show_default=True,
            metavar="NAME|FILE",
            help="synthetic text, yardstick, or a file of posts.",
        ),
        click.option(
            "--group",
            type=click.Choice(["q1", "q2", "q3"]),
            default="q1",
            show_default=True,
            help="How queries are drawn.",
        ),
        click.option(
            "--queries",
            type=click.IntRange(min=1),
            default=1_000_000,
            show_default=True,
            help="Queries that stand before measuring begins.",
        ),
    ):
        command = option(command)
    return command


@bench.command()
@_workload_options
@click.option(
    "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured runs."
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The yardstick's engine.py: run it too, print the ratio.",
)
@json_option
@pass_output
def engine(
    output: Output,
    /,
    queries: int,
    group: str,
    workload: str,
    mo: float | None,
    seed: int,
    runs: int,
    against: str | None,
) -> None:
    """One worker's index on one core, in this process: 5 objects to 1 update.

    Tells tuples (objects and updates), objects and inserts a second, matches an object,
    bytes a query, and tokenisation apart. Exit code 1 if sampled matches were wrong.
    """
    from ps2stream.benchmarks.engine import run_engine

    found = run_engine(
        queries=queries,
        group=group,
        mo=mo,
        workload=workload,
        against=against,
        runs=runs,
        seed=seed,
    )
    _show_result(output, found)


@bench.command()
@_workload_options
@click.option(
    "--seconds",
    type=Finite(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Of full load; half load for the latency takes as long again.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 8192),
    default=1024,
    show_default=True,
    help="Objects of a publication.",
)
@click.option(
    "--rate",
    type=Finite(min=0, min_open=True),
    help="Tuples a second of the latency phase.  [default: half of what was reached]",
)
@click.option(
    "--level",
    type=click.Choice(["durable", "accepted", "none"]),
    default="durable",
    show_default=True,
    help="Of publication.",
)
@json_option
@pass_output
def pipeline(
    output: Output,
    /,
    queries: int,
    group: str,
    workload: str,
    mo: float | None,
    seed: int,
    seconds: float,
    batch: int,
    rate: float | None,
    level: str,
) -> None:
    """The whole service on this machine: gRPC publish in, Ray actors, gRPC delivery out.

    Tells tuples a second, latency at half load from the intended send time, CPU
    microseconds a tuple by process, and matches an object. Exit code 1 if sampled matches
    were wrong.
    """
    from ps2stream.benchmarks.pipeline import run_pipeline

    found = run_pipeline(
        queries=queries,
        group=group,
        source=workload,
        mo=mo,
        seed=seed,
        seconds=seconds,
        batch=batch,
        rate=rate,
        level=level,
    )
    _show_result(output, found)


@bench.command()
@click.option(
    "--shape",
    type=click.Choice(["arrow", "ascii", "ligatures"]),
    default="arrow",
    show_default=True,
    help="Contents of the flood: 8,000 posts, or texts of 65 KB, plain or of U+FDFA.",
)
@click.option(
    "--seconds",
    type=Finite(min=1),
    default=20.0,
    show_default=True,
    help="Length of the flood.",
)
@click.option(
    "--calls",
    type=click.IntRange(0, 512),
    default=24,
    show_default=True,
    help="Connections of the flood that publish in calls.",
)
@click.option(
    "--streams",
    type=click.IntRange(0, 512),
    default=12,
    show_default=True,
    help="Connections of the flood that publish over a stream.",
)
@json_option
@pass_output
def bystander(output: Output, /, shape: str, seconds: float, calls: int, streams: int) -> None:
    """A small publisher beside a flood of publications of 3.9 MB each.

    Reports how long the small publications take, alone and beside the flood, what the flood was
    answered, and the memory of each process before, at most, and after a rest.
    """
    from ps2stream.benchmarks.bystander import run_bystander

    _show_result(output, run_bystander(shape, seconds, calls, streams))


@bench.command()
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Queries that stand before measuring begins.",
)
@click.option(
    "--seconds",
    type=Finite(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Of each phase: warming, the peak, the flood; for two levels of publication.",
)
@click.option(
    "--times",
    type=Finite(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Of the peak that is offered, by the clock.",
)
@click.option(
    "--streams",
    type=click.IntRange(1, 512),
    default=64,
    show_default=True,
    help="That the flood comes over.",
)
@json_option
@pass_output
def overload(output: Output, /, queries: int, seconds: float, times: float, streams: int) -> None:
    """The whole service, offered many times what it can take.

    Tells what was accepted and delivered at the peak, in a flood over streams and in one of
    calls, levels DURABLE and NONE; milliseconds of deletes and of acknowledgements meanwhile;
    memory of each process before, and the most. Exit code 1 if anything acknowledged was lost
    or came twice, or a refusal did not say when to try again.
    """
    from ps2stream.benchmarks.overload import run_overload

    found = run_overload(queries=queries, seconds=seconds, times=times, streams=streams)
    _show_result(output, found)


@bench.command()
@click.option(
    "--stalled",
    type=click.IntRange(1, 1000),
    default=1000,
    show_default=True,
    help="Subscribers that open a stream and take nothing.",
)
@click.option(
    "--healthy", type=click.IntRange(1, 20), default=4, show_default=True, help="That take all."
)
@click.option(
    "--seconds",
    type=Finite(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Of each phase: without the stalled, and with them.",
)
@click.option(
    "--rate",
    type=Finite(min=0, min_open=True),
    default=2000.0,
    show_default=True,
    help="Objects a second, by the clock.",
)
@json_option
@pass_output
def stalled(output: Output, /, stalled: int, healthy: int, seconds: float, rate: float) -> None:
    """Subscribers that take nothing, beside others that do.

    Tells the latency of the healthy with and without them, and KiB of memory a stalled one
    in each process. Exit code 1 if a healthy one missed a match, or a stalled one was ended.
    """
    from ps2stream.benchmarks.stalled import run_stalled

    _show_result(output, run_stalled(stalled=stalled, healthy=healthy, seconds=seconds, rate=rate))


def _storage_options(command: F) -> F:
    for option in (
        click.option(
            "--seconds",
            type=Finite(min=0, min_open=True),
            default=3.0,
            show_default=True,
            help="Of each shape: small ones alone, in groups, large ones.",
        ),
        click.option(
            "--database-url",
            metavar="URL",
            help="A PostgreSQL to measure instead, in a schema that is removed again.",
        ),
        click.option(
            "--directory",
            type=click.Path(exists=True, file_okay=False, writable=True),
            metavar="DIR",
            help="On the disk to measure.  [default: that of temporary files]",
        ),
    ):
        command = option(command)
    return command


@bench.command()
@_storage_options
@json_option
@pass_output
def log(output: Output, /, directory: str | None, database_url: str | None, seconds: float) -> None:
    """The append-only log below deliveries and publications.

    Tells records and megabytes a second, each synced, and records read back a second. Exit
    code 1 if one that was read back was wrong.
    """
    from ps2stream.benchmarks.log import run_log

    _show_result(output, run_log(directory, seconds, database_url))


@bench.command()
@_storage_options
@json_option
@pass_output
def store(
    output: Output, /, directory: str | None, database_url: str | None, seconds: float
) -> None:
    """The ledger of queries: commits of one insert, and of a thousand.

    Tells commits and rows a second, each synced, and rows read back a second, as after a
    restart. Exit code 1 if one that was read back was wrong.
    """
    from ps2stream.benchmarks.store import run_store

    _show_result(output, run_store(directory, database_url, seconds))


@bench.command()
@click.option(
    "--batch",
    type=click.IntRange(1, 8192),
    default=1024,
    show_default=True,
    help="Objects of a batch.",
)
@click.option(
    "--seconds",
    type=Finite(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long.",
)
@click.option("--watched", is_flag=True, help="With one who watches (the live map) and without.")
@json_option
@pass_output
def metering(output: Output, /, batch: int, seconds: float, watched: bool) -> None:
    """What metrics cost: the same batches with and without, in turn; or what a watcher does.

    In one process. Tells the ratio of the CPU times, its standard error, and the time of a
    batch without. Exit code 1 if the two found different matches.
    """
    from ps2stream.benchmarks.metering import run_metering

    _show_result(output, run_metering(batch=batch, seconds=seconds, watched=watched))


def _show_result(output: Output, found: dict[str, Any]) -> None:
    """Prints a result; exits with code 1 where matches were wrong, as the figures are then worth
    nothing."""
    output.emit(found, _format_result(found))
    verified = found.get("verified", {})
    if verified.get("different") or verified.get("wrong"):
        raise SystemExit(FAILED)


def _format_result(found: dict[str, Any]) -> str:
    rows = list(_flatten_result(found, ""))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _flatten_result(found: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            yield from _flatten_result(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", f"{value:,.2f}" if isinstance(value, float) else str(value)
