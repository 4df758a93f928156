"""Posts and queries from files: JSON lines, CSV, GeoJSON, Parquet, or standard input (`-`); and
posts from the folder of an archive.

Each value is checked, so that a bad one is reported with its file and line before anything of its
batch is published. Accepted names: lat | latitude, lon | lng | longitude, time | ts | timestamp,
text, id, payload. Only lat, lon and text are required; an absent id is made of the number of the
row, from 0. What else a row has may become attributes. Only Parquet and record batches need
pyarrow.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, Literal

from ps2stream.archive.layout import is_archive
from ps2stream.errors import short
from ps2stream.limits import BATCH_ROWS
from ps2stream.posts.members import (
    AttributeChoice,
    BadNumberError,
    check_numbers,
    load_record,
    load_with_bad_numbers,
)
from ps2stream.posts.post import KNOWN, NAMES, POSTS, bad, check_head, check_records

Format = Literal["jsonl", "csv", "geojson", "parquet", "archive"]
MAX_LINE = 1 << 20  # bytes
ROWS = 10_000  # rows of a Parquet batch
_OF_FEATURE = frozenset({"type", "id", "bbox", "geometry", "properties"})
PART_BYTES = 2 << 20  # bytes of a record batch, well below what a request may carry
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".geojson": "geojson",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def format_of(path: str, given: str | None = None) -> Format:
    """Returns the format given, else the one that the name ends in; `-` is JSON lines, and the
    folder of an archive is one."""
    if given is None and is_archive(path):
        return "archive"
    suffix = "." + given if given else ".jsonl" if path == "-" else Path(path).suffix.lower()
    if (found := SUFFIXES.get(suffix)) is None:
        if "://" not in path:
            with _open_input(path):  # a missing file or a directory is reported first
                pass
        raise bad(path, f"the format is unknown; expected one of {', '.join(SUFFIXES)}")
    return found


def read_rows(
    path: str,
    format: str | None = None,
    batch: int = 1000,
    run: str = "",
    choice: AttributeChoice | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Yields lists of posts, each with id, time, lon, lat and text: at most `batch` of them and
    about PART_BYTES bytes each. An absent id becomes `run` and the row's number. With a choice,
    posts also have attributes and payload, where they have any.

    Raises InvalidArgument, naming the file, the line (Parquet: the row, from 0), the column,
    what was expected and what was found.
    """
    if format_of(path, format) == "archive":
        from ps2stream.posts.archived import read_archived_rows

        for rows in read_archived_rows(path, batch, choice):
            yield from split_rows(rows)
        return
    if format_of(path, format) == "parquet":
        for part in read_posts(path, format, batch, run, choice):
            yield [nest_attributes(row) for row in list_rows(path, part)]
        return
    is_csv = format_of(path, format) == "csv"
    for records, first in _read_text_batches(path, format, batch):
        if choice is not None and is_csv:
            if not first:
                head = [n for n, v in records[0][1].items() if n not in KNOWN or v is not None]
                choice.check_columns(f"{path}:1", head)
            records = [(where, read_cells(where, record)) for where, record in records]
            if not first:
                choice.look_for_numbers((record for _, record in records), KNOWN)
        yield from split_rows(make_rows(check_records(records, first, run, choice)))


