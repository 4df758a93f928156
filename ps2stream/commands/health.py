"""`ps2stream health`."""

from __future__ import annotations

import click

from ps2stream.commands.output import CommandOutput, json_option, pass_output, server_option


@click.command()
@server_option
@json_option
@pass_output
def health(output: CommandOutput, /, server: str) -> None:
    """Check whether a dispatcher serves, as a probe does; this needs no token.

    Exit code 5 when it does not serve, or nothing answers.
    """
    with output.connect(server) as client:
        client.health()
    output.emit({"serves": True}, f"{server} serves")
