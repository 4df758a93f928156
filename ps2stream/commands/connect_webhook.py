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
from ps2stream.commands.output import CommandOutput, pass_output
from ps2stream.commands.sink_options import (
    http_target,
    reach_options,
    refusal_options,
    session_option,
)
from ps2stream.extras import name_missing_extra


@click.command("webhook")
@session_option
@click.option(
    "--url",
    required=True,
    help="URL that receives the matches: https, or http on this machine. Redirects are not "
    "followed.",
)
@click.option(
    "--secret-file",
    type=FILE,
    required=True,
    metavar="FILE",
    help="File of signing secrets, one whsec_... per line; a receiver may know any of them.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Largest number of matches in a request body.",
)
@refusal_options
@reach_options
@running_options
@pass_output
def webhook(
    output: CommandOutput,
    /,
    server: str,
    session: str,
    url: str,
    secret_file: Path,
    batch: int,
    give_up: float,
    dead_letters: Path | None,
    receiver_ca: Path | None,
    allow_private: bool,
    public_only: bool,
    **how: Any,
) -> None:
    """Post the matches of a session to a URL, in order and signed.

    Signatures follow Standard Webhooks. A body is posted until it is answered with 2xx. After
    408, 425, 429, 5xx and lost connections it is posted again, with growing pauses or after the
    time that Retry-After gives. Any other answer refuses it; 410 always ends the connector.
    After a crash, matches that were not acknowledged are posted again, usually the last body;
    they keep their seq.

    \b
      ps2stream connect webhook --session alerts --url https://example.org/hook \\
        --secret-file ~/.ps2s-hook
    """
    with name_missing_extra("ps2stream connect webhook", "webhook"):
        from ps2stream.connectors.sink_loop import SinkOptions
        from ps2stream.connectors.webhook import WebhookOptions, WebhookSink

        target = http_target(url, "url", receiver_ca, allow_private, public_only)
    sink = SinkOptions(session, batch, give_up_s=give_up, dead_letters=dead_letters)
    options = WebhookOptions(sink, target, secret_file)
    with (
        run_connector(output, "webhook", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        WebhookSink(to, options, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"session": session, "host": urlsplit(url).hostname, "server": server},
                f"posting the matches of {session} to {urlsplit(url).hostname}",
            ),
        )