def read_cells(where: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of CSV with its payload read, and without empty cells of attributes."""
    found = {name: value for name, value in record.items() if value or name in KNOWN}
    if cell := found.pop("payload", None):
        try:
            found["payload"] = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise bad(f"{where} payload", f"expected JSON: {error}") from None
    return found


def make_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Returns the posts of columns as `check_records` returns them; attributes, payload and until
    are absent where they are empty."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for row in rows if "attributes" in columns else ():
        for name in ("attributes", "payload", "until"):
            if not row[name]:
                del row[name]
    return rows


def list_rows(where: str, part: Any) -> list[dict[str, Any]]:
    """Returns the rows of a record batch. Raises InvalidArgument for times that Python lacks."""
    try:
        rows: list[dict[str, Any]] = part.to_pylist()
    except OverflowError:
        raise bad(where, "expected times of the years 1 to 9999") from None
    return rows


def nest_attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the post of a row of a table, with its other columns under "attributes"."""
    known = ("id", "time", "lon", "lat", "text")
    post = {name: row[name] for name in known}
    beside = (*known, "payload", "until")
    attributes = {n: v for n, v in row.items() if n not in beside and v is not None}
    if attributes:
        post["attributes"] = attributes
    for name in ("payload", "until"):
        if row.get(name) is not None:
            post[name] = row[name]
    return post


def read_posts(
    path: str,
    format: str | None = None,
    batch: int = 1000,
    run: str = "",
    choice: AttributeChoice | None = None,
    complete: bool = True,
) -> Iterator[Any]:
    """Yields the posts as `read_rows` does, but as record batches of arrow_columns.SCHEMA. With a
    choice, of a Parquet file, these also have a column for each attribute, payload and until.
    complete: columns of ids and times that a Parquet file lacks are made up, or left out; and then
    its batches have exactly `batch` rows where there are so many, of any size."""
    if format_of(path, format) == "archive":
        from ps2stream.posts.archived import read_archived_posts

        for found in read_archived_posts(path, batch):
            yield from sized(found)
        return
    if format_of(path, format) != "parquet":
        from ps2stream.posts.arrow_columns import of_records

        for records, first in _read_text_batches(path, format, batch):
            yield from sized(of_records(records, first, run))
        return
    from ps2stream.posts.parquet import read_parquet_posts

    with _open_input(path) as file:
        for part in read_parquet_posts(path, file, batch, run, choice, complete):
            yield from sized(part) if complete else [part]


def row_count(path: str, format: str | None = None) -> int | None:
    """Returns the rows in a file where that is cheap to know, for progress bars."""
    if path != "-" and format_of(path, format) == "archive":
        from ps2stream.archive.reading import count_rows

        return count_rows(path)
    if path == "-" or format_of(path, format) != "parquet":
        return None
    from ps2stream.posts.parquet import open_parquet

    with _open_input(path) as file, open_parquet(path, file) as parquet:
        return int(parquet.metadata.num_rows)


def read_records(path: str, need: Sequence[Sequence[str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (`file:line`, values by column) of each row of a file. need: columns that must be
    there, each by one of several names. Raises InvalidArgument, naming file and line."""
    kind = format_of(path)
    with _open_input(path) as file:
        if kind != "parquet":
            yield from _read_file_records(path, kind, file, need)
            return
        from ps2stream.posts.parquet import open_parquet, read_parquet_batches

        with open_parquet(path, file) as parquet:
            names = parquet.schema_arrow.names
            check_head(path, names, need)
            rows = 0
            for part in read_parquet_batches(path, parquet, ROWS, names):
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
    `region`, `session` and `until` besides, as `list --json` prints them; null is absent. `until`
    is not read."""
    known = ("id", "expression", "region", "session", "until")
    if unknown := sorted(set(record) - {*known, "canonical"}):  # which `list --json` adds
        raise bad(where, f"unknown key {unknown[0]!r}; expected {', '.join(known)}")
    for name in ("id", "expression", "session"):
        value = record.get(name)
        if not (isinstance(value, str) or (value is None and name != "id")):
            raise bad(f"{where} {name}", f"expected a string, got {short(value)}")
        try:
            (value or "").encode()
        except UnicodeEncodeError as error:
            raise bad(f"{where} {name}", f"expected Unicode text: {error}") from None


def sized(part: Any) -> Iterator[Any]:
    """Yields a record batch in parts that a request can carry: at most BATCH_ROWS rows, and
    PART_BYTES bytes or one row."""
    half = len(part) // 2
    if (part.nbytes <= PART_BYTES and len(part) <= BATCH_ROWS) or not half:
        yield part
        return
    yield from sized(part.slice(0, half))
    yield from sized(part.slice(half))


def split_rows(posts: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yields posts in parts as `sized` does."""
    half = len(posts) // 2
    if (sum(map(_bound_size, posts)) <= PART_BYTES and len(posts) <= BATCH_ROWS) or not half:
        yield posts
        return
    yield from split_rows(posts[:half])
    yield from split_rows(posts[half:])


def _bound_size(post: Mapping[str, Any]) -> int:
    """Returns about the most bytes that a post may have; a letter may have four."""
    letters = len(post["id"]) + len(post["text"]) + len(post.get("payload") or "")
    for name, value in post.get("attributes", {}).items():
        letters += len(name) + 8 + (len(value) if isinstance(value, str) else 0)
    return 4 * letters + 32


# --- text formats -----------------------------------------------------------


def _read_text_batches(
    path: str, format: str | None, batch: int
) -> Iterator[tuple[list[tuple[str, dict[str, Any]]], int]]:
    """Yields at most `batch` (`file:line`, record) pairs, and the number of the first one."""
    with _open_input(path) as file:
        records = _read_file_records(path, format_of(path, format), file, POSTS)
        first = 0
        while some := list(islice(records, batch)):
            yield some, first
            first += len(some)


def _read_file_records(
    path: str, kind: Format, file: IO[bytes], need: Sequence[Sequence[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    if kind == "geojson":
        return _parse_features(path, file)
    lines = _parse_csv(path, file, need) if kind == "csv" else _parse_json_lines(path, file)
    return ((f"{path}:{line}", record) for line, record in lines)


def _parse_json_lines(path: str, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, raw in enumerate(_read_lines(path, file), 1):
        if raw.strip():
            yield line, json_record(f"{path}:{line}", raw)


def _parse_features(path: str, file: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the properties of each Feature of a FeatureCollection, with the position of its
    Point."""
    try:
        whole = load_with_bad_numbers(file.read())
    except (ValueError, RecursionError) as error:
        raise bad(path, f"expected GeoJSON: {error}") from None
    features = whole.get("features") if isinstance(whole, dict) else None
    if not isinstance(features, list):
        raise bad(path, "expected a FeatureCollection")
    for number, feature in enumerate(features):
        where = f"{path} feature {number}"
        _check_numbers_of(where, feature)
        yield where, read_feature(where, feature)


def _check_numbers_of(where: str, value: Any) -> None:
    """Raises InvalidArgument naming the place of a number that cannot be."""
    try:
        check_numbers(value)
    except BadNumberError as error:
        raise bad(f"{where} {error.member}", error.problem) from None
    except RecursionError as error:
        raise bad(where, f"expected GeoJSON: {error}") from None


def read_feature(where: str, feature: Any) -> dict[str, Any]:
    """Returns the record of a Feature of a Point: its id and position, its properties, and what it
    has beside these. Raises InvalidArgument naming its place."""
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    point = geometry.get("coordinates") if isinstance(geometry, dict) else None
    is_point = isinstance(geometry, dict) and geometry.get("type") == "Point"
    if not (is_point and isinstance(point, list) and len(point) >= 2):
        raise bad(f"{where} geometry", "expected a Point")
    record = {name: value for name, value in feature.items() if name not in _OF_FEATURE}
    record |= found if isinstance(found := feature.get("properties"), dict) else {}
    if feature.get("id") is not None:
        record["id"] = feature["id"]
    return record | {"lon": point[0], "lat": point[1]}


def json_record(where: str, raw: str | bytes) -> dict[str, Any]:
    """Returns the object of a line of JSON. Raises InvalidArgument naming its place."""
    try:
        record = load_record(raw)
    except BadNumberError as error:
        raise bad(f"{where} {error.member}".rstrip(), error.problem) from None
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


# --- shared -------------------------------------------------------------------


@contextmanager
def _open_input(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        if sys.stdin is None:  # as under `<&-`, or where a supervisor gives a program none
            raise bad(path, "cannot read it: standard input is closed")
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise bad(path, f"cannot read it: {error.strerror}") from None
        yield file
