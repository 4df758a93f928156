"""Objects as tables: what the clients do with Arrow, where it is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ps2stream.client.attributes import dump_json, milliseconds, named, write_time
from ps2stream.client.inputs import end_to_milliseconds, list_values
from ps2stream.client.mixed_columns import build_mixed, is_of_objects, is_of_one_type
from ps2stream.errors import invalid
from ps2stream.posts.sample import SAMPLE, SINCE
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.v1 import admin_pb2

if TYPE_CHECKING:
    from ps2stream.client.matches import Matches

_KINDS = {
    "id": pa.string(),
    "time": pa.int64(),
    "lon": pa.float64(),
    "lat": pa.float64(),
    "text": pa.string(),
    "until": pa.int64(),
}
_SCALARS = "numbers, text, booleans or times"
_KEPT = {
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
}
"""Types of attributes that the service takes as they are, besides timestamps."""
_CAST = {
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float64(),
    pa.string_view(): pa.string(),
    pa.date32(): pa.timestamp("ms", "UTC"),
    pa.date64(): pa.timestamp("ms", "UTC"),
    pa.null(): pa.bool_(),
}
_NOT_MIXED = ("id", "lon", "lat", "text", "payload")
"""Columns that have a type of their own; times may be integers or datetimes."""
_PAYLOADS = {
    **{kind: kind for kind in (pa.binary(), pa.large_binary(), pa.string())},
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.binary(),
}


def encode_table(table: Any) -> bytes:
    """Encodes a record batch, table or data frame of any library that speaks Arrow, with the
    columns' types cast to those that the service takes. Columns without a meaning of their own are
    attributes; a timestamp without a zone is in UTC. The points of a GeoDataFrame are lon and lat.
    Raises InvalidArgument naming the column that
    cannot be cast."""
    if isinstance(table, pa.RecordBatch):
        return to_ipc(_cast_batch(pa.Table.from_batches([table]), table))
    return to_ipc(_cast_batch(_open_table(table), None))


def cast_batches(table: Any, rows: int) -> Iterator[pa.RecordBatch]:
    """Yields what `encode_table` encodes, as it is cast, in batches of at most so many rows."""
    opened = _open_table(table)
    is_same = opened.schema.equals(_choose_schema(opened.schema))
    for batch in opened.to_batches(max_chunksize=rows):
        yield batch if is_same else _cast_batch(pa.Table.from_batches([batch]), batch)


def _open_table(table: Any) -> pa.Table:
    """Returns a table of any library as one of Arrow. Raises InvalidArgument for what is none."""
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(type(table), "__geo_interface__"):
        table = _flatten_points(table)
    try:
        return _convert_frame(table) if _is_frame(table) else pa.table(table)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = "; ".join(map(str, error.args))  # of pandas with the column as a second one
        raise invalid("objects", f"{named(table)} is no table: {problem}") from None


def _is_frame(table: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def _convert_frame(frame: Any) -> pa.Table:
    """Returns a data frame of pandas as a table. Raises InvalidArgument naming the row of a value
    that is no attribute."""
    if not frame.columns.is_unique:
        return pa.table(frame)  # which names what is there twice
    of_objects = {
        name: frame[name]
        for name in frame.columns
        if isinstance(name, str) and name not in _NOT_MIXED and is_of_objects(frame[name])
    }
    chosen = {n: values for n, values in of_objects.items() if not is_of_one_type(values)}
    if not chosen:
        try:
            return pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            chosen = of_objects
    made = {
        name: _build_array(name, values) if name in _KINDS else _build_any_attribute(name, values)
        for name, values in chosen.items()
    }
    table = pa.table(frame.drop(columns=list(made)))
    for i, name in enumerate(frame.columns):
        if name in made:
            table = table.add_column(i, name, made[name])
    return table


def _flatten_points(frame: Any) -> Any:
    """Returns a GeoDataFrame of points with their longitudes and latitudes as columns. Raises
    InvalidArgument where it has other geometries."""
    try:
        points = (frame if frame.crs is None else frame.to_crs(4326)).geometry
        return frame.drop(columns=points.name).assign(lon=points.x, lat=points.y)
    except (AttributeError, TypeError, ValueError) as error:
        raise invalid("objects.geometry", f"expected points: {error}") from None


def encode_columns(columns: Mapping[str, Any]) -> bytes | None:
    """Encodes columns of values. Returns None where a column of attributes or payloads is of no one
    type, so that the objects have to travel as rows. Raises InvalidArgument naming the column that
    cannot be taken."""
    made = _build_arrays(columns, _build_attribute)
    if isinstance(made, str):
        return None
    return to_ipc(pa.RecordBatch.from_arrays(list(made.values()), list(made)))


def build_batch(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Returns columns of values as `encode_columns` encodes them, of which one whose values are of
    several types is a union. Raises InvalidArgument naming the column that cannot be taken."""
    made = _build_arrays(columns, _build_any_attribute)
    if isinstance(made, str):
        raise invalid(f"objects.{made}", f"expected {_name_expected(made)}")
    return pa.RecordBatch.from_arrays(list(made.values()), list(made))


