"""`ps2stream map`."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ps2stream.commands.output import (
    CommandOutput,
    json_option,
    on_interrupt,
    parse_addresses,
    pass_output,
    printable,
    server_option,
    wait_for_interrupt,
)
from ps2stream.commands.presence import HINT, check_presence
from ps2stream.errors import Unavailable


@click.command("map")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address that serves the page."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7080,
    show_default=True,
    help="Port of the page; 0 picks a free one.",
)
@click.option(
    "--https-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Certificate of the page in PEM; an address off loopback needs one.",
)
@click.option(
    "--https-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Private key of the certificate in PEM.",
)
@click.option("--session", help="Session that keeps the queries drawn on the map.")
@click.option(
    "--also",
    metavar="HOST:PORT",
    multiple=True,
    callback=parse_addresses,
    help="Address of another dispatcher whose objects are shown; may be given repeatedly.",
)
@click.option(
    "--allow-origin",
    metavar="ORIGIN",
    multiple=True,
    help="Origin (https://HOST[:PORT]) whose pages may use the HTTP interface; may be given "
    "repeatedly.  [default: none]",
)
@click.option(
    "--ephemeral-queries",
    type=click.IntRange(1, 100),
    default=32,
    show_default=True,
    help="Number of queries that one identity may have by GET /v1/stream.",
)
@server_option
@json_option
@pass_output
def live_map(output: CommandOutput, /, server: str, **options: Any) -> None:
    """Serve a live map of the running service, until interrupted.

    The page shows objects as they appear, matches with the queries that they matched, the
    plan, and the load of its workers. It lets you draw queries, whose matches appear as they
    are found. It requests nothing from the internet. Queries that were drawn are deleted when
    the map ends, unless --session names the session that keeps them.

    Objects are those of the dispatchers --server and --also, matches those of your tenant's
    queries. The plan, loads and status need a token with the scope admin, queries one with the
    scope subscribe. Where others could open the page (off loopback, or when the map has a
    token), the link that is printed contains a key, without which nothing is shown.

    The same address serves the HTTP interface below /v1 to whoever has a token of the service, or
    the key: matches as server-sent events and over WebSocket, at /v1/stream.
    """
    from ps2stream.web.serve import MapOptions, serving

    done = threading.Event()
    with (
        on_interrupt(done.set),
        serving(server, output.client_parameters(), MapOptions(**options)) as map_,
    ):
        output.emit(
            {"event": "ready", "url": map_.url, "server": server, "session": map_.hub.own.session},
            f"the map of {server} is at {map_.url} ; stop it with Ctrl-C",
        )
        _report_absence(server)
        wait_for_interrupt(done)
    output.emit({"event": "stopped"}, "stopped")


def _report_absence(server: str) -> None:
    """Says on standard error that the service is not there yet; the map looks for it again by
    itself, while a page is open."""
    try:
        check_presence(server)
    except Unavailable as error:
        problem = printable(str(error).removesuffix(f"; {HINT}"))
        with suppress(OSError):
            click.echo(f"ps2stream: {problem}; the map waits for the service", err=True)
