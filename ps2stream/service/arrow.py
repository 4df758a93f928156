"""Decoding of a request's Arrow record batch to checked NumPy columns, without copying them.

The bytes come from a stranger: the schema is looked at before the data, compressed buffers are
refused (a small message must not unfold into a large one), and so are columns that share them
until they are larger than a request, and offsets and UTF-8 are validated before any view is handed
out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ps2stream.errors import InvalidArgument, Violation, invalid
from ps2stream.limits import BATCH_BYTES, BATCH_ROWS
from ps2stream.protocol.frame import F64, I64, U8, Array
from ps2stream.service.calls import rows_problem

FIELD = "batch.arrow"
STRING = "string or large_string"
DOUBLE = "double"
TIME = "timestamp, or int64 Unix milliseconds"
REPEATED = "the column occurs more than once"
OtherColumns: TypeAlias = Callable[[Sequence[pa.Field]], list[Violation]]
_STRING_IDS, _DOUBLE_ID = (pa.string().id, pa.large_string().id), pa.float64().id
_RECORD_BATCH = 3  # MessageHeader.RecordBatch
_MILLISECONDS = {"s": 1000, "ms": 1, "us": -1000, "ns": -1_000_000}  # negative: divide


def open_batch(
    data: bytes,
    columns: Mapping[str, str],
    required: Sequence[str],
    find_other_problems: OtherColumns | None = None,
) -> pa.RecordBatch:
    """Returns the one record batch of an Arrow IPC stream.

    `columns` maps the names that may occur to what is expected of each (STRING, DOUBLE, TIME);
    `find_other_problems` checks other columns, which are refused without it. Raises
    InvalidArgument, naming the column.
    """
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
        head = next(messages)
        if head.type != "schema":  # pyarrow 26 would read it as one, and crash
            raise invalid(FIELD, f"expected a stream that begins with a schema, got {head.type}")
        schema = pa.ipc.read_schema(head)
        if bad := find_violations(schema, columns, required, find_other_problems):
            raise InvalidArgument(bad)
        batch = pa.ipc.read_record_batch(_find_batch(messages), schema)
        batch.validate()
        if batch.nbytes > BATCH_BYTES:  # many columns in the same bytes
            problem = f"columns of {batch.nbytes} bytes are over the limit batch_bytes"
            raise invalid(FIELD, f"{problem} {BATCH_BYTES}")
        batch.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration, ValueError, struct.error) as error:
        raise invalid(FIELD, f"is not an Arrow IPC stream of one record batch: {error}") from None
    return batch


def count_rows(data: bytes | memoryview) -> int:
    """Counts the rows of the record batches of an Arrow IPC stream by their heads. Returns 0 for
    what is no such stream, or claims more than BATCH_ROWS rows."""
    rows = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(data)):
            rows += _read_head(message).rows
    except (pa.ArrowException, OSError, struct.error, IndexError):
        return 0
    return rows if rows <= BATCH_ROWS else 0


def strings(batch: pa.RecordBatch, name: str) -> tuple[I64, U8]:
    """Returns a column of strings or of bytes as a ragged one; a null becomes an empty string."""
    column = batch.column(name)
    if column.null_count:
        column = column.fill_null(pa.scalar(b"", column.type))
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, values = column.buffers()
    n = len(column)
    if n == 0 or offsets is None:
        return np.zeros(n + 1, np.int64), np.zeros(0, np.uint8)
    width = np.dtype(np.int64 if wide else np.int32)
    raw = np.frombuffer(offsets, width, n + 1, column.offset * width.itemsize)
    off = raw.astype(np.int64)
    data = np.frombuffer(values, np.uint8) if values is not None else np.zeros(0, np.uint8)
    data = data[off[0] : off[-1]]
    return off - off[0], data


def doubles(batch: pa.RecordBatch, name: str) -> F64:
    """Returns a float64 column; a null becomes NaN."""
    column = batch.column(name)
    if column.null_count:
        column = column.fill_null(float("nan"))
    found: F64 = _view_values(column, np.float64)
    return found


def times(batch: pa.RecordBatch, name: str, absent_ms: int, rows: str = "batch.objects") -> I64:
    """Returns a time column in Unix ms; a null becomes `absent_ms`. Raises InvalidArgument on
    overflow, naming the row as one of `rows`."""
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        value, is_far = read_milliseconds(column)
    else:
        value, is_far = _view_values(column, np.int64), None
    absent = nulls(batch, name)
    if is_far is not None and len(far := np.flatnonzero(is_far & ~absent)):
        raise invalid(f"{rows}[{far[0]}].{name}", "is beyond 64-bit milliseconds")
    return np.where(absent, absent_ms, value) if absent.any() else value


def read_milliseconds(column: pa.Array) -> tuple[I64, Array | None]:
    """Returns a timestamp column in Unix ms, rounded down, and which values are beyond 64 bits, if
    any can be; a null has any value."""
    factor = _MILLISECONDS[column.type.unit]
    value = _view_values(column, np.int64)
    if factor < 0:
        return value // -factor, None
    if factor == 1:
        return value, None
    limit = np.iinfo(np.int64).max // factor
    is_far = (value > limit) | (value < -limit)
    return np.where(is_far, 0, value) * factor, is_far


def nulls(batch: pa.RecordBatch, name: str) -> Array:
    """Returns bool[n]: which values are null."""
    column = batch.column(name)
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    found: Array = column.is_null().to_numpy(zero_copy_only=False)
    return found


def view_values(column: pa.Array) -> Array:
    """Returns a column of integers or floats; a null has any value."""
    found: Array = _view_values(column, column.type.to_pandas_dtype())
    return found


def _view_values(column: pa.Array, dtype: type[np.generic]) -> Any:
    width = np.dtype(dtype)
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), width)
    view = np.frombuffer(buffer, width, len(column), column.offset * width.itemsize)
    return np.require(view, requirements="A")


def find_violations(
    schema: pa.Schema,
    columns: Mapping[str, str],
    required: Sequence[str],
    find_other_problems: OtherColumns | None = None,
) -> list[Violation]:
    """Returns what is wrong with the columns of a schema, see `open_batch`."""
    names, types = schema.names, schema.types
    if names == list(required) and all(map(_has_type, types, map(columns.__getitem__, names))):
        return []
    others: list[Violation] = []
    if find_other_problems is not None:
        others = find_other_problems([field for field in schema if field.name not in columns])
        known = [i for i, name in enumerate(names) if name in columns]
        names, types = [names[i] for i in known], [types[i] for i in known]
    if len(names) > 2 * len(columns):
        problem = f"contains {len(names)} columns; allowed are: {', '.join(columns)}"
        return [Violation(FIELD, problem)]
    bad = [
        Violation(f"{FIELD}.{name}", f"missing column, expected {columns[name]}")
        for name in required
        if name not in names
    ]
    for name, kind in zip(names, types, strict=True):
        at = f"{FIELD}.{name}"
        if name not in columns:
            bad.append(Violation(at, f"unknown column; allowed are: {', '.join(columns)}"))
        elif names.count(name) > 1:
            bad.append(Violation(at, REPEATED))
        elif not _has_type(kind, columns[name]):
            bad.append(Violation(at, f"wrong column type, expected {columns[name]}, got {kind}"))
    return bad + others


def _has_type(kind: pa.DataType, expected: str) -> bool:
    if expected == STRING:
        return kind.id in _STRING_IDS
    if expected == DOUBLE:
        return bool(kind.id == _DOUBLE_ID)
    return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))


class _MessageHead(NamedTuple):
    """The head of an IPC message; `batches` is 1 for a record batch, else 0."""

    batches: int = 0
    rows: int = 0
    compressed: bool = False


def _read_head(message: Any) -> _MessageHead:
    """Reads the head from flatbuffers (Arrow's Message.fbs). The first field of a RecordBatch is
    the number of rows, and a fourth means compressed buffers."""
    head = memoryview(message.metadata)
    (root,) = struct.unpack_from("<I", head, 0)
    kind = _find_slot(head, root, 1)
    if kind is None or head[kind] != _RECORD_BATCH:
        return _MessageHead()
    body = _find_slot(head, root, 2)
    if body is None:
        return _MessageHead(batches=1)
    (offset,) = struct.unpack_from("<I", head, body)
    table = body + offset
    length = _find_slot(head, table, 0)
    rows = 0 if length is None else struct.unpack_from("<q", head, length)[0]
    return _MessageHead(1, max(rows, 0), _find_slot(head, table, 3) is not None)


def _find_batch(messages: Iterable[Any]) -> Any:
    """Reads the heads of the messages before any column. Returns the record batch; raises
    InvalidArgument unless there is one, of at most BATCH_ROWS rows, not compressed."""
    found = None
    for message in messages:
        head = _read_head(message)
        if head.batches and found is not None:
            raise invalid(FIELD, "expected one record batch, got 2 or more")
        if head.compressed:
            raise invalid(FIELD, "compressed buffers are not supported")
        if head.rows > BATCH_ROWS:
            raise invalid(FIELD, rows_problem())
        if head.batches:
            found = message
    if found is None:
        raise invalid(FIELD, "expected one record batch, got 0")
    return found


def _find_slot(head: memoryview, table: int, index: int) -> int | None:
    """Returns the position of field `index` of a flatbuffers table, or None when it is absent."""
    (back,) = struct.unpack_from("<i", head, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error("bad table")
    (size,) = struct.unpack_from("<H", head, vtable)
    at = 4 + 2 * index
    if at >= size:
        return None
    (offset,) = struct.unpack_from("<H", head, vtable + at)
    return table + offset if offset else None