def _build_arrays(
    columns: Mapping[str, Any], build: Callable[[str, Any], pa.Array | None]
) -> dict[str, pa.Array] | str:
    """Returns the columns as arrays, or the name of one that `build` makes no attribute or payload
    of."""
    arrays = {}
    for name, values in columns.items():
        if name in _KINDS:
            arrays[name] = _build_array(name, values)
        elif not isinstance(name, str) or (made := build(name, values)) is None:
            return str(name)
        else:
            arrays[name] = made
    if len({len(a) for a in arrays.values()}) > 1:
        raise invalid("objects", "columns of different lengths")
    return arrays


def _build_array(name: str, values: Any) -> pa.Array:
    try:
        if name in ("time", "until"):
            if getattr(getattr(values, "dtype", None), "kind", "") == "M":
                made = pa.array(values)  # those without a zone are in UTC
                return made if pa.types.is_timestamp(made.type) else made.cast(pa.timestamp("ms"))
            values = list_values(values)
        if name == "time":
            values = [None if v is None else milliseconds(v) for v in values]
        elif name == "until":
            values = [end_to_milliseconds("objects.until", v) for v in values]
        return pa.array(values, _KINDS[name])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise invalid(f"objects.{name}", str(error)) from None


def _build_attribute(name: str, values: Any) -> pa.Array | None:
    """Returns a column of attributes or payloads, None unless all its values are of one type."""
    if not is_of_one_type(values):
        return None
    try:
        made = pa.array(values)
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if pa.types.is_temporal(made.type) and not hasattr(values, "dtype"):
            # Objects of Python must be datetimes with a time zone, as in rows.
            moments = [None if v is None else milliseconds(v) for v in values]
            made = pa.array(moments, pa.timestamp("ms", "UTC"))
        want = _choose_attribute_type(name, made.type)
        return None if want is None else made.cast(want)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _build_any_attribute(name: str, values: Any) -> pa.Array | None:
    """Returns a column of attributes or payloads, None for one of another type. Raises
    InvalidArgument naming the row of an object that is no attribute."""
    made = _build_attribute(name, values)
    if made is None and name != "payload" and is_of_objects(values):
        return build_mixed(name, values)
    return made


