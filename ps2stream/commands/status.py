"""`ps2stream status`."""

from __future__ import annotations

from typing import Any

import click

from ps2stream.commands.loads import format_loads, format_size, format_table
from ps2stream.commands.migrations import coexistence_fields, coexistence_line
from ps2stream.commands.output import (
    CommandOutput,
    counted,
    json_option,
    pass_output,
    printable,
    server_option,
)
from ps2stream.observability.metrics import METRICS

SHOWN = {
    "version", "plan_version", "dispatcher", "live_queries", "streams", "in_flight", "endpoints",
    "healthy", "problems", "census",
}  # fmt: skip
"""The fields of the answer that are not counters."""
OTHER_COUNTERS = {
    "deletes": ("", "Deletes that this dispatcher applied"),
    "inserts": ("", "Inserts that this dispatcher applied"),
    "shed_objects": ("", "Objects of level NONE that were dropped while the service was full"),
}
"""The unit and meaning of counters that are not metrics of a dispatcher."""


@click.command()
@click.option(
    "--load", is_flag=True, help="Show the load of the workers, and the parts with the most load."
)
@click.option(
    "--verbose", is_flag=True, help="Show every counter of the dispatcher, with its meaning."
)
@server_option
@json_option
@pass_output
def status(output: CommandOutput, /, server: str, load: bool, verbose: bool) -> None:
    """Show whether the running service is healthy, and if not, why.

    Shows rates, the backlog of sessions, the disk, the archive if there is one, and every actor
    with its age, the number of times it was replaced, CPU and memory. The numbers are at most a few
    seconds old; the service's own process collects them. --verbose adds the counters of the
    dispatcher that answers, each with its unit and meaning; --json always includes them.

    --load shows the load of each worker in a period (load_period_s), computed from counts that
    are smoothed over periods and the costs of `ps2stream calibrate`; the balance, which is the
    load of the most loaded worker over that of the least loaded one; the parts of cells with the
    most load; and the hot units that several workers own together, with the share of the last
    objects that met each.

    While two plans coexist, the output says since when, and how many queries still belong to the
    old one.

    Exit code 5 when nothing answers.
    """
    if load:
        with output.connect(server) as client:
            answer = client.load()
        output.emit(answer, format_loads(answer))
        return
    with output.connect(server) as client:
        found = client.status()
        plans = client.migrations()
    lines = status_lines(found, coexistence_line(plans))
    if verbose:
        lines += ["", *counter_lines(found)]
    output.emit(found | coexistence_fields(plans), "\n".join(map(printable, lines)))


def status_lines(found: dict[str, Any], coexisting: str = "") -> list[str]:
    """Formats the answer of Client.status for people; `coexisting` describes two plans that
    coexist."""
    lines = ["healthy" if found["healthy"] else "NOT healthy"]
    lines += [f"  - {problem}" for problem in found["problems"]]
    streams = f"{found['streams']:,} streams at dispatcher {found['dispatcher']}"
    rows = {
        "version": found["version"],
        "plan": found["plan_version"] + (f"; {coexisting}" if coexisting else ""),
        "queries": f"{found['live_queries']:,} live",
        "clients": streams,
        "endpoints": ", ".join(found["endpoints"]),
    }
    census = found["census"]
    if census is not None:
        rows |= census_rows(census)
    width = max(map(len, rows))
    lines += [f"{name:{width}}  {value}" for name, value in rows.items()]
    if census is None:
        return [*lines, "", "the actors have not been counted yet"]
    return [*lines, "", *actor_lines(census["actors"])]


def census_rows(census: dict[str, Any]) -> dict[str, str]:
    """Formats the rates, backlog and disk of the whole service."""
    rates = (
        f"{census['objects_per_second']:,.0f} objects/s, "
        f"{census['matches_per_second']:,.0f} matches/s, "
        f"{census['updates_per_second']:,.0f} inserts and deletes/s"
    )
    sessions = f"{census['sessions']:,}"
    if census["backlog_matches"]:
        sessions += (
            f"; {counted(census['backlog_matches'], 'match', 'matches')} not acknowledged, "
            f"{census['largest_backlog_matches']:,} of them of one session, "
            f"{format_size(census['backlog_bytes'])}"
        )
        if census["backlog_age_s"] >= 1:
            sessions += f", the oldest found {format_duration(census['backlog_age_s'])} ago"
    rows = {"rates": rates, "sessions": sessions}
    if census["replicated_units"] or census["hot_changes"]:
        rows["hot units"] = (
            f"{census['replicated_units'] - census['sharded_units']:,} replicated, "
            f"{census['sharded_units']:,} sharded (status --load lists them), "
            f"{census['hot_changes']:,} plan changes for them; copies of objects, most over mean: "
            f"{census['hot_balance']:.2f}"
        )
    if census["disk_bytes"]:
        free, total = census["disk_free_bytes"], census["disk_bytes"]
        rows["disk"] = f"{free / 1e9:,.1f} of {total / 1e9:,.1f} GB free"
    # A service of an earlier version does not tell these.
    if not census["disk_bytes"] and (single_copy := census.get("single_copy")):
        rows["single copy"] = single_copy
    if (archive := census.get("archive")) is not None:
        rows["archive"] = archive_row(archive)
    return rows


def archive_row(archive: dict[str, Any]) -> str:
    """Formats the state of the archive, over all dispatchers."""
    row = (
        f"{archive['objects']:,} objects, {format_size(archive['bytes'])} not compacted, "
        f"{format_size(archive['lag_bytes'])} of the logs not in it yet"
    )
    if archive["lost_objects"]:
        row += f"; {archive['lost_objects']:,} objects lost to it (archive show tells the gaps)"
    return row


def actor_lines(actors: list[dict[str, Any]]) -> list[str]:
    """Formats the actors as a table."""
    head = ("actor", "age", "restarts", "cpu", "memory")
    rows = [
        (
            f"{actor['role']}-{actor['index']}",
            format_duration(actor["age_s"]),
            str(actor["restarts"]),
            f"{actor['cpu']:.0%}" if actor["resident_bytes"] else "-",
            f"{actor['resident_bytes'] / 2**20:,.0f} MiB" if actor["resident_bytes"] else "-",
        )
        for actor in actors
    ]
    return format_table(head, rows, left=1)


def counter_lines(found: dict[str, Any]) -> list[str]:
    """Formats every counter with its unit and its meaning, which the table of metrics gives."""
    meanings = dict(OTHER_COUNTERS)
    for metric in METRICS:
        for source in metric.sources:
            if source.role in ("", "dispatcher"):
                labels = ", ".join(source.labels.values())
                meaning = metric.help + (f" ({labels})" if labels else "")
                meanings[source.key] = (metric.unit, meaning)
    rows = [
        (name, f"{value:,}", *meanings.get(name, ("", "")))
        for name, value in sorted(found.items())
        if name not in SHOWN
    ]
    width = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    return [
        f"{name:{width[0]}}  {value:>{width[1]}}  {unit:{width[2]}}  {meaning}".rstrip()
        for name, value, unit, meaning in rows
    ]


def format_duration(seconds: float) -> str:
    """Formats a length of time in its largest whole unit."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
