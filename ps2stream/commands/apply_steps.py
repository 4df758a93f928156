"""`ps2stream apply` of a file of migration steps: one plan change after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ps2stream.commands.loads import format_size
from ps2stream.errors import FailedPrecondition, InvalidArgument, PlanError
from ps2stream.routing.steps_document import find_reached_step, read_steps

if TYPE_CHECKING:
    from ps2stream.client.client import Client
    from ps2stream.commands.output import CommandOutput

Wait = Callable[["CommandOutput", "Client", int], None]


def apply_steps(output: CommandOutput, file: str, server: str, wait: Wait, start_s: float) -> None:
    """Takes the steps of a file that the running service has not behind it, each when the one
    before has ended. wait: waits until the change to a plan version has ended; start_s: seconds
    that workers may take to start. Raises FailedPrecondition if the service runs a plan that is
    none of these steps'."""
    run_steps(output, read_steps(file), file, server, wait, start_s)


def run_steps(
    output: CommandOutput, migration: dict[str, Any], name: str, server: str, wait: Wait,
    start_s: float,
) -> None:  # fmt: skip
    """Does so with steps as `read_steps` returns them; name: of the file, for errors."""
    steps = migration["steps"]
    first, last = migration["base_version"], steps[-1]["plan"]["version"]
    with output.connect(server, start_s) as client:
        found = client.migrations()
        if first < found.following_version <= last and not found.coexisting_lsn:
            wait(output, client, found.following_version)
        reached = find_reached_step(migration, running := json.loads(client.plan()))
        if reached is None:
            raise FailedPrecondition(
                f"the plan in force, version {running['version']}, is none of the steps in {name}, "
                f"which lead from version {first} to {last}; make the steps anew with `ps2stream "
                "plan --from-service ADDRESS --migrate`"
            )
        if reached:
            line = f"{reached} of {len(steps)} steps are taken already"
            output.emit({"event": "resumed", "steps": reached, "of": len(steps)}, line)
        for number, step in enumerate(steps[reached:], reached + 1):
            _take_step(output, client, step, number, len(steps), name, wait)
        _report_total(output, client, migration, reached)


def _take_step(
    output: CommandOutput, client: Client, step: dict[str, Any], number: int, of: int, name: str,
    wait: Wait,
) -> None:  # fmt: skip
    body = {key: value for key, value in step["plan"].items() if key != "made"}
    try:
        lsn, version = client.apply_plan(json.dumps(body, separators=(",", ":")).encode())
    except InvalidArgument as error:
        raise PlanError(f"{error.violations[0].description} (step {number} of {name})") from None
    predicted = {"predicted_queries": step["queries"], "predicted_bytes": step["bytes"]}
    output.emit(
        {"event": "began", "step": number, "of": of, "plan_version": version, "lsn": lsn,
         **predicted},
        f"step {number} of {of}: the change to plan version {version} began at LSN {lsn}; "
        f"{step['queries']:,} queries, {format_size(step['bytes'])} are to move",
    )  # fmt: skip
    wait(output, client, version)


def _report_total(
    output: CommandOutput, client: Client, migration: dict[str, Any], reached: int
) -> None:
    """Reports what was moved beside what was predicted."""
    steps, planned = migration["steps"], 0
    moved = queries = 0
    predicted = {step["plan"]["version"]: step["bytes"] for step in steps[reached:]}
    for change in client.migrations().migrations:
        is_step = change.to_version in predicted and change.from_version == change.to_version - 1
        if is_step and change.outcome == "done" and change.bytes is not None:
            planned += predicted.pop(change.to_version)
            moved, queries = moved + change.bytes, queries + (change.queries or 0)
    version, taken = steps[-1]["plan"]["version"], len(steps) - reached
    more = moved - planned
    output.emit(
        {"event": "migrated", "plan_version": version, "steps": taken, "queries": queries,
         "bytes": moved, "predicted_bytes": planned, "difference_bytes": more},
        f"plan version {version} is in force after {taken:,} steps: {format_size(moved)} moved, "
        + (f"{more:+,} bytes compared with the plan, by queries that came, changed or went"
           if more else "exactly as planned"),
    )  # fmt: skip
