"""What both clients share: values, requests made of them, answers and errors read.

Nothing here talks to anyone.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from ps2stream import geojson
from ps2stream.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Ps2StreamError,
    ResourceExhausted,
    Unavailable,
    Violation,
)
from ps2stream.limits import BATCH_BYTES
from ps2stream.space import RECT_FIELDS, Circle, Polygon, Rect, Region, World
from ps2stream.v1 import admin_pb2, object_pb2, pubsub_pb2, query_pb2

DEFAULT_TARGET = "localhost:7077"
QUERY_BATCH = 1000
BULK_BYTES = BATCH_BYTES // 2
DETAILS_KEY = "grpc-status-details-bin"
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


class Refused(NamedTuple):
    """A row of a batch that was not taken: its index, and an error as the service gives it
    for a single one."""

    row: int
    error: Ps2StreamError


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """Where a batch was accepted: object i of the accepted has offset `first_offset + i` in
    `partition` and is matched as of `lsn`. `level` is the one that held."""

    level: str
    partition: int
    first_offset: int
    accepted: int
    lsn: int
    refused: tuple[Refused, ...] = ()
    retry_after_ms: int = 0


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


def query_of(message: query_pb2.Query) -> Query:
    """A query as the service shows it."""
    region: Region | None = None
    match message.region.WhichOneof("shape"):
        case "rectangle":
            region = Rect(*(getattr(message.region.rectangle, f) for f in RECT_FIELDS))
        case "circle":
            circle = message.region.circle
            region = Circle(circle.lon, circle.lat, circle.radius_km)
        case "geojson":
            region = geojson.from_json(json.loads(message.region.geojson))
    return Query(message.id, message.expression, region, message.session)


def insert_request(
    id: str, expression: str, region: Places, session: str
) -> pubsub_pb2.InsertQueryRequest:
    query = query_to_proto((id, expression, region), session)
    return pubsub_pb2.InsertQueryRequest(query=query, request_id=new_request_id())


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


class BulkAnswers:
    """Collects the answers of a bulk call."""

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self.refused: list[Refused] = []

    def add(
        self, answer: pubsub_pb2.InsertQueriesResponse | pubsub_pb2.DeleteQueriesResponse
    ) -> None:
        """The next answer."""
        self.refused += refusals(answer.errors, "queries", len(self.lsns))
        self.lsns += answer.lsns

    def result(self, refused: list[Refused] | None) -> list[int]:
        """The LSN of each row; 0 where it was refused. Without a list to put them into,
        refused rows raise InvalidArgument, else AlreadyExists or NotFound."""
        if refused is not None:
            refused += self.refused
        elif self.refused:
            invalid = [r.error for r in self.refused if isinstance(r.error, InvalidArgument)]
            if invalid:
                raise InvalidArgument([v for e in invalid for v in e.violations])
            raise self.refused[0].error
        return self.lsns


def refusals(errors: Iterable[query_pb2.RowError], name: str, base: int = 0) -> tuple[Refused, ...]:
    """The rows that a batch refused; paths in the errors begin with `name[row]`."""
    out = []
    for e in errors:
        row = base + e.row
        error: Ps2StreamError
        if e.code == query_pb2.ROW_CODE_ALREADY_EXISTS:
            error = AlreadyExists(f"{name}[{row}]: {e.description}")
        elif e.code == query_pb2.ROW_CODE_NOT_FOUND:
            error = NotFound(f"{name}[{row}]: {e.description}")
        else:
            error = _invalid(f"{name}[{row}].{e.field}", e.description)
        out.append(Refused(row, error))
    return tuple(out)


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


def receipt_of(
    answer: pubsub_pb2.PublishResponse | pubsub_pb2.PublishStreamResponse,
) -> Receipt:
    names = {v: k for k, v in LEVELS.items()}
    return Receipt(
        names.get(answer.level, ""),
        answer.partition,
        answer.first_offset,
        answer.accepted,
        answer.lsn,
        refusals(answer.refused, "objects"),
        answer.retry_after_ms if isinstance(answer, pubsub_pb2.PublishStreamResponse) else 0,
    )


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


# --- status and errors ----------------------------------------------------


def status_of(answer: admin_pb2.GetStatusResponse) -> dict[str, Any]:
    """A flat dict; whole numbers as int."""
    out: dict[str, Any] = {
        "version": answer.version,
        "plan_version": answer.plan_version,
        "dispatcher": answer.dispatcher,
        "live_queries": answer.live_queries,
        "streams": answer.streams,
        "in_flight": answer.in_flight,
    }
    for name, value in sorted(answer.counters.items()):
        out[name] = int(value) if value.is_integer() else value
    return out


def error_of(code: str, message: str, details: bytes | None) -> Exception:
    """The exception for a gRPC status: code by name, `details` the google.rpc.Status."""
    status = status_pb2.Status()
    if details:
        try:
            status = status_pb2.Status.FromString(details)
        except DecodeError:
            status = status_pb2.Status(message=message)
    match code:
        case "INVALID_ARGUMENT":
            bad = error_details_pb2.BadRequest()
            for detail in status.details:
                detail.Unpack(bad)
            found = [Violation(v.field, v.description) for v in bad.field_violations]
            return InvalidArgument(found or [Violation("request", message)])
        case "RESOURCE_EXHAUSTED":
            retry = error_details_pb2.RetryInfo()
            if any(detail.Unpack(retry) for detail in status.details):
                return ResourceExhausted(message, retry.retry_delay.ToMilliseconds())
            if "larger than max" in message:  # gRPC's own refusal, which no retry can help
                return _invalid("request", message)
            return ResourceExhausted(message, 0)
        case "DEADLINE_EXCEEDED":
            return TimeoutError(message)
    kinds: dict[str, type[Ps2StreamError]] = {
        "ALREADY_EXISTS": AlreadyExists,
        "NOT_FOUND": NotFound,
        "FAILED_PRECONDITION": FailedPrecondition,
        "UNAVAILABLE": Unavailable,
    }
    kind = kinds.get(code)
    return kind(message) if kind else Ps2StreamError(f"{code}: {message}")


def pause_before(error: Exception, attempt: int, repeatable: bool) -> float | None:
    """Seconds to wait before trying again; None when trying again makes no sense.

    A full service has accepted nothing, so any call may be repeated; after UNAVAILABLE only
    one that is `repeatable` without doing its work twice.
    """
    backoff = min(2.0, 0.05 * 2.0 ** min(attempt, 10))
    if isinstance(error, ResourceExhausted) and error.retry_after_ms:
        return max(backoff, error.retry_after_ms / 1000)
    if isinstance(error, Unavailable) and repeatable:
        return backoff
    return None


def _invalid(field: str, problem: str) -> InvalidArgument:
    return InvalidArgument([Violation(field, problem)])
