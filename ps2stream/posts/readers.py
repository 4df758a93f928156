"""Posts and queries from files: JSON lines, CSV, Parquet, or standard input (`-`).

Posts are returned as Arrow record batches with the columns of `SCHEMA`, checked, so that a bad
value is reported with its file and line before anything of its batch is published. Accepted
names: lat | latitude, lon | lng | longitude, time | ts | timestamp, text, id. Only lat, lon and
text are required; an absent id is made of the number of the row, from 0.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.errors import short
from ps2stream.limits import BATCH_ROWS
from ps2stream.posts.arrow_columns import post_column, post_columns
from ps2stream.posts.post import NAMES, POSTS, SCHEMA, bad, check_head, of_records

Format = Literal["jsonl", "csv", "parquet"]
MAX_LINE = 1 << 20  # bytes
ROWS = 10_000  # rows of a Parquet batch
PART_BYTES = 2 << 20  # bytes of a record batch, well below what a request may carry
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def format_of(path: str, given: str | None = None) -> Format:
    """Returns the format given, else the one that the name ends in; `-` is JSON lines."""
    suffix = "." + given if given else ".jsonl" if path == "-" else Path(path).suffix.lower()
    if (found := SUFFIXES.get(suffix)) is None:
        if "://" not in path:
            with _open_input(path):  # a missing file or a directory is reported first
                pass
        raise bad(path, f"the format is unknown; expected one of {', '.join(SUFFIXES)}")
    return found


def read_posts(
    path: str, format: str | None = None, batch: int = 1000, run: str = ""
) -> Iterator[Any]:
    """Yields record batches of `SCHEMA` with at most `batch` rows and PART_BYTES bytes each. An
    absent id becomes `run` and the row's number.

    Raises InvalidArgument, naming the file, the line (Parquet: the row, from 0), the column,
    what was expected and what was found.
    """
    kind = format_of(path, format)
    with _open_input(path) as file:
        parquet = kind == "parquet"
        read = (
            partial(_read_parquet_posts, path) if parquet else partial(_read_text_posts, path, kind)
        )
        parts = read(file, batch, run)
        for part in parts:
            yield from sized(part)


def row_count(path: str, format: str | None = None) -> int | None:
    """Returns the rows in a file where that is cheap to know, for progress bars."""
    if path == "-" or format_of(path, format) != "parquet":
        return None
    with _open_input(path) as file, _open_parquet(path, file) as parquet:
        return int(parquet.metadata.num_rows)


def read_records(path: str, need: Sequence[Sequence[str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (`file:line`, values by column) of each row of a file. need: columns that must be
    there, each by one of several names. Raises InvalidArgument, naming file and line."""
    kind = format_of(path)
    with _open_input(path) as file:
        if kind != "parquet":
            yield from _read_file_records(path, kind, file, need)
            return
        with _open_parquet(path, file) as parquet:
            names = parquet.schema_arrow.names
            check_head(path, names, need)
            rows = 0
            for part in _read_parquet_batches(path, parquet, ROWS, names):
                for row, record in enumerate(part.to_pylist(), rows):
                    yield f"{path} row {row}", record
                rows += len(part)


