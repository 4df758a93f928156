"""The options that benchmarks share, and how their results are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from ps2stream.commands.output import FAILED, CommandOutput, FiniteRange

F = TypeVar("F", bound=Callable[..., Any])


def seconds_option(default: float, text: str) -> Callable[[F], F]:
    """Returns the option --seconds."""
    return click.option(
        "--seconds",
        type=FiniteRange(min=0, min_open=True),
        default=default,
        show_default=True,
        help=text,
    )


def count_option(
    name: str, default: int, text: str, least: int = 1, most: int | None = None
) -> Callable[[F], F]:
    """Returns an option that is a number, from `least` to `most`."""
    kind = click.IntRange(least, most)
    return click.option(name, type=kind, default=default, show_default=True, help=text)


def share_option(name: str, text: str) -> Callable[[F], F]:
    """Returns an option that is a share, from 0 to 1."""
    return click.option(
        name, type=FiniteRange(min=0, max=1), default=0.0, show_default=True, help=text
    )


literals_option = share_option(
    "--literals",
    "Share of queries of which a third each get a phrase, a prefix and NOT; the same queries with "
    "words instead that are as frequent are measured in turns.",
)


def query_options(command: F) -> F:
    """Adds the options of a workload to a command."""
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
        count_option("--queries", 1_000_000, "Number of live queries before measuring begins."),
    ):
        command = option(command)
    return command


directory_option = click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True),
    metavar="DIR",
    help="Directory on the disk to measure.  [default: that of temporary files]",
)


against_option = click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The yardstick's engine.py, to be run too, before and after; ratios are reported.",
)


def workload_options(command: F) -> F:
    """Adds the options of a workload to a command, and --mo."""
    tune = click.option(
        "--mo",
        type=FiniteRange(min=0, min_open=True),
        help="Approximate matches per object, to which the regions are scaled.",
    )
    return query_options(tune(command))


def storage_options(command: F) -> F:
    """Adds the options of what is stored where."""
    for option in (
        seconds_option(3.0, "Seconds for which each size of write is measured."),
        click.option(
            "--database-url",
            metavar="URL",
            help="PostgreSQL database to measure instead, in a schema that is removed afterwards.",
        ),
        directory_option,
    ):
        command = option(command)
    return command


def log_options(command: F) -> F:
    """Adds the options of a Kafka cluster for the logs."""
    for option in (
        click.option(
            "--log-config",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Properties of librdkafka that say how the brokers of --log-url are reached.",
        ),
        click.option(
            "--log-url",
            metavar="URL",
            help="Kafka cluster (kafka://HOST:PORT,.../PREFIX) to measure instead, in topics that "
            "are removed afterwards.",
        ),
    ):
        command = option(command)
    return command


def show_result(output: CommandOutput, found: dict[str, Any]) -> None:
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
