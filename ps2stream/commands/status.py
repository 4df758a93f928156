"""`ps2stream status`."""

from __future__ import annotations

import click

from ps2stream.commands.output import Output, json_option, pass_output, server_option


@click.command()
@server_option
@json_option
@pass_output
def status(output: Output, /, server: str) -> None:
    """Show what a dispatcher of the running service knows.

    Exit code 5 when nothing answers.
    """
    with output.connect(server) as client:
        found = client.status()
    width = max(map(len, found))
    output.emit(found, "\n".join(f"{name:{width}}  {value}" for name, value in found.items()))
