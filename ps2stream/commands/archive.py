"""`ps2stream archive`: what the archive of a service has, and its compaction."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ps2stream.commands.loads import format_size, format_table
from ps2stream.commands.output import CommandOutput, FiniteRange, json_option, pass_output
from ps2stream.commands.progress import StepReporter

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


@archive.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--hours",
    type=FiniteRange(min=0, min_open=True),
    help="Hours for which compacted objects are kept, counted from when they were archived.  "
    "[default: all]",
)
@click.option(
    "--bytes",
    "size_bytes",
    type=click.IntRange(min=1),
    help="Bytes of compacted files that are kept; the oldest hours are dropped.  [default: all]",
)
@click.option(
    "--grace",
    "grace_s",
    type=FiniteRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds for which files that no longer count stay for those who read them.",
)
@click.option("--stemmer", help="Snowball language of the stemmer of the term statistics.")
@click.option("--stop-words", help="ISO 639-1 code of the language of their stop words.")
@json_option
@pass_output
def compact(
    output: CommandOutput,
    /,
    path: Path,
    hours: float | None,
    size_bytes: int | None,
    grace_s: float,
    stemmer: str | None,
    stop_words: str | None,
) -> None:
    """Sort the archive PATH by hour and cell, and drop what is too old or too much.

    Spark takes the files that dispatchers have finished, and writes one table of objects, sorted
    by the hour in which they were archived and their cell, and one of terms: how many objects of
    each hour have a word. Those who read the archive meanwhile see each object once, and the
    service may run. Run it regularly, such as once an hour, as the user of the service and with
    `spark-submit` where that is wanted.

    \b
      ps2stream archive compact /var/lib/ps2stream-archive --hours 720
    """
    from contextlib import ExitStack

    from ps2stream.archive.layout import COMPACTED, check_head
    from ps2stream.extras import name_missing_extra
    from ps2stream.language.analyzer import Analysis
    from ps2stream.observability.process import wall_clock_ms
    from ps2stream.store.directory import lock_directory, replace_file

    with name_missing_extra("Compacting an archive"):
        from ps2stream.planner.compaction import CompactionOptions, choose_settings
        from ps2stream.planner.compaction import compact as run
        from ps2stream.planner.spark_session import session

    check_head(path)
    analysis = Analysis(0, stemmer, stop_words)
    options = CompactionOptions(hours, size_bytes, grace_s, analysis)
    with ExitStack() as ending, StepReporter(output) as report:
        ending.enter_context(lock_directory(path / COMPACTED))
        settings = choose_settings(path)
        made = run(
            lambda: ending.enter_context(session("ps2stream archive compact", settings, "")),
            path.absolute(), options, wall_clock_ms(), replace_file, report,
        )  # fmt: skip
    files = made.manifest.files
    output.emit(
        {
            "objects": made.objects,
            "files": made.files,
            "hours": made.hours,
            "dropped": made.dropped,
            "removed": made.removed,
            "generation": made.manifest.generation,
        },
        f"compacted {made.objects:,} objects of {made.files:,} files in {made.hours:,} hours; "
        f"dropped {made.dropped:,} files by retention, removed {made.removed:,} that no longer "
        f"counted; {len(files):,} files, {format_size(sum(f.size_bytes for f in files))}",
    )


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
