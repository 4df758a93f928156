"""`ps2stream rebalance`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ps2stream.commands.loads import format_adjustment
from ps2stream.commands.output import CommandOutput, json_option, pass_output, server_option
from ps2stream.errors import Ps2StreamError

if TYPE_CHECKING:
    from ps2stream.client.client import Client

# The names of planner/adjust/algorithms.py, repeated here so that --help need not import its
# libraries.
ALGORITHMS = ("gr", "gr+", "dp", "si", "ra")
POLL_S = 0.2


@click.command()
@click.option("--dry-run", is_flag=True, help="Print what would migrate, and change nothing.")
@click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    default="gr+",
    show_default=True,
    help="Algorithm that selects the parts: gr, the paper's greedy choice; gr+, near the optimum "
    "where gr is not; dp, the optimum; si, the largest; ra, random ones.",
)
@click.option("--wait", is_flag=True, help="Return when the migration has ended.")
@server_option
@json_option
@pass_output
def rebalance(
    output: CommandOutput, /, server: str, dry_run: bool, algorithm: str, wait: bool
) -> None:  # fmt: skip
    """Migrate parts of cells from the most loaded workers to the least loaded.

    The loads are those of the last periods, which `status --load` shows. As few bytes as
    possible migrate, while objects keep flowing; no match is lost or duplicated. Prints the
    migrations, their bytes and the balance that they are expected to bring.

    \b
      ps2stream rebalance --dry-run
      ps2stream rebalance --wait

    Exit code 7: not possible now, because another plan change is in progress or because no
    complete load period has passed yet. Exit code 1, with --wait: the migration was aborted.
    """
    with output.connect(server) as client:
        answer = client.rebalance(algorithm, dry_run=dry_run)
        output.emit({"event": "migrations", **answer}, format_adjustment(answer))
        if version := answer["plan_version"]:
            output.print_line(f"the migration to plan version {version} has begun")
            if wait:
                _wait_for_end(client, version)
                output.emit({"event": "done", "plan_version": version}, "done")


def _wait_for_end(client: Client, version: int) -> None:
    """Waits until the migration to this plan version has ended. Raises Ps2StreamError when it was
    aborted."""
    while (found := client.load())["following_version"] == version:
        time.sleep(POLL_S)
    if found["plan_version"] < version:
        raise Ps2StreamError(f"the migration to plan version {version} was aborted")
