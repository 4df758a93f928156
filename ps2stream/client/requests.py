"""The values that both clients share, and the requests that are built from them.

Nothing here does I/O.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from ps2stream.client.attributes import named
from ps2stream.client.inputs import (
    Moment,
    end_to_milliseconds,
    object_batch,
    region_of_value,
    request_of,
)
from ps2stream.errors import invalid
from ps2stream.limits import BATCH_BYTES
from ps2stream.space.regions import RECT_FIELDS, Circle, Polygon, Rect, Region, World
from ps2stream.v1 import explain_pb2, object_pb2, pubsub_pb2, query_pb2

DEFAULT_TARGET = "localhost:7077"
LONGEST_S = 1e8
"""The longest time limit that waits and calls get; gRPC and Python refuse much longer ones."""
QUERY_BATCH = 1000
BULK_BYTES = BATCH_BYTES // 2
_QUERY = ("id", "expression", "region")
Publication = TypeVar("Publication", pubsub_pb2.PublishRequest, pubsub_pb2.PublishStreamRequest)
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
LEVELS = {
    "accepted": object_pb2.PUBLISH_LEVEL_ACCEPTED,
    "durable": object_pb2.PUBLISH_LEVEL_DURABLE,
    "none": object_pb2.PUBLISH_LEVEL_NONE,
}


class HasGeoInterface(Protocol):
    """A geometry or feature of shapely, geopandas and others."""

    @property
    def __geo_interface__(self) -> Any: ...


Places = (
    Mapping[str, Any] | Rect | Circle | Polygon | World | Sequence[float] | HasGeoInterface | None
)
"""A region: one of `ps2stream.space.regions`, its JSON form, GeoJSON, a geometry of another
library such as shapely, four sides (west, south, east, north), or None for the whole world."""


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """A standing query. The region None is the whole world. `canonical` is the expression as the
    service understood it, in queries that it returns; it does not matter to equality. `until` is
    the end of the query in Unix milliseconds, None for none. `lsn` is that of its insert in a query
    that `get` returns, else 0; it does not matter to equality either."""

    id: str
    expression: str = ""
    region: Region | None = None
    session: str = ""
    canonical: str = dataclasses.field(default="", compare=False)
    until: int | None = None
    lsn: int = dataclasses.field(default=0, compare=False)


# --- queries --------------------------------------------------------------


def region_to_proto(value: Any) -> query_pb2.Region | None:
    """Returns the message of a region, None for the whole world. Raises InvalidArgument for what is
    no region."""
    match region_of_value(value):
        case Rect() as region:
            sides = {f: getattr(region, f) for f in RECT_FIELDS}
            return query_pb2.Region(rectangle=query_pb2.Rectangle(**sides))
        case Circle(lon, lat, km):
            return query_pb2.Region(circle=query_pb2.Circle(lon=lon, lat=lat, radius_km=km))
        case Polygon() as region:
            return query_pb2.Region(geojson=json.dumps(region.to_json()))
        case _:
            return None


_BESIDES = ("session", "canonical", "until", "lsn")
"""Fields of a query that need not be given, or are not read."""


def query_to_proto(query: Any, session: str = "") -> query_pb2.Query:
    """Builds the message of a query from a Query, a mapping with its fields or (id, expression[,
    region]). Raises InvalidArgument."""
    if isinstance(query, Query):
        values: Mapping[str, Any] = {f: getattr(query, f) for f in Query.__slots__}
    elif isinstance(query, Mapping):
        values = query
    elif isinstance(query, tuple | list) and len(query) <= len(_QUERY):
        values = dict(zip(_QUERY, query, strict=False))
    else:
        raise invalid("query", f"expected a Query, a mapping or ({', '.join(_QUERY)}), "
                       f"got {named(query)}")  # fmt: skip
    if values.get("id") is None:
        raise invalid("query.id", "is required")
    if unknown := sorted(str(name) for name in values if name not in (*_QUERY, *_BESIDES)):
        raise invalid("query", f"unknown field {unknown[0]!r}; expected {', '.join(_QUERY)}")
    texts = {"id": "", "expression": "", "session": session}
    texts |= {name: values[name] for name in texts if values.get(name) is not None}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise invalid(f"query.{name}", f"expected a string, got {named(text)}")
    texts["session"] = texts["session"] or session
    region = region_to_proto(values.get("region"))
    until_ms = end_to_milliseconds("query.until", values.get("until"))
    try:
        return query_pb2.Query(region=region, until_ms=until_ms, **texts)
    except ValueError as error:
        raise invalid("query", f"is not Unicode text: {error}") from None


def insert_request(
    id: str,
    expression: str,
    region: Places,
    session: str,
    replace: bool = False,
    until: Moment | None = None,
    retro: bool = False,
    if_lsn: int = 0,
) -> pubsub_pb2.InsertQueryRequest:
    values = {"id": id, "expression": expression, "region": region, "until": until}
    query = query_to_proto(values, session)
    if not query.expression and not query.HasField("region"):
        problem = f"a query needs an expression or a region: insert({id!r}, 'flood AND river')"
        raise invalid("query.expression", problem)
    return request_of(
        pubsub_pb2.InsertQueryRequest,
        query=query,
        request_id=new_request_id(),
        replace=replace,
        retro=retro,
        if_lsn=if_lsn,
    )


def explain_request(query: Any, thing: Any) -> explain_pb2.ExplainMatchRequest:
    """Builds the request that explains a match, from the id of a live query or from a query as in
    `query_to_proto`, and from a mapping as in `object_batch`. Raises InvalidArgument."""
    [row] = object_batch([thing]).objects
    if isinstance(query, Query | Mapping | tuple | list):
        return explain_pb2.ExplainMatchRequest(query=query_to_proto(query), object=row)
    return request_of(explain_pb2.ExplainMatchRequest, query_id=query, object=row)


def price_request(expression: str, region: Places) -> explain_pb2.PriceQueryRequest:
    return explain_pb2.PriceQueryRequest(query=query_to_proto(("", expression, region), ""))


def insert_batches(
    queries: Iterable[Any], session: str, replace: bool = False, retro: bool = False
) -> Iterator[pubsub_pb2.InsertQueriesRequest]:
    """Yields insert requests of at most QUERY_BATCH queries and BULK_BYTES bytes."""
    flags = request_of(pubsub_pb2.InsertQueriesRequest, replace=replace, retro=retro)
    for part in _split_batches(query_to_proto(q, session) for q in many("queries", queries)):
        yield pubsub_pb2.InsertQueriesRequest(
            batch=query_pb2.QueryBatch(queries=part, session=session),
            request_id=new_request_id(),
            replace=flags.replace,
            retro=flags.retro,
        )


def _split_batches(rows: Iterable[query_pb2.Query]) -> Iterator[list[query_pb2.Query]]:
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
    """Yields delete requests of at most QUERY_BATCH ids."""
    rows = iter(many("ids", ids))
    while part := list(islice(rows, QUERY_BATCH)):
        yield request_of(pubsub_pb2.DeleteQueriesRequest, ids=part, request_id=new_request_id())


def withdraw_batches(ids: Iterable[str]) -> Iterator[pubsub_pb2.WithdrawObjectsRequest]:
    """Yields requests of at most QUERY_BATCH ids that withdraw objects."""
    rows = iter(many("ids", ids))
    while part := list(islice(rows, QUERY_BATCH)):
        yield request_of(pubsub_pb2.WithdrawObjectsRequest, ids=part)


def many(name: str, values: Any) -> Iterable[Any]:
    """Returns values that can be iterated over, and refuses a string, which is not meant letter by
    letter. Raises InvalidArgument."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise invalid(name, f"expected several, got {named(values)}")
    return values