def build_table(matches: Matches) -> pa.Table:
    """Returns the pairs of a batch as a table: query_id, object_id, partition and offset; time
    (UTC), lon, lat and text where they were requested; a column for each attribute that an object
    of the batch has; and payload where it was requested.

    An attribute with the name of another column is `attribute_NAME`. Its type is that of its
    values, and string (as JSON has them) where they are of several types. Payloads are binary;
    those that are not bytes are JSON text.
    """
    columns: dict[str, Any] = {
        "object_id": pa.array(matches.object_ids, pa.string()),
        "partition": pa.repeat(pa.scalar(matches.partition, pa.int64()), len(matches.object_ids)),
        "offset": pa.array(matches.offsets, pa.uint64()),
    }
    if matches.time is not None:
        columns["time"] = pa.array(matches.time, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    for name, values in {"lon": matches.lon, "lat": matches.lat, "text": matches.texts}.items():
        if values is not None:
            columns[name] = pa.array(values)
    payloads = _build_payloads(matches.payloads)
    taken = {"query_id", "payload", *columns}
    found = matches.attributes or []
    for name in dict.fromkeys(name for values in found for name in values):
        unique = name
        while unique in taken:
            unique = f"attribute_{unique}"
        taken.add(unique)
        columns[unique] = _join_values([values.get(name) for values in found])
    if payloads is not None:
        columns["payload"] = payloads
    objects = pa.table(columns).take(pa.array(matches.objects, pa.uint32()))
    return objects.add_column(0, "query_id", [pa.array(matches.query_ids, pa.string())])


def _join_values(values: list[Any]) -> pa.Array:
    """Returns attributes of objects, None where absent, as one column."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {datetime}:
        return pa.array(values, pa.timestamp("ms", "UTC"))
    try:
        if len(kinds) == 1 or kinds == {int, float}:
            return pa.array(values)
    except pa.ArrowException:
        pass  # an integer that no double holds
    return write_values(values)


def write_values(values: Iterable[Any]) -> pa.Array:
    """Returns attributes as one column of texts, as JSON has them; None where absent."""
    return pa.array([_write_value(value) for value in values], pa.string())


def _write_value(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return write_time(value) if isinstance(value, datetime) else json.dumps(value)


def _build_payloads(payloads: list[Any] | None) -> pa.Array | None:
    if payloads is None:
        return None
    return pa.array(
        [p if p is None or isinstance(p, bytes) else dump_json(p).encode() for p in payloads],
        pa.binary(),
    )


def read_sample(parts: Sequence[bytes]) -> pa.Table:
    """Joins the messages of SampleObjects into one table, whose schema's metadata holds
    since_ms."""
    messages = [admin_pb2.SampleObjectsResponse.FromString(data) for data in parts]
    batches = [batch for m in messages for batch in pa.ipc.open_stream(m.arrow)]
    table = pa.concat_tables(
        [SAMPLE.empty_table(), *map(_add_attributes, batches)], promote_options="none"
    )
    since = max((m.since_ms for m in messages), default=0)
    return table.replace_schema_metadata({SINCE: b"%d" % since})


def _add_attributes(batch: pa.RecordBatch) -> pa.Table:
    """Returns a batch of a sample as a table of SAMPLE; services of earlier versions send no
    attributes."""
    table, last = pa.Table.from_batches([batch]), SAMPLE.field("attributes")
    if last.name not in table.schema.names:
        table = table.append_column(last, pa.array([b""] * len(batch), last.type))
    return table


def _cast_batch(table: pa.Table, same: pa.RecordBatch | None) -> pa.RecordBatch:
    """Casts the table's columns to the types that the service takes; returns `same` if nothing
    differs."""
    wanted = _choose_schema(table.schema)
    if same is not None and same.schema.equals(wanted):
        return same
    columns = {}
    for name, kind in zip(wanted.names, wanted.types, strict=True):
        try:
            columns[name] = table.column(name).cast(kind).combine_chunks()
        except pa.ArrowException as error:
            raise invalid(f"objects.{name}", str(error)) from None
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _choose_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns that the service takes, in their types."""
    return pa.schema(
        (field.name, _choose_type(field))
        for field in schema
        if not field.name.startswith("__index_level_")  # a column of pandas' own
    )


def _choose_type(field: pa.Field) -> pa.DataType:
    kind = field.type
    if field.name in ("lon", "lat"):
        return pa.float64()
    if field.name in ("id", "text"):
        return kind if pa.types.is_large_string(kind) else pa.string()
    if field.name in ("time", "until"):
        return kind if pa.types.is_timestamp(kind) else pa.int64()
    want = _choose_attribute_type(field.name, kind)
    if want is None:
        raise invalid(f"objects.{field.name}", f"expected {_name_expected(field.name)}, got {kind}")
    return want


def _name_expected(name: str) -> str:
    return "bytes or strings of JSON" if name == "payload" else _SCALARS


def _choose_attribute_type(name: str, kind: pa.DataType) -> pa.DataType | None:
    """Returns the type in which the service takes a column of attributes or payloads, None where
    there is none."""
    if pa.types.is_dictionary(kind):
        return _choose_attribute_type(name, kind.value_type)
    if name == "payload":
        return _PAYLOADS.get(kind)
    if pa.types.is_union(kind):
        return kind  # the service says which it takes
    return kind if kind in _KEPT or pa.types.is_timestamp(kind) else _CAST.get(kind)
