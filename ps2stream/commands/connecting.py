"""The options, status lines and orderly end that all connector commands share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ps2stream import log
from ps2stream.commands.output import (
    CommandOutput,
    FiniteRange,
    json_option,
    on_interrupt,
    server_option,
)
from ps2stream.commands.publish import attributes_option
from ps2stream.connectors.counts import HOST, ConnectorCounts, CountsReporter, metrics_port
from ps2stream.errors import InvalidArgument, invalid

if TYPE_CHECKING:
    from ps2stream.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)
SOURCE = ("taken", "done", "bad", "retries", "lag", "waiting", "assigned")
SINK = ("taken", "done", "bad", "retries", "missed", "waiting")
"""The counts of sources and of sinks."""


def running_options(command: F) -> F:
    """Adds the options of all connectors: log, metrics, status lines, and the service's address."""
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Format of the log on standard error; always json with --json.",
        ),
        click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            default=0,
            metavar="PORT",
            help="Port of the metrics for Prometheus, at http://127.0.0.1:PORT/metrics; 0: none.",
        ),
        click.option(
            "--status-every",
            type=FiniteRange(min=0),
            default=10.0,
            show_default=True,
            help="Seconds between two status lines; 0 prints none.",
        ),
    ):
        command = option(command)
    return json_option(server_option(command))


def source_options(command: F) -> F:
    """Adds the options that say how records become posts."""
    command = attributes_option(command)
    command = click.option(
        "--time-unit",
        type=click.Choice(["ms", "s"]),
        default="ms",
        show_default=True,
        help="Unit of times that are numbers, counted from 1970; other times are ISO 8601.",
    )(command)
    return click.option(
        "--fields",
        default="",
        metavar="NAME=PATH,...",
        help="Paths of id, time, lon, lat and text in a record, such as text=body,lat=place.lat; "
        "dots lead into objects, numbers into arrays, and id= means that there is none. Fields "
        "that are not listed have the same names as with `publish`.",
    )(command)


def area_options(command: F) -> F:
    """Adds the options of areas, which become several objects."""
    for option in (
        click.option(
            "--spacing-km",
            type=FiniteRange(min=0.1, max=1000),
            default=10.0,
            show_default=True,
            help="Spacing of the objects that an area becomes. Queries at least this wide miss no "
            "area that they touch.",
        ),
        click.option(
            "--most-objects",
            type=click.IntRange(1, 100_000),
            default=2000,
            show_default=True,
            help="Largest number of objects of an area; a larger area has them farther apart.",
        ),
    ):
        command = option(command)
    return command


class ConnectorRun(NamedTuple):
    """A running connector: its counts, the event that stops it, and what reports that it is
    ready."""

    counts: ConnectorCounts
    teller: CountsReporter
    stop: threading.Event
    ready: Callable[[dict[str, Any], str], None]


@contextmanager
def run_connector(
    output: CommandOutput,
    name: str,
    numbers: tuple[str, ...],
    how: Mapping[str, Any],
) -> Iterator[ConnectorRun]:
    """Runs a connector within the block: signals set `stop`, and at the end the counts are
    reported a last time. `how` are the values of running_options."""
    output.waits = True  # a service that starts together with the connector
    host = how.get("metrics_host", HOST)
    log.configure(logging.INFO, as_json=output.json or how["log_format"] == "json")
    counts = ConnectorCounts(*numbers)
    teller = CountsReporter(counts, output.emit, how["status_every"])
    stop = threading.Event()

    def ready(value: dict[str, Any], line: str) -> None:
        output.emit({"event": "ready", **value}, f"{line}; stop it with Ctrl-C")

    with on_interrupt(stop.set), metrics_port(how["metrics_port"], name, counts, host):
        yield ConnectorRun(counts, teller, stop, ready)
    teller.tell("stopped")


def connect_patiently(output: CommandOutput, server: str) -> Client:
    """Returns a client whose subscription waits without limit while the service is away."""
    return output.connect(server, patience=float("inf"))


def exclusion_error(one: str, other: str) -> InvalidArgument:
    """Returns the error for two options that exclude each other."""
    return invalid(one, f"cannot be combined with {other}; give one of them")
