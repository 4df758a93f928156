"""Objects as a caller has them, as record batches of the columns that the service takes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.archive.reading import read_batches
from ps2stream.client.frames import build_batch, cast_batches
from ps2stream.errors import InvalidArgument, invalid, short
from ps2stream.limits import ATTRIBUTE_COLUMNS, BATCH_BYTES, BATCH_ROWS
from ps2stream.posts.archived import POSTS as ARCHIVED
from ps2stream.posts.archived import make_archived_rows
from ps2stream.posts.arrow_columns import SCHEMA
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.readers import format_of, read_posts, read_rows
from ps2stream.service.attribute_columns import count_types
from ps2stream.service.objects import COLUMNS

log = logging.getLogger("ps2stream.inprocess")
_RECORDS = 1 << 16
"""Objects in Python's own types that are converted together."""
ROWS = 2 * BATCH_ROWS
"""The most objects of a batch. Twice what a request may have: with an index of a million queries,
what Python does for a batch finds nothing in the caches, and takes ten times as long."""
_READ_ROWS = 2 * ROWS
"""Rows of a file that are decoded together: a batch by itself takes longer."""
_NUMBER_BYTES = 24
"""What an attribute needs at most as a message, beside its name and its text."""
_NFC = 3
"""A text has at most so many times its bytes in Unicode's normal form C."""
_SPARSE = 4
"""A batch has at most so many times BATCH_BYTES, however much is missing in it."""
_TEXT_KINDS = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)
_CELLS = _RECORDS * 64
"""Values that a batch of records has at most while it is made, missing ones included."""
_EXPECTED = (
    "expected a table (Arrow, pandas, Polars, GeoPandas), columns by name, a list of objects, or "
    "paths of files"
)


