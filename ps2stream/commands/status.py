"""`ps2stream status`."""

from __future__ import annotations

import click

from ps2stream.commands.loads import loads_shown
from ps2stream.commands.migrations import coexistence
from ps2stream.commands.output import Output, json_option, pass_output, server_option


@click.command()
@click.option("--load", is_flag=True, help="What the workers have to do, and where most of it is.")
@server_option
@json_option
@pass_output
def status(output: Output, /, server: str, load: bool) -> None:
    """Show what a dispatcher of the running service knows.

    With --load: the work of each worker in a period (load_period_s), by counts that are
    smoothed over periods and the costs of `ps2stream calibrate`; the balance, the most loaded
    worker's work over the least loaded one's; and the parts of cells with the most work.

    While two plans coexist, it says since when, and which queries are still the old one's.

    Exit code 5 when nothing answers.
    """
    if load:
        with output.connect(server) as client:
            told = client.load()
        output.emit(told, loads_shown(told))
        return
    with output.connect(server) as client:
        found = client.status()
        plans = client.moves()
    found |= coexistence(plans)
    width = max(map(len, found))
    shown = found | {"endpoints": ", ".join(found["endpoints"])}
    output.emit(found, "\n".join(f"{name:{width}}  {value}" for name, value in shown.items()))
