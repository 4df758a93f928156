"""Posts and queries from files: JSON lines, CSV, Parquet, or standard input (`-`).

Posts come out as Arrow record batches with the columns of `SCHEMA`, checked, so that a
bad value is reported with its file and line before anything of its batch is published.
Accepted names: lat | latitude, lon | lng | longitude, time | ts | timestamp, text, id.
Only lat, lon and text must be there; an absent id is the row's number, from 0.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ps2stream.posts import CHECKS, LIMIT, MAX_BYTES, NAMES, SCHEMA, bad, no_column, short

Format = Literal["jsonl", "csv", "parquet"]
MAX_LINE = 1 << 20  # bytes
PART_BYTES = 2 << 20  # of a record batch, well below what a request may carry
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def format_of(path: str, given: str | None = None) -> Format:
    """The format asked for, else the one that the name tells; `-` is JSON lines."""
    suffix = "." + given if given else ".jsonl" if path == "-" else Path(path).suffix.lower()
    if (found := SUFFIXES.get(suffix)) is None:
        raise bad(path, f"cannot tell the format; expected one of {', '.join(SUFFIXES)}")
    return found


def read_posts(path: str, format: str | None = None, batch: int = 1000) -> Iterator[Any]:
    """Record batches of `SCHEMA` with at most `batch` rows and PART_BYTES bytes each.

    Raises InvalidArgument, naming the file, the line (Parquet: the row, from 0), the
    column, what was expected and what was found.
    """
    kind = format_of(path, format)
    with _opened(path) as file:
        parquet = kind == "parquet"
        parts = _parquet(path, file, batch) if parquet else _text(path, kind, file, batch)
        for part in parts:
            yield from _sized(part)


def row_count(path: str, format: str | None = None) -> int | None:
    """Rows in a file where that is cheap to know, for progress bars."""
    if path == "-" or format_of(path, format) != "parquet":
        return None
    with _opened(path) as file, _parquet_file(path, file) as parquet:
        return int(parquet.metadata.num_rows)


def read_queries(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, object) of each line of a JSON lines file of queries. Raises
    InvalidArgument at a line that is no JSON object."""
    with _opened(path) as file:
        for line, record in _json_lines(path, file):
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


def _sized(part: Any) -> Iterator[Any]:
    half = len(part) // 2
    if part.nbytes <= PART_BYTES or not half:
        yield part
        return
    yield from _sized(part.slice(0, half))
    yield from _sized(part.slice(half))


# --- text formats -----------------------------------------------------------


