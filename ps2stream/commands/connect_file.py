"""`ps2stream connect file-source`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ps2stream.commands.connecting import (
    FILE,
    exclusion_error,
    run_connector,
    running_options,
    source_options,
)
from ps2stream.commands.output import CommandOutput, FiniteRange, pass_output
from ps2stream.errors import invalid
from ps2stream.extras import name_missing_extra

FILE_SOURCE = ("taken", "done", "bad", "retries")
"""The counts of the source."""
KINDS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".log": "jsonl"}


@click.command("file-source")
@click.argument("file", type=FILE)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonl", "csv"]),
    help="Format of the file; by default what its name ends in.",
)
@click.option("--follow", is_flag=True, help="Wait for more at the end of the file.")
@click.option(
    "--every",
    type=FiniteRange(min=0.01, max=3600),
    default=0.5,
    show_default=True,
    help="Seconds between two looks at the end of the file.",
)
@click.option(
    "--state",
    type=FILE,
    metavar="FILE",
    help="File that keeps the place up to which all is published, so that a restart goes on "
    "there. Without it, each start publishes the whole file.",
)
@source_options
@click.option(
    "--dead-letters",
    type=FILE,
    metavar="FILE",
    help="File to which lines that are not posts are appended.",
)
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Count lines that are not posts, and skip them. Without this option and --dead-letters, "
    "the first such line stops the connector.",
)
@running_options
@pass_output
def file_source(
    output: CommandOutput,
    /,
    server: str,
    file: Path,
    kind: Any,
    follow: bool,
    every: float,
    state: Path | None,
    fields: str,
    attributes: str | None,
    time_unit: Any,
    dead_letters: Path | None,
    skip_bad: bool,
    **how: Any,
) -> None:
    """Publish the lines of a growing file: JSON lines, or CSV with a header.

    With --follow, the connector waits for more, and goes on in the new file when FILE is renamed
    or truncated. A line is published once its end is written. Without --follow, it ends with
    code 0 at the end of the file.

    \b
      ps2stream connect file-source posts.jsonl --follow --state posts.state
    """
    with name_missing_extra("ps2stream connect file-source", "feeds"):
        from ps2stream.connectors.file_source import FileOptions, FileSource
        from ps2stream.connectors.mapping import RecordFields
        from ps2stream.posts.members import AttributeChoice

    if dead_letters is not None and skip_bad:
        raise exclusion_error("--dead-letters", "--skip-bad")
    found: Any = kind or KINDS.get(file.suffix.lower())
    if found is None:
        raise invalid("file", f"the format of {file} is unknown; give --format jsonl or csv")
    records = RecordFields(fields, time_unit, AttributeChoice(attributes))
    bad: Any = "file" if dead_letters else "skip" if skip_bad else "stop"
    options = FileOptions(file, found, follow, every, state, bad, dead_letters)
    with (
        run_connector(output, "file-source", FILE_SOURCE, how) as run,
        output.connect(server) as to,
    ):
        FileSource(to, records, options, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"file": str(file), "follow": follow, "server": server},
                f"publishing {file} to {server}",
            ),
        )