def new_request_id() -> str:
    """Returns a new name for one attempt and its retries."""
    return uuid.uuid4().hex


# --- objects --------------------------------------------------------------


def publish_request(
    objects: Any, level: str, allow_partial: bool, producer: str = "", seq: int = 0
) -> pubsub_pb2.PublishRequest:
    """Builds the request of a publication. Raises InvalidArgument."""
    kind = pubsub_pb2.PublishRequest
    return _build_publication(kind, objects, level, allow_partial, producer, seq)


def publish_stream_request(
    objects: Any, level: str, allow_partial: bool, producer: str = "", seq: int = 0
) -> pubsub_pb2.PublishStreamRequest:
    """Builds a request of PublishStream, which has the fields of PublishRequest. Raises
    InvalidArgument."""
    kind = pubsub_pb2.PublishStreamRequest
    request = _build_publication(kind, objects, level, allow_partial, producer, seq)
    request.join_answers = True
    return request


def _build_publication(
    kind: type[Publication], objects: Any, level: str, allow_partial: bool, producer: str, seq: int
) -> Publication:
    if bool(producer) != bool(seq):
        problem = "expected both or none: a producer numbers its publications from 1"
        raise invalid("seq" if producer else "producer", problem)
    named = request_of(kind, producer=producer, seq=seq)
    return kind(  # this copies the batch, for which it is encoded and parsed; so only once
        batch=object_batch(objects),
        level=_check_level(level),
        allow_partial=allow_partial,
        producer=named.producer,
        seq=named.seq,
    )


def _check_level(level: str) -> object_pb2.PublishLevel.ValueType:
    if not isinstance(level, str) or level not in LEVELS:
        raise invalid("level", f"expected one of {', '.join(LEVELS)}, got {named(level)}")
    return LEVELS[level]
