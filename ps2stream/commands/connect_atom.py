"""`ps2stream connect atom`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from ps2stream.commands.connecting import (
    FILE,
    SINK,
    connect_patiently,
    run_connector,
    running_options,
)
from ps2stream.commands.output import CommandOutput, pass_output
from ps2stream.commands.sink_options import message_options, message_style
from ps2stream.extras import name_missing_extra


@click.command("atom")
@click.option("--file", type=FILE, required=True, metavar="FILE", help="File that holds the feed.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["atom", "rss"]),
    default="atom",
    show_default=True,
    help="Format of the feed: Atom 1.0 or RSS 2.0.",
)
@click.option(
    "--entries",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Largest number of entries; the newest stay.",
)
@click.option("--page-url", default="", metavar="URL", help="URL of a page about the matches.")
@click.option("--self-url", default="", metavar="URL", help="URL at which the feed is served.")
@message_options(most=1000, interval=0.0)
@running_options
@pass_output
def atom(
    output: CommandOutput,
    /,
    server: str,
    session: str,
    file: Path,
    kind: Literal["atom", "rss"],
    entries: int,
    page_url: str,
    self_url: str,
    batch: int,
    interval: float,
    cut: int,
    show: tuple[str, ...],
    link: str | None,
    give_up: float,
    dead_letters: Path | None,
    **how: Any,
) -> None:
    """Keep the newest matches of a session in a file, as a feed that readers subscribe to.

    The file is replaced as a whole, and is on the disk before its matches are acknowledged. A
    match that comes again after a crash is in it once, as it has the same id. The connector
    continues a feed that it finds, and never overwrites a file that is something else. Serve
    the file by any web server.

    \b
      ps2stream connect atom --session alerts --file /srv/www/alerts.xml \\
        --self-url https://example.org/alerts.xml
    """
    with name_missing_extra("ps2stream connect atom", "webhook"):
        from ps2stream.connectors.atom_file import AtomOptions, AtomReceiver
        from ps2stream.connectors.sink_loop import SinkLoop, SinkOptions

        style = message_style(session, link, show, cut)
    receiver = AtomReceiver(AtomOptions(file, kind, entries, page_url, self_url), style)
    options = SinkOptions(
        session,
        batch,
        gather_s=interval,
        give_up_s=give_up,
        dead_letters=dead_letters,
        payload=False,
    )
    with (
        run_connector(output, "atom", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        SinkLoop(to, options, receiver, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"session": session, "file": str(file), "server": server},
                f"writing the matches of {session} to {file}",
            ),
        )
