"""`ps2stream connect ntfy`."""

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
    message_options,
    message_style,
    reach_options,
)
from ps2stream.extras import name_missing_extra


@click.command("ntfy")
@click.option(
    "--url",
    required=True,
    help="URL of the ntfy server, without the topic: https, or http on this machine.",
)
@click.option(
    "--topic",
    required=True,
    help="Topic that receives the notifications. On a server without access control, whoever "
    "knows it can read them.",
)
@click.option(
    "--ntfy-token-file",
    type=FILE,
    metavar="FILE",
    help="File that contains an access token of the ntfy server.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Tag or name of an emoji, such as house; may be given repeatedly.",
)
@click.option(
    "--priority",
    type=click.IntRange(1, 5),
    default=3,
    show_default=True,
    help="Priority of the notifications, 5 being the highest.",
)
@message_options(most=10, interval=0.0)
@reach_options
@running_options
@pass_output
def ntfy(
    output: CommandOutput,
    /,
    server: str,
    session: str,
    url: str,
    topic: str,
    ntfy_token_file: Path | None,
    tags: tuple[str, ...],
    priority: int,
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
    """Send the matches of a session to phones, as notifications of ntfy.

    Matches that are there at the same time share a notification; a tap on that of a single
    match opens its --link. A notification is sent until the server has accepted it, as with
    `webhook`. After a crash the last one is sent again, which replaces it on servers from
    version 2.16 on.

    \b
      ps2stream connect ntfy --session alerts --url https://ntfy.example.org \\
        --topic flats-4hJ2 --tag house --show price
    """
    with name_missing_extra("ps2stream connect ntfy", "webhook"):
        from ps2stream.connectors.message_receiver import MESSAGE_BYTES
        from ps2stream.connectors.ntfy import NtfyReceiver, NtfyTopic, read_token
        from ps2stream.connectors.sink_loop import SinkLoop, SinkOptions

        target = http_target(url, "url", receiver_ca, allow_private, public_only)
    token = read_token(ntfy_token_file, "ntfy_token_file")
    style = message_style(session, link, show, cut)
    receiver = NtfyReceiver(target, style, NtfyTopic(topic, tags, priority, token))
    options = SinkOptions(
        session, batch, MESSAGE_BYTES, interval, give_up, dead_letters, payload=False
    )
    host = urlsplit(url).hostname
    with (
        run_connector(output, "ntfy", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        SinkLoop(to, options, receiver, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"session": session, "host": host, "server": server},
                f"sending the matches of {session} to {host}",
            ),
        )
