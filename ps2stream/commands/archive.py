"""`ps2stream archive`: what the archive of a service has, and its compaction."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ps2stream.commands.loads import format_size, format_table
from ps2stream.commands.output import CommandOutput, json_option, pass_output

if TYPE_CHECKING:
    from ps2stream.archive.layout import ArchiveMark, ArchiveSnapshot


@click.group()
def archive() -> None:
    """Look at the archive of a service, which `serve` writes if archive is set, and compact it.

    Whatever reads files of posts reads an archive, too: give its directory.

    \b
      ps2stream archive show /var/lib/ps2stream-archive
      ps2stream plan --objects /var/lib/ps2stream-archive --queries queries.jsonl
      ps2stream publish /var/lib/ps2stream-archive
    """


@archive.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--files", is_flag=True, help="Print the paths of the files, and nothing else.")
@json_option
@pass_output
def show(output: CommandOutput, /, path: Path, files: bool) -> None:
    """Show what is in the archive PATH, how far it is complete, and what it lacks.

    Complete: everything of the dispatcher that was answered as durable, with an offset below this
    one, is there, has been removed by the archive's bounds, or is in a gap.
    """
    from ps2stream.archive.layout import read_snapshot
    from ps2stream.archive.reading import count_rows

    found = read_snapshot(path)
    if files:
        paths = [str(file) for file in found.files]
        output.emit({"files": paths}, "\n".join(paths))
        return
    facts = _archive_facts(found, count_rows(str(path)))
    output.emit(facts, "\n".join(_format_facts(path, found, facts)))


def _archive_facts(found: ArchiveSnapshot, rows: int) -> dict[str, Any]:
    compacted = found.manifest.files
    return {
        "objects": rows,
        "files": len(found.files),
        "bytes": sum(path.stat().st_size for _, path in found.raw)
        + sum(file.size_bytes for file in compacted),
        "compacted": {
            "generation": found.manifest.generation,
            "objects": sum(file.rows for file in compacted if file.kind == "objects"),
            "terms": sum(file.rows for file in compacted if file.kind == "terms"),
            "files": len(compacted),
            "hours": len({file.hour for file in compacted}),
        },
        "dispatchers": [_mark_facts(mark) for mark in found.marks],
    }


def _mark_facts(mark: ArchiveMark) -> dict[str, Any]:
    return {
        "partition": mark.partition,
        "series": mark.series,
        "offset": mark.offset,
        "lsn": mark.lsn,
        "time_ms": mark.time_ms,
        "archived": mark.objects,
        "lost": mark.lost,
        "gaps": [gap._asdict() for gap in mark.gaps],
    }


def _format_facts(path: Path, found: ArchiveSnapshot, facts: dict[str, Any]) -> list[str]:
    compacted = facts["compacted"]
    lines = [
        (
            f"{path}: {facts['objects']:,} objects in {facts['files']:,} files, "
            f"{format_size(facts['bytes'])}"
        ),
        (
            f"compacted: {compacted['objects']:,} objects of {compacted['hours']:,} hours, "
            f"{compacted['terms']:,} term statistics"
        ),
    ]
    head = ("dispatcher", "complete below", "as of", "archived", "lost", "gaps")
    rows: list[tuple[str, ...]] = []
    for mark in found.marks:
        when = datetime.fromtimestamp(mark.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        series = f" (series {mark.series})" if mark.series else ""
        rows.append(
            (
                str(mark.partition),
                f"offset {mark.offset:,}{series}",
                f"{when} UTC",
                f"{mark.objects:,}",
                f"{mark.lost:,}",
                f"{len(mark.gaps):,}",
            )
        )
    return [*lines, "", *format_table(head, rows)]
