"""Objects as tables: what the clients do with Arrow, where it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ps2stream.client.inputs import FIELDS, milliseconds, named
from ps2stream.errors import invalid
from ps2stream.posts.sample import SAMPLE, SINCE
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.v1 import admin_pb2


def encode_table(table: Any) -> bytes:
    """Encodes a record batch, table or data frame of any library that speaks Arrow, with the
    columns' types cast to those that the service takes. Raises InvalidArgument naming the column
    that cannot be cast."""
    if isinstance(table, pa.RecordBatch):
        return to_ipc(_cast_batch(pa.Table.from_batches([table]), table))
    try:
        return to_ipc(_cast_batch(pa.table(table), None))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise invalid("objects", f"{named(table)} is no table: {error}") from None


def encode_columns(columns: Mapping[str, Any]) -> bytes:
    """Encodes columns of values. Raises InvalidArgument naming the column that cannot be taken."""
    arrays = {}
    for name, values in columns.items():
        kind = {"lon": pa.float64(), "lat": pa.float64(), "time": pa.int64()}.get(name, pa.string())
        try:
            if name == "time":
                values = [None if v is None else milliseconds(v) for v in values]
            arrays[name] = pa.array(values, kind if name in FIELDS else None)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise invalid(f"objects.{name}", str(error)) from None
    if len({len(a) for a in arrays.values()}) > 1:
        raise invalid("objects", "columns of different lengths")
    return to_ipc(pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)))


def read_sample(parts: Sequence[bytes]) -> pa.Table:
    """Joins the messages of SampleObjects into one table, whose schema's metadata holds
    since_ms."""
    messages = [admin_pb2.SampleObjectsResponse.FromString(data) for data in parts]
    batches = [batch for m in messages for batch in pa.ipc.open_stream(m.arrow)]
    table = pa.Table.from_batches(batches, SAMPLE)
    since = max((m.since_ms for m in messages), default=0)
    return table.replace_schema_metadata({SINCE: b"%d" % since})


def _cast_batch(table: pa.Table, same: pa.RecordBatch | None) -> pa.RecordBatch:
    """Casts the table's columns to the types that the service takes; returns `same` if nothing
    differs."""
    columns = {}
    for field in table.schema:
        if field.name.startswith("__index_level_"):  # a column of pandas' own
            continue
        column, want = table.column(field.name), _choose_type(field)
        try:
            columns[field.name] = column.cast(want).combine_chunks()
        except pa.ArrowException as error:
            raise invalid(f"objects.{field.name}", str(error)) from None
    wanted = pa.schema([(name, column.type) for name, column in columns.items()])
    if same is not None and same.schema.equals(wanted):
        return same
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _choose_type(field: pa.Field) -> pa.DataType:
    kind = field.type
    if field.name in ("lon", "lat"):
        return pa.float64()
    if field.name in ("id", "text"):
        return kind if pa.types.is_large_string(kind) else pa.string()
    return kind if field.name != "time" or pa.types.is_timestamp(kind) else pa.int64()
