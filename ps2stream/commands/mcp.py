"""`ps2stream mcp`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ps2stream import log
from ps2stream.commands.output import (
    WAKE_S,
    CommandOutput,
    json_option,
    on_interrupt,
    pass_output,
    server_option,
)
from ps2stream.extras import name_missing_extra

if TYPE_CHECKING:
    from ps2stream.assistant.serve import McpOptions


@click.command("mcp")
@click.option(
    "--session",
    default="mcp",
    show_default=True,
    help="Session that keeps the subscriptions and their matches; over HTTP, each token has one of "
    "its own whose name begins so.",
)
@click.option(
    "--max-subscriptions",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Largest number of subscriptions of a session.",
)
@click.option("--http", is_flag=True, help="Serve over HTTP, and not on standard input.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of --http.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7081,
    show_default=True,
    help="Port of --http; 0 picks a free one.",
)
@click.option(
    "--https-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Certificate of --http in PEM; an address off loopback needs one.",
)
@click.option(
    "--https-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Private key of the certificate in PEM.",
)
@click.option(
    "--allow-origin",
    metavar="ORIGIN",
    multiple=True,
    help="Origin (https://HOST[:PORT]) whose pages may use --http; may be given repeatedly.  "
    "[default: none]",
)
@server_option
@json_option
@pass_output
def mcp(output: CommandOutput, /, server: str, http: bool, **options: Any) -> None:
    """Serve the Model Context Protocol (MCP) to an assistant, as a client of the service.

    An assistant starts this command itself, and talks to it on standard input and output. It can
    add, list, price, explain and remove subscriptions, read their matches by cursor, and be told
    of new ones. Texts of posts are marked as data of strangers.

    With --http, assistants connect to http://127.0.0.1:7081/mcp. Each request needs a token of the
    service with the scope subscribe, in the header Authorization, unless the service asks for
    none. A token sees only its own subscriptions.

    \b
      ps2stream mcp --server localhost:7077
    """
    with name_missing_extra("ps2stream mcp", "mcp"):
        from ps2stream.assistant.serve import McpOptions, serve_stdio

    log.configure(logging.WARNING, as_json=output.json)
    chosen = McpOptions(**options)
    access = output.client_parameters()
    if http:
        asyncio.run(_serve_http(output, server, access, chosen))
        return
    # Nothing is lost by an end at once, and a thread that reads standard input can't be woken.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    asyncio.run(serve_stdio(server, access, chosen))


async def _serve_http(
    output: CommandOutput, server: str, access: dict[str, Any], options: McpOptions
) -> None:
    from ps2stream.assistant.serve import open_http

    done, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon_threadsafe(done.set)

    with on_interrupt(stop):
        async with open_http(server, access, options) as url:
            output.emit(
                {"event": "ready", "url": url, "server": server},
                f"the MCP server of {server} is at {url} ; stop it with Ctrl-C",
            )
            while not done.is_set():  # a signal that another thread took does not wake the loop
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WAKE_S):
                        await done.wait()
    output.emit({"event": "stopped"}, "stopped")
