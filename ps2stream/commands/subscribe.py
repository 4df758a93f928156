"""`ps2stream subscribe`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import click

from ps2stream import log
from ps2stream.commands.output import (
    CommandOutput,
    json_option,
    pass_output,
    printable,
    server_option,
)

_EPOCH = datetime.fromtimestamp(0, UTC)


@click.command()
@click.argument("session", default="default")
@click.option("--limit", type=click.IntRange(min=1), help="Number of matches after which to stop.")
@click.option(
    "--text/--no-text",
    default=True,
    help="Print the texts of the objects, or leave them out.  [default: text]",
)
@server_option
@json_option
@pass_output
def subscribe(
    output: CommandOutput, /, session: str, limit: int | None, text: bool, server: str
) -> None:
    """Print the matches of SESSION as they arrive, until interrupted.

    A session is a named subscriber (`default` when none is named). While nobody
    subscribes, its matches are kept, up to a quota; standard error reports how many were dropped.
    The newest subscriber takes over the session.
    """
    log.configure(logging.WARNING, as_json=output.json)  # gaps are logged as warnings
    with output.connect(server) as client, client.subscribe(session, text=text) as matches:
        for match in islice(matches, limit):
            place = f"{match.lon:.4f},{match.lat:.4f}"
            line = f"{_format_time(match.time or 0)}  {match.query_id}  {place}  {match.text or ''}"
            output.emit(_match_fields(match), printable(line))


def _format_time(ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(" ", "seconds")
    except OverflowError:  # a publisher may send any 64-bit time
        return f"{ms} ms"


def _match_fields(match: Any) -> dict[str, Any]:
    names = ("query_id", "object_id", "offset", "time", "lon", "lat", "text")
    return {name: getattr(match, name) for name in names}
