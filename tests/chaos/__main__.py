"""python -m tests.chaos: see --help."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import click

from tests.chaos.run import beside_hogs, ray_deaths, run, sweep, teller


@click.group(invoke_without_command=True)
@click.option("--minutes", default=10.0, show_default=True, help="How long faults are made.")
@click.option("--seed", default=1, show_default=True, help="Of what happens when.")
@click.option("--workers", default=3, show_default=True)
@click.option("--postgres", is_flag=True, help="Over PostgreSQL, which is killed as well.")
@click.option(
    "--kafka",
    type=click.Choice(["1", "3"]),
    help="With the logs in so many brokers of Kafka, which are killed as well.",
)
@click.option("--hot-s", default=0.0, help="Seconds for which one place and word is hot; 0: none.")
@click.option("--standbys", default=0, show_default=True, help="Of the service.")
@click.option(
    "--often",
    type=click.Choice(["move", "scale_mergers", "scale_dispatchers"]),
    help="What is done five times as often.",
)
@click.option("--history", type=click.Path(path_type=Path), help="File to keep the history in.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@click.pass_context
def main(
    context: click.Context,
    minutes: float,
    seed: int,
    workers: int,
    postgres: bool,
    kafka: str | None,
    hot_s: float,
    standbys: int,
    often: str | None,
    history: Path | None,
    as_json: bool,
) -> None:
    """Run the service on Ray under real faults and judge what was delivered.

    Exit code 1 when the history of the clients shows that a promise was broken: see tests.history.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if context.invoked_subcommand is None:
        shape: dict[str, Any] = {"workers": workers, "standbys": standbys}
        shape |= {"postgres": postgres, "kafka": int(kafka or 0), "hot_s": hot_s}
        shape["often"] = often or ""
        found = run(minutes, seed, **shape, history=history)
        show(found, as_json)


@main.command()
@click.option("--seed", default=1, show_default=True)
@click.option("--rounds", default=1, show_default=True, help="Of all roles at both steps.")
def moves(seed: int, rounds: int) -> None:
    """kill -9 of each role while a move loads queries, and while it retires old batches: source
    and target of the move, sequencer, controller, dispatcher, merger."""
    show(sweep(seed, rounds), True)


@main.command()
@click.option("--seed", default=1, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Of a kill of each.")
def ray(seed: int, rounds: int) -> None:
    """kill -9 of the supervisor, of Ray's raylet and of its GCS, then SIGTERM without waiting for
    the new one."""
    show(ray_deaths(seed, rounds), True)


@main.command()
@click.option("--seconds", default=60.0, show_default=True)
def hogs(seconds: float) -> None:
    """Beside a busy program on every core no actor is replaced; p50 and p99 of a match."""
    show(beside_hogs(seconds), True)


@main.command()
@click.option("--seed", default=1, show_default=True)
def disk(seed: int) -> None:
    """Fill the disk while the service is at work, then make room. Needs to mount a tmpfs."""
    from tests.chaos.disk import disk

    show(disk(seed, 2, teller()), True)


@main.command()
@click.option("--queries", default=1_000_000, show_default=True)
@click.option("--workers", default=1, show_default=True, help="That share them.")
@click.option("--snapshots/--no-snapshots", default=True, show_default=True)
@click.option("--standbys", default=0, show_default=True, help="Of the service.")
def recovery(queries: int, workers: int, snapshots: bool, standbys: int) -> None:
    """Kill a worker of those that hold so many queries, then an actor of each other role: the
    times until they serve again, and the latency of other cells meanwhile."""
    from tests.chaos.recovery import recovery

    show(recovery(queries, workers, teller(), snapshots, standbys), True)


@main.command()
@click.option("--rounds", default=2, show_default=True, help="Of one kill of each kind.")
@click.option("--seed", default=1, show_default=True)
@click.option("--reader", type=click.Choice(["spark", "arrow"]), default="spark")
def pipeline(rounds: int, seed: int, reader: str) -> None:
    """kill -9 of all processes of `ps2stream pipeline` amid publishing, and between publishing and
    commit; of the service while the pipeline is away, and while it is at work."""
    from tests.chaos.pipeline import pipeline

    show(pipeline(rounds, seed, teller(), reader), True)


@main.command()
@click.option("--count", default=100, show_default=True)
@click.option("--seed", default=1, show_default=True)
def flips(count: int, seed: int) -> None:
    """Flip single bits in the files of a stopped service: each is told, or harmless."""
    from tests.chaos.flips import flips

    show(flips(count, seed, teller()), True)


def show(found: dict[str, object], as_json: bool) -> None:
    """Print it; the exit code says whether it held."""
    click.echo(json.dumps(found, indent=None if as_json else 2))
    sys.exit(0 if found["held"] else 1)


if __name__ == "__main__":
    main()
