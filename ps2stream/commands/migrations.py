"""`ps2stream migrations`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ps2stream.commands.loads import format_size, format_table
from ps2stream.commands.output import CommandOutput, json_option, pass_output, server_option

if TYPE_CHECKING:
    from ps2stream.client.answers import MigrationHistory, MigrationInfo


@click.command()
@server_option
@json_option
@pass_output
def migrations(output: CommandOutput, /, server: str) -> None:
    """List the plan changes that ended, oldest first, and the one in progress.

    Transferred: the queries that workers fetched, and the bytes of their columns. Delayed:
    objects whose matches took more than 0.1 s to be durable, counted in steps of 0.1 s.
    Collapsed: matches that both the old and the new owner found, of which mergers make one.
    Missing: postings that their owner lacked at the end, so that matches would be missed.
    Surplus: postings that a worker held beyond its own, so that matches would be found twice.
    What was not measured is left out.
    """
    with output.connect(server) as client:
        found = client.migrations()
    for change in found.migrations:
        output.emit(migration_to_json(change))
    for line in (
        migration_table_lines(found.migrations)
        if found.migrations
        else ["no plan change has ended yet"]
    ):
        output.print_line(line)
    if found.pending_version:
        output.emit(
            {"outcome": None, "state": "pending", "to_version": found.pending_version},
            f"waits for the next start: plan {found.pending_version}, with another grid",
        )
    if found.following_version:
        line = f"under way: plan {found.plan_version} -> {found.following_version}, {found.state}, "
        output.emit(
            {
                "from_version": found.plan_version,
                "to_version": found.following_version,
                "outcome": None,
                "state": found.state,
                "began_lsn": found.began_lsn,
                "switched_lsn": found.switched_lsn,
                **coexistence_fields(found),
            },
            line + (coexistence_line(found) or f"LSN {found.began_lsn} to ..."),
        )


def coexistence_fields(found: MigrationHistory) -> dict[str, Any]:
    """Returns the JSON fields of two plans that coexist; empty where none do."""
    if not found.following_version or not found.coexisting_lsn:
        return {}
    return {
        "following_version": found.following_version,
        "coexisting_lsn": found.coexisting_lsn,
        "coexisting_ms": found.coexisting_ms,
        "live_queries": found.live_queries,
        "old_queries": found.old_queries,
        "old_share": found.old_share,
    }


def coexistence_line(found: MigrationHistory) -> str:
    """Formats two plans that coexist for people; empty where none do."""
    if not coexistence_fields(found):
        return ""
    when = "" if found.coexisting_ms is None else f", {_format_time(found.coexisting_ms)}"
    return (
        f"both since LSN {found.coexisting_lsn}{when}; of {found.live_queries:,} queries "
        f"{found.old_queries:,} ({found.old_share:.1%}) belong to the old plan"
    )


def _format_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def migration_to_json(change: MigrationInfo) -> dict[str, Any]:
    """Returns the JSON fields of a plan change that are known, with its durations in seconds."""
    fields = {
        name: value for name, value in dataclasses.asdict(change).items() if value is not None
    }
    spans = {"seconds": ("began_ms", "ended_ms"), "transfer_seconds": ("began_ms", "switched_ms")}
    took = {
        name: (fields[last] - fields[first]) / 1000
        for name, (first, last) in spans.items()
        if first in fields and last in fields
    }
    return fields | took


def migration_to_line(change: MigrationInfo) -> str:
    """Formats a plan change for people, on one line."""
    fields = migration_to_json(change)
    parts = [
        f"{change.from_version} -> {change.to_version}  {change.outcome}",
        f"LSN {change.began_lsn} to {change.ended_lsn}",
    ]
    if "began_ms" in fields:
        parts.append(_format_time(fields["began_ms"]))
    if "seconds" in fields:
        parts.append(f"{fields['seconds']:.1f} s")
    if "queries" in fields:
        parts.append(f"transferred {fields['queries']:,} queries, {fields['bytes'] / 1e6:.1f} MB")
    if "objects" in fields:
        parts.append(
            f"of {fields['objects']:,} objects {fields['delayed']:,} delayed, "
            f"{fields['stalled']:,} over 1 s; {fields['collapsed']:,} matches collapsed"
        )
    if "missing" in fields:
        parts.append(f"missing {fields['missing']:,}, surplus {fields['surplus']:,} postings")
    return "  ".join(parts)


COLUMNS = ("plans", "outcome", "began", "took", "transferred", "objects", "delayed", ">1 s",
           "collapsed", "missing", "surplus")  # fmt: skip


def migration_table_lines(ended: Sequence[MigrationInfo]) -> list[str]:
    """Formats plan changes as a table for people; a hyphen stands for what was not measured."""
    return format_table(
        COLUMNS, [_table_cells(migration_to_json(change)) for change in ended], left=2
    )


def _table_cells(fields: dict[str, Any]) -> list[str]:
    def count(name: str) -> str:
        return f"{fields[name]:,}" if name in fields else "-"

    transferred = (
        f"{fields['queries']:,} q, {format_size(fields['bytes'])}" if "queries" in fields else "-"
    )
    return [
        f"{fields['from_version']} -> {fields['to_version']}",
        fields["outcome"],
        _format_time(fields["began_ms"]) if "began_ms" in fields else f"LSN {fields['began_lsn']}",
        f"{fields['seconds']:.1f} s" if "seconds" in fields else "-",
        transferred,
        *map(count, ("objects", "delayed", "stalled", "collapsed", "missing", "surplus")),
    ]