def _text(path: str, kind: Format, file: IO[bytes], batch: int) -> Iterator[Any]:
    records = _csv_lines(path, file) if kind == "csv" else _json_lines(path, file)
    number = 0
    while rows := list(islice(records, batch)):
        columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        for line, record in rows:
            for name, check in CHECKS.items():
                value = _pick(record, name)
                if value is None and name == "id":
                    value = str(number)
                try:
                    columns[name].append(check(value))
                except ValueError as error:
                    raise bad(f"{path}:{line} {name}", str(error)) from None
            number += 1
        yield pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def _json_lines(path: str, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, raw in enumerate(_lines(path, file), 1):
        if not raw.strip():
            continue
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise bad(f"{path}:{line}", f"expected a JSON object a line: {error}") from None
        if not isinstance(record, dict):
            raise bad(f"{path}:{line}", f"expected a JSON object, got {short(record)}")
        yield line, record


def _lines(path: str, file: IO[bytes]) -> Iterator[bytes]:
    for line in count(1):
        raw = file.readline(MAX_LINE + 1)
        if len(raw) > MAX_LINE:
            raise bad(f"{path}:{line}", f"expected a line of at most {MAX_LINE} bytes")
        if not raw:
            return
        yield raw


def _csv_lines(path: str, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = (
        raw.decode("utf-8" if at else "utf-8-sig") for at, raw in enumerate(_lines(path, file))
    )
    reader = csv.reader(lines, strict=True)
    try:
        head = next(reader, [])
        for name in ("lon", "lat", "text"):
            if not set(head) & set(NAMES[name]):
                raise no_column(f"{path}:1", name, head)
        _once(f"{path}:1", head)
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


def _once(where: str, names: list[str]) -> None:
    for name in chain.from_iterable(NAMES.values()):
        if names.count(name) > 1:
            raise bad(where, f"expected one column {name}, got {names.count(name)}")


def _pick(record: dict[str, Any], name: str) -> Any:
    for alias in NAMES[name]:
        if (value := record.get(alias)) is not None:
            return value
    return None


# --- Parquet ------------------------------------------------------------------


def _parquet_file(path: str, file: IO[bytes]) -> Any:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise bad(path, f"expected a Parquet file: {error}") from None


def _parquet(path: str, file: IO[bytes], batch: int) -> Iterator[Any]:
    source = file if file.seekable() else io.BytesIO(file.read())
    with _parquet_file(path, source) as parquet:
        columns = _parquet_columns(path, parquet.schema_arrow)
        start = 0
        for part in _parquet_batches(path, parquet, batch, columns):
            out = [_column(path, name, columns, part, start) for name in SCHEMA.names]
            start += len(part)
            yield pa.RecordBatch.from_arrays(out, schema=SCHEMA)


def _parquet_batches(path: str, parquet: Any, batch: int, columns: dict[str, str]) -> Iterator[Any]:
    try:
        yield from parquet.iter_batches(batch, columns=list(columns.values()))
    except (pa.ArrowException, OSError) as error:
        raise bad(path, f"expected a Parquet file that is whole: {error}") from None


def _is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _parquet_columns(path: str, schema: Any) -> dict[str, str]:
    """The file's column for each of ours. Raises on a wrong type."""
    _once(path, schema.names)
    found = {
        name: alias
        for name, aliases in NAMES.items()
        for alias in reversed(aliases)
        if alias in schema.names
    }
    expected: dict[str, tuple[str, Callable[[Any], bool]]] = {
        "id": ("strings or integers", lambda t: _is_string(t) or pa.types.is_integer(t)),
        "time": (
            "timestamps or integers (Unix ms)",
            lambda t: pa.types.is_timestamp(t) or pa.types.is_integer(t),
        ),
        "lon": ("numbers", _is_number),
        "lat": ("numbers", _is_number),
        "text": ("strings", _is_string),
    }
    for name, (what, fits) in expected.items():
        if name in found:
            kind = schema.field(found[name]).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not fits(kind):
                raise bad(f"{path} column {found[name]}", f"expected {what}, got {kind}")
        elif name in ("lon", "lat", "text"):
            raise no_column(path, name, schema.names)
    return found


def _column(path: str, name: str, columns: dict[str, str], part: Any, start: int) -> Any:
    kind = SCHEMA.field(name).type
    if name not in columns:
        if name == "time":
            return pa.nulls(len(part), kind)
        return pa.array(np.arange(start, start + len(part))).cast(kind)
    values = part.column(columns[name])
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ms"), safe=False)
    try:
        out = values.cast(kind)
    except pa.ArrowInvalid as error:
        raise bad(f"{path} column {columns[name]}", str(error)) from None
    if name == "time":
        return out
    wrong = out.is_null().to_numpy(zero_copy_only=False)
    if name in LIMIT:
        numbers = out.to_numpy(zero_copy_only=False)
        wrong |= ~(np.abs(numbers) <= LIMIT[name])
    else:
        size = pc.binary_length(out).fill_null(0).to_numpy(zero_copy_only=False)
        wrong |= size > MAX_BYTES[name]
    if wrong.any():
        row = int(wrong.argmax())
        if name in LIMIT:
            limit = f"degrees in [-{LIMIT[name]:g}, {LIMIT[name]:g}]"
        else:
            limit = f"at most {MAX_BYTES[name]} bytes" if out[row].is_valid else "a value"
        got = short(values[row].as_py())
        raise bad(f"{path} row {start + row} {columns[name]}", f"expected {limit}, got {got}")
    return out


# --- shared -------------------------------------------------------------------


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise bad(path, f"cannot read it: {error.strerror}") from None
        yield file
