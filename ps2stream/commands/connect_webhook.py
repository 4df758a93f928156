"""`ps2stream connect webhook`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from ps2stream.commands.connecting import (
    FILE,
    SINK,
    connect_patiently,
    run_connector,
    running_options,
)
from ps2stream.commands.output import Finite, Output, pass_output


@click.command("webhook")
@click.option("--session", default="default", show_default=True, help="Whose matches to post.")
@click.option(
    "--url", required=True, help="Where to; https, but on this machine. Redirects are not followed."
)
@click.option(
    "--secret-file",
    type=FILE,
    required=True,
    metavar="FILE",
    help="Secrets that sign, whsec_... a line; with several, receivers may have any.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Matches in a body, at most.",
)
@click.option(
    "--give-up",
    type=Finite(min=0),
    default=0.0,
    show_default=True,
    help="Seconds after which a body that was not taken counts as refused; 0: never.",
)
@click.option(
    "--dead-letters",
    type=FILE,
    metavar="FILE",
    help="Append refused bodies here and go on; without it, the first one ends the connector.",
)
@click.option("--receiver-ca", type=FILE, metavar="FILE", help="CA of the receiver in PEM.")
@running_options
@pass_output
def webhook(
    output: Output,
    /,
    server: str,
    session: str,
    url: str,
    secret_file: Path,
    batch: int,
    give_up: float,
    dead_letters: Path | None,
    receiver_ca: Path | None,
    **how: Any,
) -> None:
    """Post the matches of a session to a URL, in order, signed after Standard Webhooks.

    A body is posted until it is answered with 2xx: after 408, 425, 429, 5xx and lost
    connections again, with growing pauses, or after what Retry-After says. Other answers
    refuse it; 410 always ends the connector. After a crash what was not acknowledged comes
    again, mostly the last body; matches keep their seq.

    \b
      ps2stream connect webhook --session alerts --url https://example.org/hook \\
        --secret-file ~/.ps2s-hook
    """
    from ps2stream.connectors.webhook import Options, Webhook

    options = Options(session, url, secret_file, batch, give_up, dead_letters, receiver_ca)
    with (
        run_connector(output, "webhook", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        Webhook(to, options, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"session": session, "host": urlsplit(url).hostname, "server": server},
                f"posting the matches of {session} to {urlsplit(url).hostname}",
            ),
        )
