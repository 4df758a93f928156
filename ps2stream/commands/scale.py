"""`ps2stream scale`: another number of workers, mergers or dispatchers of a running service."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from ps2stream.client.targets import ANYWHERE, split_target
from ps2stream.commands.apply import LOOK_S, START_S, begin_plan_change, wait_option
from ps2stream.commands.output import (
    CommandOutput,
    counted,
    json_option,
    pass_output,
    server_option,
)
from ps2stream.commands.progress import StepReporter
from ps2stream.errors import invalid


@click.command()
@click.option("--workers", type=click.IntRange(1, 1024), help="Number of workers after the change.")
@click.option("--mergers", type=click.IntRange(1, 64), help="Number of mergers after the change.")
@click.option(
    "--dispatchers", type=click.IntRange(1, 64), help="Number of dispatchers after the change."
)
@wait_option
@server_option
@json_option
@pass_output
def scale(
    output: CommandOutput,
    /,
    workers: int | None,
    mergers: int | None,
    dispatchers: int | None,
    wait: bool,
    server: str,
) -> None:
    """Change the number of workers, mergers or dispatchers of the running service.

    New workers are started and take over parts from those with the most load, judged by recent
    objects. Workers that are removed hand everything over to the others, and stop when the
    plan change is done. As with `apply`, objects keep flowing.

    New mergers are started and take over sessions, with the numbers, cursors and undelivered
    matches of these. Mergers that are removed hand all sessions over and stop. Open streams stay
    open.

    New dispatchers are started, and take over producers with what they remember of these. The
    status lists where they listen. Dispatchers that are removed, those with the highest numbers,
    refuse calls and end their streams, so that clients go to others, and stop once all that they
    have accepted is complete. What is still valid of it meets no new queries.
    """
    if [workers, mergers, dispatchers].count(None) != 2:
        raise invalid("workers", "give one of --workers, --mergers and --dispatchers")
    if workers is not None:
        number = workers
        begin_plan_change(output, server, wait, lambda client: client.scale(number))
    elif mergers is not None:
        _scale_mergers(output, server, mergers, wait)
    else:
        _scale_dispatchers(output, server, dispatchers or 0, wait)


def _scale_mergers(output: CommandOutput, server: str, mergers: int, wait: bool) -> None:
    with output.connect(server) as client:
        before = client.scale_mergers()
    with output.connect(server, START_S) as client:
        found = client.scale_mergers(mergers)
        if found == before and not found.moving:
            line = f"the sessions already belong to {counted(mergers, 'merger')}"
            output.emit({"event": "in_force", "mergers": mergers}, line)
            return
        line = f"the sessions move to {counted(mergers, 'merger')} since LSN {found.lsn}"
        output.emit({"event": "began", "mergers": mergers, "lsn": found.lsn}, line)
        if not wait:
            return
        with StepReporter(output) as report:
            report("sessions move between mergers")
            while found.moving:
                time.sleep(LOOK_S)
                found = client.scale_mergers()
        line = f"the sessions belong to {counted(found.mergers, 'merger')}"
        output.emit({"event": "done", "mergers": found.mergers, "lsn": found.lsn}, line)


def _scale_dispatchers(output: CommandOutput, server: str, dispatchers: int, wait: bool) -> None:
    with output.connect(server) as client:
        before = client.scale_dispatchers()
    with output.connect(server, START_S) as client:
        found = client.scale_dispatchers(dispatchers)
        if found == before and not found.moving:
            line = f"the number of dispatchers is {dispatchers} already"
            output.emit({"event": "in_force", "dispatchers": dispatchers}, line)
            return
        line = f"the number of dispatchers is {dispatchers} since LSN {found.lsn}"
        output.emit({"event": "began", "dispatchers": dispatchers, "lsn": found.lsn}, line)
        if not wait:
            return
        endpoints = list(client.status()["endpoints"])
    with output.connect(choose_staying(server, endpoints, dispatchers), START_S) as client:
        with StepReporter(output) as report:
            report("producers move, and dispatchers open or close their ports")
            while found.moving or len(client.status()["endpoints"]) != found.dispatchers:
                time.sleep(LOOK_S)
                found = client.scale_dispatchers()
        endpoints = list(client.status()["endpoints"])
        line = f"the dispatchers listen at {', '.join(endpoints)}"
        done = {"event": "done", "dispatchers": found.dispatchers, "lsn": found.lsn}
        output.emit(done | {"endpoints": endpoints}, line)


def choose_staying(server: str, endpoints: Sequence[str], staying: int) -> str:
    """Returns those of the addresses HOST:PORT,... that are not of a dispatcher that leaves, which
    answers no more; if there are no others, those of the dispatchers that stay. endpoints: of all
    dispatchers, by their numbers. A host may have other names than an endpoint has, so the ports
    tell, if each is of one dispatcher."""
    ports = [endpoint.rpartition(":")[2] for endpoint in endpoints]
    given = split_target(server)
    if len(set(ports)) == len(ports):
        kept = [each for each in given if each.rpartition(":")[2] not in ports[staying:]]
    else:
        kept = [each for each in given if each not in endpoints[staying:]]
    host = given[0].rpartition(":")[0]
    return ",".join(
        kept
        or [
            f"{host}:{port}" if endpoint.rpartition(":")[0] in ANYWHERE else endpoint
            for endpoint, port in zip(endpoints[:staying], ports, strict=False)
        ]
    )
