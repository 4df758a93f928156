"""`ps2stream connect slack`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    message_options,
    message_style,
    reach_options,
)
from ps2stream.extras import name_missing_extra


@click.command("slack")
@click.option(
    "--url-file",
    type=FILE,
    required=True,
    metavar="FILE",
    help="File that contains the URL of the incoming webhook, which is a secret.",
)
@message_options(most=10, interval=0.0)
@reach_options
@running_options
@pass_output
def slack(
    output: CommandOutput,
    /,
    server: str,
    session: str,
    url_file: Path,
    batch: int,
    interval: float,
    cut: int,
    show: tuple[str, ...],
    link: str | None,
    give_up: float,
    dead_letters: Path | None,
    receiver_ca: Path | None,
    allow_private: bool,
    public_only: bool,
    **how: Any,
) -> None:
    """Post the matches of a session to a channel of Slack, by an incoming webhook.

    Matches that are there at the same time share a message. Mentions, links with other labels
    and formats in posts stay plain text. A message is sent until Slack has accepted it, as with
    `webhook`; after a crash the last one may come twice.

    \b
      ps2stream connect slack --session alerts --url-file ~/.ps2s-slack \\
        --link 'https://market.example/ads/{object_id}' --show price
    """
    with name_missing_extra("ps2stream connect slack", "webhook"):
        from ps2stream.connectors.message_receiver import MESSAGE_BYTES
        from ps2stream.connectors.sink_loop import SinkLoop, SinkOptions
        from ps2stream.connectors.slack import SlackReceiver, read_url

        target = http_target(
            read_url(url_file), "url_file", receiver_ca, allow_private, public_only
        )
    style = message_style(session, link, show, cut)
    receiver = SlackReceiver(target, style, {})
    options = SinkOptions(
        session, batch, MESSAGE_BYTES, interval, give_up, dead_letters, payload=False
    )
    with (
        run_connector(output, "slack", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        SinkLoop(to, options, receiver, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"session": session, "server": server},
                f"posting the matches of {session} to Slack",
            ),
        )
