"""Objects as the planner reads them: posts with their attributes.

A batch has the columns of posts.SCHEMA and, as `OBJECTS` says, the attributes of each object as the
bytes of an `Attributes` message, null where it has none; the column may be absent.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ps2stream.archive.reading import read_batches
from ps2stream.posts.archived import make_archived_rows
from ps2stream.posts.arrow_columns import SCHEMA
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.readers import format_of, list_rows, read_posts, read_rows
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque
from ps2stream.protocol.rows import no_offsets
from ps2stream.v1 import object_pb2

ATTRIBUTES: Final = "attributes"
OBJECTS: Final = pa.schema([*SCHEMA, (ATTRIBUTES, pa.large_binary())])
BATCH: Final = 50_000
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NOT_ATTRIBUTES: Final = frozenset((*SCHEMA.names, "payload"))


def read_objects(path: str, attributes: str | None = None) -> Iterator[Any]:
    """Yields batches of OBJECTS of a file or an archive. attributes: which members and columns are
    attributes, as `AttributeChoice` reads it. Raises InvalidArgument for what is wrong with the
    file."""
    choice = AttributeChoice(attributes)
    if format_of(path) == "archive":
        for part in read_batches(path, OBJECTS.names, BATCH):
            yield pack_archived(part, choice)
        return
    if format_of(path) == "parquet":
        yield from map(pack_columns, read_posts(path, batch=BATCH, choice=choice))
        return
    yield from map(pack_rows, read_rows(path, batch=BATCH, choice=choice))


def pack_archived(part: Any, choice: AttributeChoice) -> Any:
    """Returns OBJECTS of a batch of an archive with the columns of OBJECTS."""
    if choice.types is not None:
        return pack_rows(make_archived_rows(part, choice))
    return pa.record_batch([part.column(f.name).cast(f.type) for f in OBJECTS], schema=OBJECTS)


def pack_rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Returns OBJECTS of posts as `readers.read_rows` yields them."""
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    columns[ATTRIBUTES] = _encode_attributes(row.get(ATTRIBUTES) for row in rows)
    return pa.RecordBatch.from_pydict(columns, schema=OBJECTS)


def pack_columns(part: Any) -> Any:
    """Returns OBJECTS of a batch of posts.SCHEMA that has a column for each attribute."""
    names = [name for name in part.schema.names if name not in _NOT_ATTRIBUTES]
    columns = [part.column(name) for name in SCHEMA.names]
    if not names:
        return pa.record_batch([*columns, pa.nulls(len(part), pa.large_binary())], OBJECTS)
    found = _encode_attributes(list_rows("objects", part.select(names)))
    return pa.record_batch([*columns, pa.array(found, pa.large_binary())], OBJECTS)


def _encode_attributes(rows: Iterable[Mapping[str, Any] | None]) -> list[bytes | None]:
    """Returns an `Attributes` message of each row, None where it has none."""
    return [_encode_row(row) if row else None for row in rows]


def _encode_row(values: Mapping[str, Any]) -> bytes:
    found = object_pb2.Attributes()
    for name, value in values.items():
        if value is None:
            continue
        entry = found.values[unicodedata.normalize("NFC", name)]
        if isinstance(value, bool):
            entry.boolean = value
        elif isinstance(value, int):
            entry.integer = value
        elif isinstance(value, float):
            entry.number = value
        elif isinstance(value, datetime):
            entry.time_ms = (value - _EPOCH) // _MILLISECOND
        else:
            entry.text = unicodedata.normalize("NFC", value)
    return found.SerializeToString(deterministic=True)


def opaque_of(objects: Any) -> tuple[I64, U8]:
    """Returns the opaque column (protocol/opaque.py) of a batch, absent where no object has
    attributes."""
    rows = len(objects)
    if ATTRIBUTES not in objects.schema.names:
        return no_offsets(), np.zeros(0, np.uint8)
    column = objects.column(ATTRIBUTES).cast(pa.large_binary()).fill_null(b"")
    _, off, data = column.buffers()
    if not rows or data is None:
        return no_offsets(), np.zeros(0, np.uint8)
    offsets = np.frombuffer(off, np.int64)[column.offset : column.offset + rows + 1]
    none = np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8)
    found = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return pack_opaque(OpaqueColumns(offsets - offsets[0], found, *none))
