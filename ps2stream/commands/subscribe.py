"""`ps2stream subscribe`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ps2stream import log
from ps2stream.commands.output import (
    CommandOutput,
    json_option,
    pass_output,
    printable,
    server_option,
)
from ps2stream.errors import invalid

if TYPE_CHECKING:
    from ps2stream.client.matches import Match

FIELDS = ("position", "time", "text", "attributes", "payload")
DEFAULT = FIELDS[:3]
_EPOCH = datetime.fromtimestamp(0, UTC)


@click.command()
@click.argument("session", default="default")
@click.option("--limit", type=click.IntRange(min=1), help="Number of matches after which to stop.")
@click.option(
    "--text/--no-text",
    default=True,
    help="Print the texts of the objects, or leave them out.  [default: text]",
)
@click.option(
    "--fields",
    metavar="NAME,...",
    help="Fields of the objects to receive: position, time, text, attributes, payload.  [default: "
    "position,time,text]",
)
@server_option
@json_option
@pass_output
def subscribe(
    output: CommandOutput,
    /,
    session: str,
    limit: int | None,
    text: bool,
    fields: str | None,
    server: str,
) -> None:
    """Print the matches of SESSION as they arrive, until interrupted.

    A session is a named subscriber (`default` when none is named). While nobody
    subscribes, its matches are kept, up to a quota; standard error reports how many were dropped.
    The newest subscriber takes over the session.

    \b
      ps2stream subscribe alerts --fields text,attributes
    """
    wanted = _choose_fields(fields, text)
    log.configure(logging.WARNING, as_json=output.json)  # gaps are logged as warnings
    with output.connect(server) as client, client.subscribe(session, **wanted) as matches:
        for match in islice(matches, limit):
            value = _match_fields(match, wanted)
            output.emit(value, printable("  ".join(_format_match(match))))


def _choose_fields(fields: str | None, text: bool) -> dict[str, Any]:
    """Returns which fields are requested, by name. Raises InvalidArgument."""
    if fields is None:
        return {name: name in DEFAULT and (text or name != "text") for name in FIELDS}
    if not text:
        raise invalid("--no-text", "cannot be combined with --fields; give one of them")
    names = [name.strip() for name in fields.split(",")]
    for name in names:
        if name not in FIELDS:
            raise invalid("--fields", f"expected names of {', '.join(FIELDS)}, got {name!r}")
    return {name: name in names for name in FIELDS}


def _format_match(match: Match) -> Iterator[str]:
    """Yields the columns of a line for people."""
    from ps2stream.client.attributes import format_attributes

    if match.time is not None:
        yield _format_time(match.time)
    yield match.query_id
    if match.lon is not None:
        yield f"{match.lon:.4f},{match.lat:.4f}"
    if match.text is not None:
        yield match.text
    if match.attributes:
        yield format_attributes(match.attributes)
    if isinstance(match.payload, bytes):
        yield f"({len(match.payload)} bytes)"
    elif match.payload is not None:
        yield json.dumps(match.payload, ensure_ascii=False)


def _format_time(ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(" ", "seconds")
    except OverflowError:  # a publisher may send any 64-bit time
        return f"{ms} ms"


def _match_fields(match: Match, wanted: dict[str, Any]) -> dict[str, Any]:
    from ps2stream.client.attributes import plain_attributes, plain_payload

    names = ("query_id", "object_id", "offset", "time", "lon", "lat", "text")
    value = {name: getattr(match, name) for name in names}
    if wanted["attributes"]:
        value["attributes"] = plain_attributes(match.attributes or {})
    if wanted["payload"]:
        value |= plain_payload(match.payload)
    return value
