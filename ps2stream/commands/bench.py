"""`ps2stream bench`: the group, and the benchmarks of parts of the service and of bad clients."""

from __future__ import annotations

from typing import Literal

import click

from ps2stream.commands.bench_options import (
    against_option,
    count_option,
    directory_option,
    literals_option,
    log_options,
    query_options,
    seconds_option,
    share_option,
    show_result,
    storage_options,
    workload_options,
)
from ps2stream.commands.bench_peers import peers
from ps2stream.commands.bench_service import ingest, pipeline, single, steps
from ps2stream.commands.output import CommandOutput, FiniteRange, json_option, pass_output
from ps2stream.commands.plan_limits import max_units_option


@click.group()
def bench() -> None:
    """Run benchmarks on this machine.

    docs/benchmarks.md says what was measured, and how.
    """


@bench.command()
@workload_options
@count_option("--runs", 5, "Number of measured runs.")
@click.option(
    "--index",
    type=click.Choice(["gi2-flat", "gi2-radix"]),
    default="gi2-radix",
    show_default=True,
    help="Index to measure.",
)
@share_option("--negated", "Share of queries that get AND NOT with a frequent word.")
@share_option("--circles", "Share of queries that get a circle of the same area instead.")
@share_option("--polygons", "Share of queries that get a polygon of 5 to 60 corners instead.")
@literals_option
@click.option(
    "--predicates",
    type=click.Choice(["equal", "range"]),
    help="Give each query two predicates: equalities, or comparisons that half of the objects "
    "satisfy; and measure the same queries without them in turns.",
)
@count_option("--values", 1, "Number of values, or of thresholds, of an attribute.")
@click.option(
    "--equal-matches",
    is_flag=True,
    help="Make the regions of queries with predicates larger, so that both have as many matches.",
)
@click.option(
    "--from-text",
    is_flag=True,
    help="Measure objects from their texts to matches, and `ps2stream.match` from Arrow, Parquet "
    "and pandas beside the engine.",
)
@against_option
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
    index: Literal["gi2-flat", "gi2-radix"],
    negated: float,
    circles: float,
    polygons: float,
    literals: float,
    predicates: Literal["equal", "range"] | None,
    values: int,
    equal_matches: bool,
    from_text: bool,
    against: str | None,
) -> None:
    """Measure one worker's index on one core, with 5 objects per update.

    It runs in this process. Reports tuples (objects and updates), objects and inserts per
    second, matches per object, bytes per query, and tokenisation separately. Exit code 1 if
    sampled matches were wrong.

    \b
      ps2stream bench engine --workload w0 --queries 3000000 --index gi2-flat

    measures W0 of Le Subscribe: five equalities a query, no words and places, no updates.

    \b
      ps2stream bench engine --workload comparisons --queries 100000

    measures queries of two comparisons alone, which are one list, beside the algorithms of Le
    Subscribe.

    \b
      ps2stream bench engine --workload deletes --queries 200000

    measures the longest calls of the index of a worker while so many queries are deleted.
    """
    from ps2stream.benchmarks.engine import run_engine
    from ps2stream.benchmarks.variants import Shares

    if workload == "w0":
        from ps2stream.benchmarks.attribute_subscriptions import run_attributes

        show_result(output, run_attributes(queries, index, runs, seed))
        return
    if workload == "comparisons":
        from ps2stream.experiments.le_subscribe.comparison_lists import run_comparisons

        show_result(output, run_comparisons(queries, index, seed))
        return
    if workload == "deletes":
        from ps2stream.benchmarks.deletes import run_deletes

        show_result(output, run_deletes(queries, index, seed))
        return
    if from_text:
        from ps2stream.benchmarks.from_text import run_from_text

        show_result(output, run_from_text(queries, group, mo, workload, runs, seed))
        return
    found = run_engine(
        queries=queries,
        group=group,
        mo=mo,
        workload=workload,
        against=against,
        runs=runs,
        seed=seed,
        index=index,
        shares=Shares(negated, circles, polygons),
        predicates=predicates,
        values=values,
        equal_matches=equal_matches,
        literals=literals,
    )
    show_result(output, found)


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
@count_option(
    "--calls", 24, "Number of connections of the flood that publish in calls.", least=0, most=512
)
@count_option(
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

    show_result(output, run_bystander(shape, seconds, calls, streams))


@bench.command()
@count_option("--queries", 100_000, "Number of live queries before measuring begins.")
@seconds_option(
    10.0, "Seconds of each phase (warm-up, peak, flood), at each of two levels of publication."
)
@click.option(
    "--times",
    type=FiniteRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Multiple of the peak rate that the flood offers, by the clock.",
)
@count_option("--streams", 64, "Number of streams that publish during the flood.", most=512)
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
    show_result(output, found)


@bench.command("plan-memory")
@click.option(
    "--sizes",
    default="500000:100000,1000000:300000",
    show_default=True,
    metavar="OBJECTS:QUERIES,OBJECTS:QUERIES",
    help="Numbers of objects and queries of a small and a large sample.",
)
@max_units_option
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the workload.")
@json_option
@pass_output
def plan_memory(output: CommandOutput, /, sizes: str, seed: int, max_units: int) -> None:
    """Measure the memory of the driver of `ps2stream plan`, by the size of the sample.

    Reports the peak resident memory of the driver's Python process and of its JVM; executors are
    other processes. The large sample is planned for with three limits on what the driver holds, the
    small one with the lowest; their growth is carried on to 100 million objects and 10 million
    queries.
    """
    from ps2stream.benchmarks.plan_memory import SampleBounds, SampleSize, run_plan_memory

    try:
        small, large = (SampleSize.parse(part) for part in sizes.split(","))
    except ValueError as error:
        raise click.BadParameter(f"expected OBJECTS:QUERIES,OBJECTS:QUERIES: {error}") from None
    if large.queries <= small.queries:
        raise click.BadParameter("expected more queries in the second sample than in the first")
    bounds = SampleBounds(units=max_units)
    show_result(output, run_plan_memory(small, large, seed=seed, bounds=bounds))


@bench.command()
@count_option(
    "--stalled", 1000, "Number of subscribers that open a stream and read nothing.", most=1000
)
@count_option("--healthy", 4, "Number of subscribers that read everything.", most=20)
@seconds_option(10.0, "Seconds of each phase: without the stalled subscribers, and with them.")
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

    show_result(output, run_stalled(stalled=stalled, healthy=healthy, seconds=seconds, rate=rate))


@bench.command()
@storage_options
@log_options
@json_option
@pass_output
def log(
    output: CommandOutput,
    /,
    directory: str | None,
    database_url: str | None,
    log_url: str | None,
    log_config: str | None,
    seconds: float,
) -> None:
    """Measure the append-only log that stores deliveries and publications.

    Small records are appended singly and in groups, large ones in groups. Reports records and
    megabytes per second, each synced, the CPU seconds of this process per gigabyte, and records
    read back per second. Exit code 1 if a record that was read back was wrong.
    """
    from ps2stream.benchmarks.log import run_log

    show_result(output, run_log(directory, seconds, database_url, log_url, log_config))


@bench.command()
@storage_options
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

    show_result(output, run_store(directory, database_url, seconds))


@bench.command()
@query_options
@count_option("--batches", 200, "Number of measured batches of 512 updates.")
@directory_option
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

    show_result(output, run_sequencer(queries, group, workload, batches, seed, directory))


@bench.command()
@query_options
@count_option("--workers", 8, "Number of workers of the plan.", most=1024)
@json_option
@pass_output
def gridt(
    output: CommandOutput, /, queries: int, group: str, workload: str, seed: int, workers: int
) -> None:
    """Measure the dispatcher's index: memory, updates and routing.

    Reports units, bytes per unit and per query, CPU nanoseconds per tag of an update, and CPU
    microseconds per object that is routed, in batches of 1,024 and alone. Exit code 1 if a query
    was not counted.
    """
    from ps2stream.benchmarks.gridt import run_gridt

    show_result(output, run_gridt(queries, group, workload, seed, workers))


@bench.command()
@count_option("--batch", 1024, "Objects per batch.", most=8192)
@seconds_option(10.0, "Length of the measurement in seconds.")
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

    show_result(output, run_metering(batch=batch, seconds=seconds, watched=watched))


for command in (ingest, peers, pipeline, single, steps):
    bench.add_command(command)
