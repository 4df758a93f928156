"""`ps2stream apply`: plan changes of a running service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ps2stream.commands.migrations import migration_to_json, migration_to_line
from ps2stream.commands.output import CommandOutput, json_option, pass_output, server_option
from ps2stream.commands.progress import StepReporter
from ps2stream.errors import (
    FailedPrecondition,
    InvalidArgument,
    PlanError,
    Ps2StreamError,
    invalid,
)

if TYPE_CHECKING:
    from ps2stream.client.client import Client

START_S = 120.0
"""Seconds that workers may take to start."""
LOOK_S = 0.1
STATES = {
    "coexisting": "new queries belong to the new plan; the others migrate later",
    "transferring": "workers fetch the queries that they gain",
    "ready": "all queries are transferred",
    "retiring": "objects are routed by the new plan; the last ones of the old plan are in flight",
}
wait_option = click.option(
    "--wait", is_flag=True, help="Report progress, and return when the plan change has ended."
)


@click.command()
@click.argument("file", metavar="[PLAN]", required=False)
@click.option(
    "--coexist",
    is_flag=True,
    help="Keep existing queries on the current plan; new queries belong to PLAN, and the others "
    "follow once few of them are left.",
)
@click.option(
    "--regrid",
    is_flag=True,
    help="PLAN has another grid than the service: keep it in the ledger for the next start.",
)
@click.option(
    "--unite", is_flag=True, help="Migrate what is left on the old one of two coexisting plans now."
)
@click.option(
    "--abort",
    is_flag=True,
    help="Abort the plan change in progress instead; without one, withdraw the plan that --regrid "
    "has kept.",
)
@wait_option
@server_option
@json_option
@pass_output
def apply(
    output: CommandOutput,
    /,
    file: str | None,
    coexist: bool,
    regrid: bool,
    unite: bool,
    abort: bool,
    wait: bool,
    server: str,
) -> None:
    """Change the running service to the plan in the file PLAN.

    Queries migrate to the workers that the plan assigns them to while objects keep flowing; no
    match is lost or duplicated. The plan must be derived from the one in force, on the same
    grid:

    \b
      ps2stream plan current -o now.json
      ps2stream plan --base now.json --objects posts.parquet -o next.json
      ps2stream apply next.json --wait

    With --coexist nothing migrates at once: objects are routed by both plans until at most
    sunset_share of the queries belong to the old plan, or until sunset_hours have passed. Then
    the service migrates the rest by itself.

    A file of migration steps, as `ps2stream plan --migrate` writes it, is taken step by step, each
    when the one before has ended. If the command is interrupted, run it again: it goes on with the
    step that the service has reached. It reports what was moved beside what was predicted.

    With --regrid the plan, whose grid is another one (`ps2stream plan --grid refine`), waits in
    the ledger. The next start of the service replays the ledger under it; no match is lost or
    duplicated. Until then the plan in force serves, and may change.

    Without --wait the command returns when the plan change has begun. With --wait, the exit
    code is 0 when the service has changed to the plan, and 1 when the plan change was aborted.
    Exit code 7: not possible now, because another plan change is in progress, because two plans
    coexist, or because the plan, or each of the steps, is derived from another one.
    """
    if (file is not None) + unite + abort != 1:
        raise invalid("PLAN", "give exactly one of a plan file, --unite and --abort")
    if coexist and file is None:
        raise invalid("--coexist", "needs a plan file; give one, or leave --coexist out")
    if regrid and (file is None or coexist or wait):
        raise invalid("--regrid", "needs a plan file, and neither --coexist nor --wait")
    if abort:
        with output.connect(server) as client:
            lsn, version = client.abort_migration()
        output.emit(
            {"event": "aborted", "plan_version": version, "lsn": lsn},
            f"plan version {version} stays in force",
        )
        return
    if unite:
        begin_plan_change(output, server, wait, lambda client: client.unite_plans())
        return
    assert file is not None
    from ps2stream.commands.apply_steps import apply_steps
    from ps2stream.routing.plan_document import read_document
    from ps2stream.routing.steps_document import is_steps_file

    if is_steps_file(file):
        for name, given in (("--coexist", coexist), ("--regrid", regrid)):
            if given:
                raise invalid(name, "does not go with migration steps; leave it out")
        apply_steps(output, file, server, wait_for_end, START_S)
        return
    body = read_document(file)
    body.pop("made", None)
    plan = json.dumps(body, separators=(",", ":")).encode()

    if regrid:
        _keep_for_start(output, server, plan, file)
        return

    def begin(client: Client) -> tuple[int, int]:
        try:
            return client.apply_plan(plan, coexist=coexist)
        except InvalidArgument as error:
            raise PlanError(f"{error.violations[0].description} (in {file})") from None

    begin_plan_change(output, server, wait, begin, coexist)


def _keep_for_start(output: CommandOutput, server: str, plan: bytes, file: str) -> None:
    with output.connect(server) as client:
        try:
            lsn, version = client.apply_plan(plan, regrid=True)
        except InvalidArgument as error:
            raise PlanError(f"{error.violations[0].description} (in {file})") from None
    output.emit(
        {"event": "pending", "plan_version": version, "lsn": lsn},
        f"plan version {version} waits for the next start of the service, which must not be given "
        "another plan (--plan)",
    )


def begin_plan_change(
    output: CommandOutput,
    server: str,
    wait: bool,
    begin: Callable[[Client], tuple[int, int]],
    coexist: bool = False,
) -> None:
    """Begins a plan change, and waits for its end if wanted."""
    with output.connect(server) as client:
        now = client.migrations().plan_version
    with output.connect(server, START_S) as client:
        lsn, version = begin(client)
        if version == now:
            line = f"plan version {version} is already in force"
            output.emit({"event": "in_force", "plan_version": version}, line)
            return
        line = f"the change to plan version {version} began at LSN {lsn}"
        if coexist:
            line = f"from LSN {lsn} on, new queries belong to plan version {version}"
        event = "coexists" if coexist else "began"
        output.emit({"event": event, "plan_version": version, "lsn": lsn}, line)
        if wait:
            wait_for_end(output, client, version)


def wait_for_end(output: CommandOutput, client: Client, version: int) -> None:
    """Waits until the change to this plan version has ended. Raises FailedPrecondition when
    another plan is in force then, Ps2StreamError when the change was aborted."""
    state = ""
    with StepReporter(output) as report:
        while (found := client.migrations()).following_version == version:
            if found.state != state:
                state = found.state
                report(STATES[state])
                if output.json:
                    output.emit({"event": state, "plan_version": version})
            time.sleep(LOOK_S)
    mine = [change for change in found.migrations if change.to_version == version]
    if mine and mine[-1].outcome == "aborted" and found.plan_version != version:
        raise Ps2StreamError(f"the change to plan version {version} was aborted")
    if found.plan_version != version and not mine:
        raise FailedPrecondition(f"plan version {found.plan_version} is in force")
    if mine:
        output.emit({"event": "done", **migration_to_json(mine[-1])}, migration_to_line(mine[-1]))
    else:
        output.emit({"event": "done", "to_version": version}, f"plan version {version} is in force")
