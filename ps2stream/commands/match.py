"""`ps2stream match`: files of objects matched against a file of queries, without a service."""

from __future__ import annotations

import json
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from ps2stream.commands.output import CommandOutput, guard_output_file, json_option, pass_output
from ps2stream.commands.publish import attributes_option
from ps2stream.errors import invalid
from ps2stream.foldings import FOLDINGS

if TYPE_CHECKING:
    import pyarrow as pa

    from ps2stream.inprocess.match_table import MatchTable

FORMATS = (".parquet", ".jsonl", ".csv")
NAMED = 5
"""Columns that an error names."""


class MatchWriter(Protocol):
    """Writes matches to a file that is open until `close`."""

    def write(self, matches: MatchTable) -> None: ...

    def close(self) -> None: ...


@click.command()
@click.option(
    "--queries",
    metavar="FILE",
    required=True,
    help="File of queries: Parquet, JSON Lines or CSV with id, expression, and region or lon_min, "
    "lat_min, lon_max and lat_max; `list --json` prints one.",
)
@click.option(
    "--objects",
    metavar="FILE",
    multiple=True,
    required=True,
    help="File of objects, as `publish` reads them, or the folder of an archive; may be given "
    "repeatedly.",
)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    default="matches.parquet",
    show_default=True,
    help=f"File of matches to write; its suffix says how: {', '.join(FORMATS)}.",
)
@attributes_option
@click.option("--stemmer", help="Snowball language of the stemmer.")
@click.option("--stop-words", help="ISO 639-1 code of the stop words' language.")
@click.option(
    "--fold",
    type=click.Choice(FOLDINGS),
    multiple=True,
    help="What is folded besides letter case; may be repeated.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Number of processes that match.  [default: as many as cores, for many objects]",
)
@json_option
@pass_output
def match(
    output: CommandOutput,
    /,
    queries: str,
    objects: tuple[str, ...],
    path: str,
    attributes: str | None,
    **options: Any,
) -> None:
    """Match files of objects against a file of queries, in this process.

    It needs no service. What matches is what would match there: `query` and `object` are rows of
    the files, from 0; query_id and object_id their ids; and every other column is one of the
    object. Files of objects may be larger than memory.

    \b
      ps2stream match --queries queries.jsonl --objects posts.parquet -o matches.parquet
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from ps2stream.inprocess.matching import match_batches
    from ps2stream.posts.readers import row_count

    if Path(path).suffix not in FORMATS:
        raise invalid("--output", f"expected a name that ends in {', '.join(FORMATS)}, got {path}")
    counts = [row_count(name) for name in objects]
    total = None if None in counts else sum(count or 0 for count in counts)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=output.progress_console(),
    )  # fmt: skip
    done = found = 0
    began = time.monotonic()
    beside = f"{path}.part"
    with guard_output_file(path), bar:
        task = bar.add_task("starting", total=total)
        batches = match_batches(
            queries, list(objects), attributes=attributes, **options,
            progress=lambda what: bar.update(task, description=what),
        )  # fmt: skip
        writer = None
        try:
            for matches, rows in batches:
                writer = writer or open_writer(beside, Path(path).suffix, matches.table.schema)
                writer.write(matches)
                done, found = done + rows, found + len(matches)
                bar.update(task, completed=done, description="matching")
            if writer is not None:
                writer.close()
                Path(beside).replace(path)  # a file of this name is whole
        finally:
            Path(beside).unlink(missing_ok=True)
    seconds = time.monotonic() - began
    output.emit(
        {"objects": done, "matches": found, "seconds": round(seconds, 3), "output": path},
        f"matched {done:,} objects in {seconds:.1f} s: {found:,} matches in {path}",
    )


def open_writer(path: str, suffix: str, schema: pa.Schema) -> MatchWriter:
    """Opens a file of matches by the suffix of its name."""
    if suffix == ".jsonl":
        return LineWriter(path)
    import pyarrow.csv
    import pyarrow.parquet

    if suffix == ".csv":
        return TableWriter(pyarrow.csv.CSVWriter(path, schema), schema)
    return TableWriter(pyarrow.parquet.ParquetWriter(path, schema, compression="zstd"), schema)


class TableWriter:
    """Writes matches that all have the same columns."""

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self._writer, self._schema = writer, schema

    def write(self, matches: MatchTable) -> None:
        """Writes matches. Raises InvalidArgument if they have other columns than the first, or
        values that these cannot hold."""
        table = matches.table
        if table.schema.names != self._schema.names:
            others = sorted({*table.schema.names} ^ {*self._schema.names})
            more = f" and {len(others) - NAMED:,} more" if len(others) > NAMED else ""
            problem = (
                f"some objects lack {', '.join(others[:NAMED])}{more}, which others have: write "
                ".jsonl, or choose with --attributes"
            )
            raise invalid("--output", problem)
        columns = [self._fit_column(field, table[field.name]) for field in self._schema]
        self._writer.write_table(table.from_arrays(columns, schema=self._schema))

    def _fit_column(self, field: pa.Field[Any], column: Any) -> Any:
        """Returns a column as one of the type that the first ones had. Raises InvalidArgument where
        its values would be others: 2.5 among whole numbers, "5" among numbers."""
        import pyarrow as pa

        try:
            if column.null_count == len(column):
                return pa.nulls(len(column), field.type)
            if column.type == field.type or _is_held(column.type, field.type):
                return column.cast(field.type)
        except pa.ArrowInvalid:
            pass
        problem = (
            f"{field.name} is {field.type} in some objects and {column.type} in others: write "
            ".jsonl, or leave it out with --attributes"
        )
        raise invalid("--output", problem)

    def close(self) -> None:
        self._writer.close()


def _is_held(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether a column of one type holds values of another as they are, but for those that
    a safe cast refuses."""
    from pyarrow import types

    if types.is_floating(wanted):
        is_narrower = types.is_floating(found) and found.bit_width <= wanted.bit_width
        return bool(is_narrower or types.is_integer(found))
    texts = types.is_string, types.is_large_string
    payloads = types.is_binary, types.is_large_binary
    return any(
        all(any(is_kind(each) for is_kind in alike) for each in (found, wanted))
        for alike in ((types.is_integer,), (types.is_timestamp,), texts, payloads)
    )


class LineWriter:
    """Writes a JSON object a match."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115

    def write(self, matches: MatchTable) -> None:
        """Writes matches; what an object lacks is left out."""
        for record in chain.from_iterable(part.to_pylist() for part in matches.list_batches()):
            values = {name: value for name, value in record.items() if value is not None}
            self._file.write(json.dumps(values, ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        self._file.close()
