"""What both clients share: values, and the requests made of them.

Nothing here talks to anyone.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from ps2stream import geojson
from ps2stream.errors import (
    InvalidArgument,
    Violation,
)
from ps2stream.limits import BATCH_BYTES
from ps2stream.space import RECT_FIELDS, Circle, Polygon, Rect, Region, World
from ps2stream.v1 import explain_pb2, object_pb2, pubsub_pb2, query_pb2

DEFAULT_TARGET = "localhost:7077"
QUERY_BATCH = 1000
BULK_BYTES = BATCH_BYTES // 2
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
LEVELS = {
    "accepted": object_pb2.PUBLISH_LEVEL_ACCEPTED,
    "durable": object_pb2.PUBLISH_LEVEL_DURABLE,
    "none": object_pb2.PUBLISH_LEVEL_NONE,
}
Places = Mapping[str, Any] | Rect | Circle | Polygon | World | Sequence[float] | None
"""A region: one of `ps2stream.space`, its JSON form, four sides, or None."""


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """A standing query. region None is the whole world."""

    id: str
    expression: str = ""
    region: Region | None = None
    session: str = ""


# --- queries --------------------------------------------------------------


def region_to_proto(region: Places) -> query_pb2.Region | None:
    """None for the whole world. Raises InvalidArgument for what is no region."""
    if isinstance(region, Mapping):
        region = geojson.from_json(region)
    elif region is not None and not isinstance(region, Rect | Circle | Polygon | World):
        if len(region) != 4:
            raise _invalid("region", f"expected four sides, got {len(region)} numbers")
        region = Rect(*region)
    match region:
        case Rect():
            sides = {f: getattr(region, f) for f in RECT_FIELDS}
            return query_pb2.Region(rectangle=query_pb2.Rectangle(**sides))
        case Circle(lon, lat, km):
            return query_pb2.Region(circle=query_pb2.Circle(lon=lon, lat=lat, radius_km=km))
        case Polygon():
            return query_pb2.Region(geojson=json.dumps(region.to_json()))
        case _:
            return None


def query_to_proto(query: Any, session: str = "") -> query_pb2.Query:
    """From a Query, a mapping with its fields, or (id, expression[, region])."""
    if isinstance(query, Query):
        values: Mapping[str, Any] = {f: getattr(query, f) for f in Query.__slots__}
    elif isinstance(query, Mapping):
        values = query
    else:
        values = dict(zip(("id", "expression", "region"), query, strict=False))
    if "id" not in values:
        raise _invalid("query.id", "is missing")
    try:
        return query_pb2.Query(
            id=values["id"],
            expression=values.get("expression") or "",
            region=region_to_proto(values.get("region")),
            session=values.get("session") or session,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise _invalid("query", str(error)) from None


def insert_request(
    id: str, expression: str, region: Places, session: str
) -> pubsub_pb2.InsertQueryRequest:
    query = query_to_proto((id, expression, region), session)
    return pubsub_pb2.InsertQueryRequest(query=query, request_id=new_request_id())


def explain_request(query_id: str, thing: Any) -> explain_pb2.ExplainMatchRequest:
    """Of a mapping as in `object_batch`. Raises InvalidArgument."""
    [row] = object_batch([thing]).objects
    return explain_pb2.ExplainMatchRequest(query_id=query_id, object=row)


def price_request(expression: str, region: Places) -> explain_pb2.PriceQueryRequest:
    return explain_pb2.PriceQueryRequest(query=query_to_proto(("", expression, region), ""))


def insert_batches(
    queries: Iterable[Any], session: str
) -> Iterator[pubsub_pb2.InsertQueriesRequest]:
    """Requests of at most QUERY_BATCH queries and BULK_BYTES bytes."""
    for part in _parts(query_to_proto(q, session) for q in queries):
        yield pubsub_pb2.InsertQueriesRequest(
            batch=query_pb2.QueryBatch(queries=part, session=session),
            request_id=new_request_id(),
        )


def _parts(rows: Iterable[query_pb2.Query]) -> Iterator[list[query_pb2.Query]]:
    part: list[query_pb2.Query] = []
    size = 0
    for row in rows:
        more = row.ByteSize()
        if part and (len(part) == QUERY_BATCH or size + more > BULK_BYTES):
            yield part
            part, size = [], 0
        part.append(row)
        size += more
    if part:
        yield part


def delete_batches(ids: Iterable[str]) -> Iterator[pubsub_pb2.DeleteQueriesRequest]:
    """Requests of at most QUERY_BATCH ids."""
    rows = iter(ids)
    while part := list(islice(rows, QUERY_BATCH)):
        yield pubsub_pb2.DeleteQueriesRequest(ids=part, request_id=new_request_id())


def new_request_id() -> str:
    """A name for one attempt and its retries."""
    return uuid.uuid4().hex


# --- objects --------------------------------------------------------------


def object_batch(objects: Any) -> object_pb2.ObjectBatch:
    """From a record batch, a mapping of columns (lon, lat, text, id, time), or rows that are
    mappings with such keys. A time is Unix milliseconds or a datetime with a time zone."""
    if isinstance(objects, pa.RecordBatch):
        return object_pb2.ObjectBatch(arrow=to_ipc(objects))
    if isinstance(objects, Mapping):
        return object_pb2.ObjectBatch(arrow=to_ipc(_columns(objects)))
    return object_pb2.ObjectBatch(objects=[_object(i, row) for i, row in enumerate(objects)])


def publish_request(objects: Any, level: str, allow_partial: bool) -> pubsub_pb2.PublishRequest:
    return pubsub_pb2.PublishRequest(
        batch=object_batch(objects), level=_level(level), allow_partial=allow_partial
    )


def publish_stream_request(
    objects: Any, level: str, allow_partial: bool
) -> pubsub_pb2.PublishStreamRequest:
    return pubsub_pb2.PublishStreamRequest(
        batch=object_batch(objects), level=_level(level), allow_partial=allow_partial
    )


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """One record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _level(level: str) -> object_pb2.PublishLevel.ValueType:
    if level not in LEVELS:
        raise _invalid("level", f"{level!r} is none of {', '.join(LEVELS)}")
    return LEVELS[level]


