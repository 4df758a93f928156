"""`ps2stream connect`: bridges to and from other systems."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from ps2stream import log
from ps2stream.commands.output import (
    Finite,
    Output,
    json_option,
    on_interrupt,
    pass_output,
    server_option,
)
from ps2stream.connectors.counts import Counts, Teller, metrics_port
from ps2stream.errors import InvalidArgument, Violation

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def connect() -> None:
    """Take posts from other systems, and hand matches on to them.

    Each connector is a program of its own, a client of the service, and runs until Ctrl-C or
    SIGTERM: then it finishes what is under way and exits 0. Killed, it goes on where it was
    when it is started again; docs/howto says what comes twice then.
    """


def running_options(command: F) -> F:
    """What all connectors have: how they tell, and where the service is."""
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Of the log on standard error; json with --json.",
        ),
        click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            default=0,
            metavar="PORT",
            help="Serve metrics for Prometheus at http://127.0.0.1:PORT/metrics; 0: none.",
        ),
        click.option(
            "--status-every",
            type=Finite(min=0),
            default=10.0,
            show_default=True,
            help="Seconds between two lines of status; 0: none.",
        ),
    ):
        command = option(command)
    return json_option(server_option(command))


def source_options(command: F) -> F:
    """How records become posts."""
    command = click.option(
        "--time-unit",
        type=click.Choice(["ms", "s"]),
        default="ms",
        show_default=True,
        help="Of times that are numbers, since 1970; others are ISO 8601.",
    )(command)
    return click.option(
        "--fields",
        default="",
        metavar="NAME=PATH,...",
        help="Where a record has id, time, lon, lat and text, like text=body,lat=place.lat; dots "
        "lead into objects, numbers into arrays, and id= means none. What is not named has its "
        "usual names, as with `publish`.",
    )(command)


class Run(NamedTuple):
    """A connector under way."""

    counts: Counts
    teller: Teller
    stop: threading.Event
    ready: Callable[[dict[str, Any], str], None]


@contextmanager
def running(
    output: Output,
    name: str,
    numbers: tuple[str, ...],
    *,
    log_format: str,
    metrics_port_: int,
    status_every: float,
) -> Iterator[Run]:
    """Within the block, signals set `stop`; at its end the counts are told a last time."""
    log.configure(logging.INFO, as_json=output.json or log_format == "json")
    counts = Counts(*numbers)
    teller = Teller(counts, output.emit, status_every)
    stop = threading.Event()

    def ready(value: dict[str, Any], line: str) -> None:
        output.emit({"event": "ready", **value}, f"{line}; stop it with Ctrl-C")

    with on_interrupt(stop.set), metrics_port(metrics_port_, name, counts):
        yield Run(counts, teller, stop, ready)
    teller.tell("stopped")


@connect.command("kafka-source")
@click.option("--bootstrap", required=True, metavar="HOST:PORT,...", help="Brokers of the cluster.")
@click.option("--topic", required=True, help="Topic whose records are posts.")
@click.option(
    "--group",
    default="ps2stream",
    show_default=True,
    help="Consumer group; processes of one group share the topic's partitions.",
)
@source_options
@click.option("--dead-letter-topic", metavar="TOPIC", help="Send records that are no posts there.")
@click.option("--skip-bad", is_flag=True, help="Count and skip them; without either one, stop.")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a group begins that has committed nothing.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=2000,
    show_default=True,
    help="Records published at once, at most.",
)
@click.option(
    "--kafka-config",
    type=FILE,
    metavar="FILE",
    help="Properties of librdkafka, NAME=VALUE a line: TLS, SASL, sizes.",
)
@running_options
@pass_output
def kafka_source(
    output: Output,
    /,
    server: str,
    bootstrap: str,
    topic: str,
    group: str,
    fields: str,
    time_unit: Any,
    dead_letter_topic: str | None,
    skip_bad: bool,
    start: Any,
    batch: int,
    kafka_config: Path | None,
    **how: Any,
) -> None:
    """Publish the records of a Kafka topic: JSON objects with lat, lon and text.

    A record's offset is committed once the service has its post durably. After a crash, records
    whose offsets were not committed are published again, with the same object id: the record's
    own, or topic/partition/offset.

    \b
      ps2stream connect kafka-source --bootstrap localhost:9092 --topic posts
    """
    from ps2stream.connectors.kafka_source import KafkaSource, Options
    from ps2stream.connectors.mapping import Fields

    if dead_letter_topic is not None and skip_bad:
        raise _either("dead_letter_topic", "skip_bad")
    options = Options(
        bootstrap,
        topic,
        group,
        kafka_config,
        "topic" if dead_letter_topic else "skip" if skip_bad else "stop",
        dead_letter_topic or "",
        batch,
        start,
    )
    told = ("taken", "done", "bad", "retries", "lag", "waiting", "assigned")
    with running(output, "kafka-source", told, **_how(how)) as run, output.connect(server) as to:
        source = KafkaSource(to, Fields(fields, time_unit), options, run.counts, run.teller)
        source.run(
            run.stop,
            lambda partitions: run.ready(
                {"topic": topic, "partitions": partitions, "group": group, "server": server},
                f"publishing {topic} ({partitions} partitions) to {server} as group {group}",
            ),
        )


def _how(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "log_format": options["log_format"],
        "metrics_port_": options["metrics_port"],
        "status_every": options["status_every"],
    }


def _either(one: str, other: str) -> InvalidArgument:
    return InvalidArgument([Violation(one, f"excludes {other}")])
