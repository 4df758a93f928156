"""`python -m tests.hosts cut kill "kill amid a move" "kill worker"`: these faults, in this order;
`python -m tests.hosts bench` and `python -m tests.hosts disks`: see their --help."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import click

from tests.chaos.run import teller
from tests.hosts.bench import SetUp, run_hosts, write_table
from tests.hosts.disks import run_losses
from tests.hosts.run import LEASE_S, run
from tests.support.postgres_server import installed, server


class Numbers(click.ParamType[list[int]]):
    """Numbers, separated by commas."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        try:
            return [int(word) for word in str(value).split(",")]
        except ValueError:
            self.fail("expected numbers, separated by commas", param, ctx)


@click.command()
@click.option(
    "--hosts",
    "counts",
    type=Numbers(),
    default="0,1,2,3",
    show_default=True,
    help="Numbers of hosts; 0 is one host with a data directory.",
)
@click.option("--workers", type=Numbers(), default="1,2,4", show_default=True)
@click.option("--queries", default=200_000, show_default=True)
@click.option("--mo", type=float, help="Matches an object, about.")
@click.option("--seconds", default=8.0, show_default=True, help="Of each of the two phases.")
@click.option("--json", "as_json", is_flag=True, help="All figures, as JSON.")
def bench(
    counts: list[int],
    workers: list[int],
    queries: int,
    mo: float | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure the pipeline on services over one host and several, level durable.

    Exit code 1 when sampled matches were wrong, or a session had a gap.
    """
    setups = [SetUp(hosts, n) for n in workers for hosts in counts]
    found = run_hosts(setups, queries, mo, seconds, postgres_programs(), teller())
    click.echo(json.dumps(found, indent=1) if as_json else write_table(found))
    sys.exit(not found["held"])


def postgres_programs() -> Path:
    programs = installed()
    if programs is None:
        raise SystemExit("there is no PostgreSQL here (Debian: apt-get install postgresql)")
    return programs


@click.command()
@click.argument("which", nargs=-1)
@click.option("--lease-s", default=LEASE_S, show_default=True)
@click.option("--standbys", default=0, show_default=True, help="Of each host.")
def faults(which: tuple[str, ...], lease_s: float, standbys: int) -> None:
    """Have these faults, in this order. Exit code 1 when anything acknowledged was lost, came
    twice, or came falsely."""
    with server(postgres_programs()) as postgres:
        found = run(postgres, which, lease_s=lease_s, standbys=standbys)
    click.echo(json.dumps(found, indent=1, default=str))
    sys.exit(not found["held"])


@click.command()
@click.option("--kafka/--no-kafka", default=True, show_default=True, help="The logs are in Kafka.")
@click.option("--seed", default=1, show_default=True)
def disks(kafka: bool, seed: int) -> None:
    """Have each of three hosts in turn lose its processes and its disk. Each has actors, a database
    server and a broker. Exit code 1 when anything acknowledged was lost, came twice, or came
    falsely."""
    found = run_losses(postgres_programs(), kafka, seed)
    click.echo(json.dumps(found, indent=1, default=str))
    sys.exit(not found["held"])


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
if sys.argv[1:2] == ["bench"]:
    bench(sys.argv[2:])
elif sys.argv[1:2] == ["disks"]:
    disks(sys.argv[2:])
else:
    faults()