def read_queries(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (`file:line`, object) of each line of a JSON lines file of queries. Raises
    InvalidArgument at a line that is no JSON object."""
    with _open_input(path) as file:
        for line, record in _parse_json_lines(path, file):
            yield f"{path}:{line}", record


def check_query(where: str, record: dict[str, Any]) -> None:
    """Raises InvalidArgument unless the object has a string `id` and at most `expression`,
    `region` and `session` besides, as `list --json` prints them; null is absent."""
    known = ("id", "expression", "region", "session")
    if unknown := sorted(set(record) - set(known)):
        raise bad(where, f"unknown key {unknown[0]!r}; expected {', '.join(known)}")
    for name in ("id", "expression", "session"):
        value = record.get(name)
        if not (isinstance(value, str) or (value is None and name != "id")):
            raise bad(f"{where} {name}", f"expected a string, got {short(value)}")


def sized(part: Any) -> Iterator[Any]:
    """Yields a record batch in parts that a request can carry: at most BATCH_ROWS rows, and
    PART_BYTES bytes or one row."""
    half = len(part) // 2
    if (part.nbytes <= PART_BYTES and len(part) <= BATCH_ROWS) or not half:
        yield part
        return
    yield from sized(part.slice(0, half))
    yield from sized(part.slice(half))


# --- text formats -----------------------------------------------------------


def _read_text_posts(
    path: str, kind: Format, file: IO[bytes], batch: int, run: str
) -> Iterator[Any]:
    records = _read_file_records(path, kind, file, POSTS)
    number = 0
    while rows := list(islice(records, batch)):
        yield of_records(rows, number, run)
        number += len(rows)


def _read_file_records(
    path: str, kind: Format, file: IO[bytes], need: Sequence[Sequence[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = _parse_csv(path, file, need) if kind == "csv" else _parse_json_lines(path, file)
    return ((f"{path}:{line}", record) for line, record in lines)


def _parse_json_lines(path: str, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, raw in enumerate(_read_lines(path, file), 1):
        if raw.strip():
            yield line, json_record(f"{path}:{line}", raw)


def json_record(where: str, raw: str | bytes) -> dict[str, Any]:
    """Returns the object of a line of JSON. Raises InvalidArgument naming its place."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise bad(where, f"expected one JSON object per line: {error}") from None
    if not isinstance(record, dict):
        raise bad(where, f"expected a JSON object, got {short(record)}")
    return record


def _read_lines(path: str, file: IO[bytes]) -> Iterator[bytes]:
    for line in count(1):
        raw = file.readline(MAX_LINE + 1)
        if len(raw) > MAX_LINE:
            raise bad(f"{path}:{line}", f"expected a line of at most {MAX_LINE} bytes")
        if not raw:
            return
        yield raw


def _parse_csv(
    path: str, file: IO[bytes], need: Sequence[Sequence[str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = (
        raw.decode("utf-8" if at else "utf-8-sig") for at, raw in enumerate(_read_lines(path, file))
    )
    reader = csv.reader(lines, strict=True)
    try:
        head = next(reader, [])
        check_head(f"{path}:1", head, need)
        for row in reader:
            if not row:
                continue
            if len(row) != len(head):
                found = f"expected {len(head)} fields as in the header, got {len(row)}"
                raise bad(f"{path}:{reader.line_num}", found)
            record: dict[str, Any] = dict(zip(head, row, strict=True))
            for name in ("id", "time"):
                for alias in NAMES[name]:
                    record[alias] = record.get(alias) or None
            yield reader.line_num, record
    except csv.Error as error:
        raise bad(f"{path}:{max(1, reader.line_num)}", f"expected CSV: {error}") from None
    except UnicodeDecodeError as error:
        raise bad(f"{path}:{reader.line_num + 1}", f"expected UTF-8: {error}") from None


# --- Parquet ------------------------------------------------------------------


def _open_parquet(path: str, file: IO[bytes]) -> Any:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise bad(path, f"expected a Parquet file: {error}") from None


def _read_parquet_posts(path: str, file: IO[bytes], batch: int, run: str) -> Iterator[Any]:
    source = file if file.seekable() else io.BytesIO(file.read())
    with _open_parquet(path, source) as parquet:
        columns = post_columns(path, parquet.schema_arrow)
        start = 0
        for part in _read_parquet_batches(path, parquet, batch, list(columns.values())):
            out = [post_column(path, name, columns, part, start, run) for name in SCHEMA.names]
            start += len(part)
            yield pa.RecordBatch.from_arrays(out, schema=SCHEMA)


def _read_parquet_batches(
    path: str, parquet: Any, batch: int, names: Sequence[str]
) -> Iterator[Any]:
    try:
        yield from parquet.iter_batches(batch, columns=list(names))
    except (pa.ArrowException, OSError) as error:
        raise bad(path, f"expected a Parquet file that is whole: {error}") from None


# --- shared -------------------------------------------------------------------


@contextmanager
def _open_input(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise bad(path, f"cannot read it: {error.strerror}") from None
        yield file
