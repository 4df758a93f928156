"""`ps2stream bench`: engine, pipeline, overload, stalled, log, store, sequencer and metering."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from ps2stream.commands.output import FAILED, CommandOutput, FiniteRange, json_option, pass_output

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def bench() -> None:
    """Run benchmarks on this machine.

    docs/benchmarks.md says what was measured, and how.
    """


def _seconds_option(default: float, text: str) -> Callable[[F], F]:
    return click.option(
        "--seconds",
        type=FiniteRange(min=0, min_open=True),
        default=default,
        show_default=True,
        help=text,
    )


def _count_option(
    name: str, default: int, text: str, least: int = 1, most: int | None = None
) -> Callable[[F], F]:
    kind = click.IntRange(least, most)
    return click.option(name, type=kind, default=default, show_default=True, help=text)


def _query_options(command: F) -> F:
    for option in (
        click.option(
            "--seed", type=int, default=1, show_default=True, help="Seed of the workload."
        ),
        click.option(
            "--workload",
            default="synthetic",
            show_default=True,
            metavar="NAME|FILE",
            help="Source of the objects: synthetic text, yardstick, or a file of posts.",
        ),
        click.option(
            "--group",
            type=click.Choice(["q1", "q2", "q3"]),
            default="q1",
            show_default=True,
            help="Group of queries, which defines how they are drawn.",
        ),
        _count_option("--queries", 1_000_000, "Number of live queries before measuring begins."),
    ):
        command = option(command)
    return command


_directory_option = click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True),
    metavar="DIR",
    help="Directory on the disk to measure.  [default: that of temporary files]",
)


def _workload_options(command: F) -> F:
    tune = click.option(
        "--mo",
        type=FiniteRange(min=0, min_open=True),
        help="Approximate matches per object, to which the regions are scaled.",
    )
    return _query_options(tune(command))


@bench.command()
@_workload_options
@_count_option("--runs", 5, "Number of measured runs.")
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The yardstick's engine.py, to be run too; the ratio is reported.",
)
@json_option
@pass_output
def engine(
    output: CommandOutput,
    /,
    queries: int,
    group: str,
    workload: str,
    mo: float | None,
    seed: int,
    runs: int,
    against: str | None,
) -> None:
    """Measure one worker's index on one core, with 5 objects per update.

    It runs in this process. Reports tuples (objects and updates), objects and inserts per
    second, matches per object, bytes per query, and tokenisation separately. Exit code 1 if
    sampled matches were wrong.
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
@_seconds_option(
    10.0, "Seconds under full load; measuring latency at half load takes as long again."
)
@_count_option("--batch", 1024, "Objects per publication.", most=8192)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    help="Tuples per second of the latency phase.  [default: half of what was reached]",
)
@click.option(
    "--level",
    type=click.Choice(["durable", "accepted", "none"]),
    default="durable",
    show_default=True,
    help="Level of publication.",
)
@json_option
@pass_output
def pipeline(
    output: CommandOutput,
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
    """Measure the whole service on this machine, from publication to delivery.

    Objects come in over gRPC, pass the Ray actors, and go out over gRPC. Reports tuples per
    second, latency at half load from the intended send time, CPU microseconds per tuple by
    process, and matches per object. Exit code 1 if sampled matches were wrong.
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
    help="Contents of a publication of the flood: 8,000 posts (arrow), or texts of 65 KB, plain "
    "(ascii) or of U+FDFA (ligatures).",
)
@click.option(
    "--seconds",
    type=FiniteRange(min=1),
    default=20.0,
    show_default=True,
    help="Length of the flood in seconds.",
)
@_count_option(
    "--calls", 24, "Number of connections of the flood that publish in calls.", least=0, most=512
)
@_count_option(
    "--streams",
    12,
    "Number of connections of the flood that publish over a stream.",
    least=0,
    most=512,
)
@json_option
@pass_output
def bystander(
    output: CommandOutput, /, shape: str, seconds: float, calls: int, streams: int
) -> None:
    """Measure a small publisher beside a flood of publications of 3.9 MB each.

    Reports how long the small publications take, alone and beside the flood, how the flood was
    answered, and the memory of each process before the flood, at its peak, and after a rest.
    """
    from ps2stream.benchmarks.bystander import run_bystander

    _show_result(output, run_bystander(shape, seconds, calls, streams))


@bench.command()
@_count_option("--queries", 100_000, "Number of live queries before measuring begins.")
@_seconds_option(
    10.0, "Seconds of each phase (warm-up, peak, flood), at each of two levels of publication."
)
@click.option(
    "--times",
    type=FiniteRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Multiple of the peak rate that the flood offers, by the clock.",
)
@_count_option("--streams", 64, "Number of streams that publish during the flood.", most=512)
@json_option
@pass_output
def overload(
    output: CommandOutput, /, queries: int, seconds: float, times: float, streams: int
) -> None:
    """Measure the whole service under many times the load that it can take.

    Reports what was accepted and delivered at the peak, in a flood over streams and in a flood
    of calls, at the levels DURABLE and NONE; the milliseconds of deletes and acknowledgements
    meanwhile; and the memory of each process before and at its peak. Exit code 1 if anything
    acknowledged was lost or delivered twice, or if a refusal did not say when to try again.
    """
    from ps2stream.benchmarks.overload import run_overload

    found = run_overload(queries=queries, seconds=seconds, times=times, streams=streams)
    _show_result(output, found)


@bench.command()
@_count_option(
    "--stalled", 1000, "Number of subscribers that open a stream and read nothing.", most=1000
)
@_count_option("--healthy", 4, "Number of subscribers that read everything.", most=20)
@_seconds_option(10.0, "Seconds of each phase: without the stalled subscribers, and with them.")
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    default=2000.0,
    show_default=True,
    help="Objects published per second, by the clock.",
)
@json_option
@pass_output
def stalled(
    output: CommandOutput, /, stalled: int, healthy: int, seconds: float, rate: float
) -> None:
    """Measure healthy subscribers beside stalled ones, which read nothing.

    Reports the latency of the healthy subscribers with and without the stalled ones, and the
    KiB of memory per stalled subscriber in each process. Exit code 1 if a healthy subscriber
    missed a match, or the stream of a stalled one was ended.
    """
    from ps2stream.benchmarks.stalled import run_stalled

    _show_result(output, run_stalled(stalled=stalled, healthy=healthy, seconds=seconds, rate=rate))


def _storage_options(command: F) -> F:
    for option in (
        _seconds_option(3.0, "Seconds for which each size of write is measured."),
        click.option(
            "--database-url",
            metavar="URL",
            help="PostgreSQL database to measure instead, in a schema that is removed afterwards.",
        ),
        _directory_option,
    ):
        command = option(command)
    return command


@bench.command()
@_storage_options
@json_option
@pass_output
def log(
    output: CommandOutput, /, directory: str | None, database_url: str | None, seconds: float
) -> None:
    """Measure the append-only log that stores deliveries and publications.

    Small records are appended singly and in groups, large ones in groups. Reports records and
    megabytes per second, each synced, and records read back per second. Exit code 1 if a record
    that was read back was wrong.
    """
    from ps2stream.benchmarks.log import run_log

    _show_result(output, run_log(directory, seconds, database_url))


@bench.command()
@_storage_options
@json_option
@pass_output
def store(
    output: CommandOutput, /, directory: str | None, database_url: str | None, seconds: float
) -> None:
    """Measure the ledger of queries: commits of one insert, and of a thousand.

    Reports commits and rows per second, each synced, and rows read back per second, as after a
    restart. Exit code 1 if a row that was read back was wrong.
    """
    from ps2stream.benchmarks.store import run_store

    _show_result(output, run_store(directory, database_url, seconds))


@bench.command()
@_query_options
@_count_option("--batches", 200, "Number of measured batches of 512 updates.")
@_directory_option
@json_option
@pass_output
def sequencer(
    output: CommandOutput,
    /,
    queries: int,
    group: str,
    workload: str,
    seed: int,
    batches: int,
    directory: str | None,
) -> None:
    """Measure the sequencer and its ledger: updates, memory and a restart.

    Reports CPU microseconds per update in batches of 512, half inserts and half deletes, of the
    machine and of the commit; bytes per live query; and seconds until a new process answers an
    update. Exit code 1 if an update was refused or the new process had lost a query.
    """
    from ps2stream.benchmarks.sequencer import run_sequencer

    _show_result(output, run_sequencer(queries, group, workload, batches, seed, directory))


@bench.command()
@_count_option("--batch", 1024, "Objects per batch.", most=8192)
@_seconds_option(10.0, "Length of the measurement in seconds.")
@click.option(
    "--watched",
    is_flag=True,
    help="Measure what a watcher (the live map) costs, instead of metrics.",
)
@json_option
@pass_output
def metering(output: CommandOutput, /, batch: int, seconds: float, watched: bool) -> None:
    """Measure what metrics cost, or a watcher.

    The same batches run with and without, in turn, in one process. Reports the ratio of the CPU
    times, its standard error, and the time per batch without. Exit code 1 if the two found
    different matches.
    """
    from ps2stream.benchmarks.metering import run_metering

    _show_result(output, run_metering(batch=batch, seconds=seconds, watched=watched))


def _show_result(output: CommandOutput, found: dict[str, Any]) -> None:
    """Prints a result. Wrong matches make its figures worthless, and the exit code 1."""
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