def list_batches(objects: Any, attributes: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yields objects in their order, at most ROWS in a batch, and fewer where their texts or
    attributes are long: what the analysis of a batch takes is many times its size.

    objects: a table of any library that speaks Arrow, a mapping of columns, a list of mappings, a
    path, a list of paths, or an iterable of tables. attributes: which columns of files are
    attributes, as `publish` takes them. Raises InvalidArgument for what is none of these, and for
    columns of wrong types, and naming the object with a text that is not UTF-8."""
    first = 0
    for batch in _list_any(objects, attributes):
        try:
            batch.validate(full=True)  # strings of Arrow are what somebody called so
        except pa.ArrowInvalid as error:
            raise _find_bad_text(batch, first, str(error)) from None
        yield batch
        first += len(batch)


def _find_bad_text(batch: pa.RecordBatch, first: int, problem: str) -> InvalidArgument:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for row in range(len(column)):
            try:
                column[row].validate(full=True)
            except pa.ArrowInvalid as error:
                return invalid(f"objects[{first + row}].{name}", str(error))
    return invalid("objects", problem)


def _list_any(objects: Any, attributes: str | None) -> Iterator[pa.RecordBatch]:
    if isinstance(objects, str | os.PathLike):
        yield from _read_file(os.fspath(objects), attributes)
    elif isinstance(objects, Mapping):
        yield from _split_batches([build_batch(objects)])
    elif _is_table(objects):
        yield from _split_batches(cast_batches(objects, ROWS))
    elif isinstance(objects, Sequence) and not isinstance(objects, bytes):
        yield from _list_parts(objects, attributes)
    elif isinstance(objects, Iterator):
        for part in objects:
            yield from _list_any(part, attributes)
    else:
        raise invalid("objects", f"{_EXPECTED}, got {short(objects)}")


def are_in_memory(objects: Any) -> bool:
    """Returns whether all objects are held by the caller, so that they need not be read."""
    if isinstance(objects, str | os.PathLike | Iterator):
        return False
    if isinstance(objects, Mapping) or _is_table(objects) or not isinstance(objects, Sequence):
        return True
    return not any(isinstance(each, str | os.PathLike) for each in objects)


def _is_table(value: Any) -> bool:
    names = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__", "__geo_interface__")
    return isinstance(value, pa.Table | pa.RecordBatch) or any(hasattr(value, n) for n in names)


def _list_parts(objects: Sequence[Any], attributes: str | None) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a list of objects, or of a list of paths or tables."""
    if not all(isinstance(each, Mapping) for each in objects):
        for part in objects:
            if not (isinstance(part, str | os.PathLike) or _is_table(part)):
                raise invalid("objects", f"{_EXPECTED}, got a list with {short(part)}")
            yield from _list_any(part, attributes)
        return
    for first in range(0, len(objects), _RECORDS):
        records = [_flatten_record(each) for each in objects[first : first + _RECORDS]]
        yield from _split_batches(_build_batches(records))


def _build_batches(records: Sequence[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yields batches of records, of fewer where they would have too many columns."""
    names = dict.fromkeys(name for record in records for name in record)
    if len(records) < 2 or len(names) * len(records) <= _CELLS:
        columns = {name: [record.get(name) for record in records] for name in names}
        batch = build_batch(columns)
        types = count_types([field for field in batch.schema if field.name not in COLUMNS])
        if len(records) < 2 or types <= ATTRIBUTE_COLUMNS:
            yield batch
            return
    half = len(records) // 2
    yield from _build_batches(records[:half])
    yield from _build_batches(records[half:])


def _flatten_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an object with its attributes beside its other members. Raises InvalidArgument for
    an attribute that would take the place of one of these."""
    nested = record.get("attributes")
    if not isinstance(nested, Mapping):
        return record
    beside = {name: value for name, value in record.items() if name != "attributes"}
    if taken := sorted(nested.keys() & {*COLUMNS, "payload", *beside}, key=str):
        problem = "has the name of a column of objects, which is no attribute in a table"
        raise invalid(f"objects.attributes.{taken[0]}", problem)
    return beside | dict(nested)


def _read_file(path: str, attributes: str | None) -> Iterator[pa.RecordBatch]:
    choice = AttributeChoice(attributes)
    kind = format_of(path)
    if kind == "archive":
        yield from _read_archive(path, choice)
    elif kind == "parquet":
        for part in read_posts(path, batch=_READ_ROWS, choice=choice, complete=False):
            yield from _split_batches(cast_batches(part, ROWS))
    else:
        for posts in read_rows(path, batch=ROWS, choice=choice):
            yield from _list_parts(posts, attributes)
    if choice.advice:
        log.warning("%s: columns of CSV are texts; for numbers: %s", path, choice.advice)
    if found := choice.pop_left_out():
        log.warning("%s: left out, as no attributes: %s", path, ", ".join(found))


def _read_archive(path: str, choice: AttributeChoice) -> Iterator[pa.RecordBatch]:
    """Yields the objects of an archive, where they have attributes by way of Python's values."""
    for part in read_batches(path, ARCHIVED, ROWS):
        if pc.any(pc.binary_length(part.column("attributes")).cast(pa.bool_())).as_py():
            yield from _list_parts(make_archived_rows(part, choice), None)
        else:
            yield from _split_batches(cast_batches(part.select(SCHEMA.names), ROWS))


def _split_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for first in range(0, len(batch), ROWS):
            part = batch.slice(first, ROWS) if len(batch) > ROWS else batch
            yield from _halve_large(part)


def _halve_large(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields a batch in parts that have at most BATCH_BYTES, also as the messages that attributes
    become, or one row."""
    if len(batch) < 2 or _bound_bytes(batch) <= BATCH_BYTES:
        yield batch
        return
    half = len(batch) // 2
    yield from _halve_large(batch.slice(0, half))
    yield from _halve_large(batch.slice(half))


def _bound_bytes(batch: pa.RecordBatch) -> int:
    """Returns at least the bytes of the texts of a batch and of its attributes as messages; where
    most of these are missing, a part of the bytes of the batch."""
    size = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in COLUMNS:
            size += column.nbytes
        else:
            of_union = range(column.type.num_fields) if pa.types.is_union(column.type) else ()
            parts = [column.field(i) for i in of_union] or [column]
            there = sum(len(part) - part.null_count for part in parts)
            size += there * (_NFC * len(name.encode()) + _NUMBER_BYTES)
            size += _NFC * sum(map(_count_text_bytes, parts))
    return max(size, int(batch.nbytes) // _SPARSE)


def _count_text_bytes(column: pa.Array) -> int:
    if not any(is_kind(column.type) for is_kind in _TEXT_KINDS):
        return 0
    return pc.sum(pc.binary_length(column)).as_py() or 0
