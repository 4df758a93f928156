"""`ps2stream bench`: the benchmarks of the way of objects through the service."""

from __future__ import annotations

import click

from ps2stream.commands.bench_options import (
    against_option,
    count_option,
    directory_option,
    literals_option,
    query_options,
    seconds_option,
    show_result,
    workload_options,
)
from ps2stream.commands.output import CommandOutput, FiniteRange, json_option, pass_output


@click.command()
@workload_options
@seconds_option(
    10.0, "Seconds under full load; measuring latency at half load takes as long again."
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(1, 8192),
    multiple=True,
    default=(1024,),
    show_default=True,
    help="Objects per publication. May be given several times, to compare.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    multiple=True,
    help="Number of workers. May be given several times, to compare.  "
    "[default: two fewer than cores, at least 1]",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    help="Tuples per second of the latency phase.  [default: half of what was reached]",
)
@click.option(
    "--level",
    type=click.Choice(["durable", "accepted", "none", "both"]),
    default="durable",
    show_default=True,
    help="Level of publication; both: durable and accepted, to compare.",
)
@literals_option
@count_option("--rounds", 1, "Number of rounds, each with a new service for what is compared.")
@against_option
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
    batches: tuple[int, ...],
    workers: tuple[int, ...],
    rate: float | None,
    level: str,
    literals: float,
    rounds: int,
    against: str | None,
) -> None:
    """Measure the whole service on this machine, from publication to delivery.

    Objects come in over gRPC, pass the Ray actors, and go out over gRPC. Reports tuples per
    second, latency at half load from the intended send time, CPU microseconds per tuple by
    process, and matches per object; with several rounds the median, min and max of each. Compared
    settings take turns, and the ratios of their tuples per second are reported, such as
    durable_over_accepted, with --literals also that of the tuples per CPU second of the server.
    With --against also over_yardstick, the tuples per second over those of the yardstick, and
    cpu_over_yardstick, the service's CPU time per tuple over the time that the yardstick takes
    for one. Exit code 1 if sampled matches were wrong.
    """
    from ps2stream.benchmarks.pipeline import run_pipeline

    found = run_pipeline(
        queries=queries,
        group=group,
        source=workload,
        mo=mo,
        seed=seed,
        seconds=seconds,
        batches=tuple(dict.fromkeys(batches)),
        workers=tuple(dict.fromkeys(workers)),
        rate=rate,
        levels=("durable", "accepted") if level == "both" else (level,),
        rounds=rounds,
        literals=literals,
        against=against,
    )
    show_result(output, found)


@click.command()
@workload_options
@click.option(
    "--batch",
    type=click.IntRange(1, 8192),
    default=1024,
    show_default=True,
    help="Objects per batch.",
)
@count_option("--batches", 50, "Number of measured batches of objects, and of updates.")
@directory_option
@json_option
@pass_output
def steps(
    output: CommandOutput,
    /,
    queries: int,
    group: str,
    workload: str,
    mo: float | None,
    seed: int,
    batch: int,
    batches: int,
    directory: str | None,
) -> None:
    """Measure which steps of a batch take the CPU time, from its bytes to its deliveries.

    The machines of one dispatcher, worker, merger and sequencer handle a batch in this process,
    on one thread, with logs and ledger on disk. Reports the CPU time and the number of calls of
    Python functions of each step, as medians, for batches of objects and of 512 updates. Their sum
    at 10 objects to 2 updates, cpu_us_per_tuple, is the part of what `bench pipeline` reports that
    is spent in the steps; the rest is gRPC, sockets, threads and timers. Exit code 1 if sampled
    matches were wrong.
    """
    from ps2stream.benchmarks.steps import run_steps

    found = run_steps(
        queries=queries,
        group=group,
        workload=workload,
        mo=mo,
        seed=seed,
        batch=batch,
        batches=batches,
        directory=directory,
    )
    show_result(output, found)


@click.command()
@query_options
@count_option("--times", 200, "Number of objects, published one after the other.", least=2)
@click.option(
    "--pause",
    type=FiniteRange(min=0),
    default=0.05,
    show_default=True,
    help="Seconds in which the service is idle before each object.",
)
@directory_option
@json_option
@pass_output
def single(
    output: CommandOutput,
    /,
    queries: int,
    group: str,
    workload: str,
    seed: int,
    times: int,
    pause: float,
    directory: str | None,
) -> None:
    """Measure a single object that is published to an idle service, at level durable.

    Reports the milliseconds from the call that publishes it until its delivery and until the
    call's answer, those of an fsync of the same disk, measured in turn, and by how much the
    delivery takes longer than the median fsync. Exit code 1 if an object was not delivered, or
    twice.
    """
    from ps2stream.benchmarks.single import run_single

    found = run_single(
        queries=queries,
        group=group,
        workload=workload,
        seed=seed,
        times=times,
        pause_s=pause,
        directory=directory,
    )
    show_result(output, found)


@click.command()
@count_option("--rows", 200_000, "Number of objects of a file, which is a micro-batch.")
@count_option("--files", 4, "Number of Parquet files.")
@count_option("--queries", 10_000, "Number of live queries.")
@count_option("--rounds", 3, "Number of measured rounds.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the workload.")
@click.option(
    "--way",
    multiple=True,
    type=click.Choice(["pipeline", "jvm", "dedupe"]),
    help="Way that is measured beside the direct publisher; may be given repeatedly.  "
    "[default: all]",
)
@json_option
@pass_output
def ingest(
    output: CommandOutput,
    /,
    rows: int,
    files: int,
    queries: int,
    rounds: int,
    seed: int,
    way: tuple[str, ...],
) -> None:
    """Measure `ps2stream pipeline` beside a direct publisher, from the same Parquet files.

    Both map the columns and publish durably to one service on this machine, in turns; the direct
    publisher over one stream with eight Arrow batches in flight. Reports the objects per second of
    each (pipeline: whose files Arrow reads; jvm: whose rows Spark reads; dedupe: which also
    deduplicates), the processor time that an object takes of the service and of its clients with
    all their processes, and the ratios to the direct publisher's. Spark's start, and a first round
    of each, are not measured.
    """
    from ps2stream.benchmarks.ingest import VARIANTS, run_ingest

    variants = [name for name in VARIANTS if name == "direct" or not way or name in way]
    found = run_ingest(
        rows=rows, files=files, queries=queries, rounds=rounds, seed=seed, variants=variants
    )
    show_result(output, found)
