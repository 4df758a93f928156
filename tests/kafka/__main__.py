"""python -m tests.kafka: what each log takes, in turns, with the CPU time of its servers."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import click

from ps2stream.benchmarks.log import run_log
from tests.support.kafka_broker import broker, cluster
from tests.support.postgres_server import installed, server

_TICK = os.sysconf("SC_CLK_TCK")


class MeasuredLog(NamedTuple):
    """A kind of log: where it is, and the processes of its servers."""

    options: dict[str, Any]
    find_pids: Callable[[], list[int]]


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="For each size of write.")
def main(rounds: int, seconds: float) -> None:
    """Medians over the rounds, by kind of log and bytes per record x records per sync."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with open_logs() as logs:
        for _ in range(rounds):
            for name, log in logs.items():
                before = sum(map(read_cpu_s, log.find_pids()))
                made = run_log(seconds=seconds, **log.options)
                assert made["verified"]["wrong"] == 0
                for shape in made["shapes"]:
                    key = f"{shape['record_bytes']} x {shape['records_a_sync']}"
                    found.setdefault(name, {}).setdefault(key, []).append(shape)
                servers = sum(map(read_cpu_s, log.find_pids())) - before
                written = sum(s["megabytes_per_second"] * seconds for s in made["shapes"]) / 1e3
                found[name].setdefault("servers", []).append(
                    {"cpu_seconds_per_gigabyte": servers / written}
                )
    click.echo(
        json.dumps(
            {
                name: {shape: summarise(runs) for shape, runs in shapes.items()}
                for name, shapes in found.items()
            },
            indent=1,
        )
    )


def summarise(runs: list[dict[str, float]]) -> dict[str, float]:
    names = (
        "megabytes_per_second", "cpu_seconds_per_gigabyte", "sync_milliseconds_median",
        "read_records_per_second",
    )  # fmt: skip
    return {
        name: round(statistics.median(run[name] for run in runs), 2)
        for name in names
        if name in runs[0]
    }


@contextmanager
def open_logs() -> Iterator[dict[str, MeasuredLog]]:
    with ExitStack() as ending:
        programs = installed()
        assert programs is not None, "there is no PostgreSQL here"
        postgres = ending.enter_context(server(programs))
        one = ending.enter_context(broker())
        three = ending.enter_context(cluster())
        yield {
            "data directory": MeasuredLog({}, list),
            "PostgreSQL": MeasuredLog({"database_url": postgres.url}, lambda: postgres.pids),
            "Kafka, 1 broker": MeasuredLog(
                {"log_url": f"kafka://{one.address}/log?development=true"}, lambda: one.pids
            ),
            "Kafka, 3 brokers": MeasuredLog(
                {"log_url": f"kafka://{three.address}/log"},
                lambda: [pid for each in three.brokers for pid in each.pids],
            ),
        }


def read_cpu_s(pid: int) -> float:
    """Of a process, and of its children that have ended."""
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


if __name__ == "__main__":
    main()