_TYPES = {
    "id": pa.string(),
    "time": pa.int64(),
    "lon": pa.float64(),
    "lat": pa.float64(),
    "text": pa.string(),
}


def _columns(columns: Mapping[str, Any]) -> pa.RecordBatch:
    arrays, names = [], []
    for name, values in columns.items():
        try:
            if name == "time" and len(values) and isinstance(values[0], datetime):
                values = [None if v is None else milliseconds(v) for v in values]
            arrays.append(pa.array(values, _TYPES.get(name)))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise _invalid(f"objects.{name}", str(error)) from None
        names.append(name)
    if len({len(a) for a in arrays}) > 1:
        raise _invalid("objects", "columns of different lengths")
    return pa.RecordBatch.from_arrays(arrays, names)


def _object(row: int, values: Mapping[str, Any]) -> object_pb2.Object:
    if unknown := set(values) - set(_TYPES):
        raise _invalid(f"objects[{row}]", f"unknown field {min(unknown)!r}")
    fields = {("time_ms" if k == "time" else k): v for k, v in values.items() if v is not None}
    try:
        if "time_ms" in fields:
            fields["time_ms"] = milliseconds(fields["time_ms"])
        return object_pb2.Object(**fields)
    except (TypeError, ValueError) as error:
        raise _invalid(f"objects[{row}]", str(error)) from None


def milliseconds(time: int | datetime) -> int:
    """Unix milliseconds; a datetime must have a time zone."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise ValueError(f"time {time.isoformat()} has no time zone")
    return round(time.timestamp() * 1000)


def _invalid(field: str, problem: str) -> InvalidArgument:
    return InvalidArgument([Violation(field, problem)])
