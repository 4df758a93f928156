"""Queries of requests, from messages or Arrow to the columns of inserts, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import InvalidArgument, Violation, invalid
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import (
    RectColumns,
    Regions,
    build_checked_rows,
    check_rows,
    delete_rows,
    id_problems,
)
from ps2stream.language.query_rows import describe as describe_source
from ps2stream.limits import BATCH_BYTES, POLYGON_VERTICES
from ps2stream.protocol.frame import I64, U8, column_to_strings, strings_to_column, take_ragged
from ps2stream.protocol.messages.updates import LookupReply
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.protocol.validity import add_validity
from ps2stream.service import arrow
from ps2stream.service.calls import name_problem
from ps2stream.service.ends import ENDED, NO_END, find_end_problems, mark_given_ends
from ps2stream.service.objects import RowRefusal
from ps2stream.service.plain_columns import PlainColumnReader
from ps2stream.space import geojson
from ps2stream.space.regions import RECT_FIELDS, Circle, Rect, Region, World
from ps2stream.tenants import own
from ps2stream.v1 import query_pb2

COLUMNS = {
    "id": arrow.STRING,
    "expression": arrow.STRING,
    **dict.fromkeys(RECT_FIELDS, arrow.DOUBLE),
    "until": arrow.TIME,
}
REQUIRED = tuple(name for name in COLUMNS if name != "until")
_plain_reader = PlainColumnReader(COLUMNS, REQUIRED)
_MOST_COMMAS = 5 * POLYGON_VERTICES
"""The most commas of a GeoJSON text: four for each position with elevation and measure, and room
for what is not a position."""
_NOWHERE = Rect(0.0, 0.0, 0.0, 0.0)
"""A stand-in for a bad region, so that the other fields of its row are checked too."""


class QueryInserts(NamedTuple):
    """The inserts of n rows: the good ones, which were rows `at` of the n, their sessions, and the
    refused ones."""

    n: int
    at: I64
    rows: QueryRows
    sessions: list[str]
    refused: list[RowRefusal]


class _QueryColumns(NamedTuple):
    """A batch of queries as they came; until: Unix ms, NO_END without one."""

    id: tuple[I64, U8]
    expression: tuple[I64, U8]
    regions: Regions
    sessions: list[str]
    refused: list[RowRefusal]
    until: I64

    def take(self, at: I64) -> _QueryColumns:
        if isinstance(self.regions, RectColumns):
            old = self.regions
            regions: Regions = RectColumns(
                old.lon_min[at],
                old.lat_min[at],
                old.lon_max[at],
                old.lat_max[at],
                old.is_world()[at],
            )
        else:
            regions = [self.regions[i] for i in at]
        return _QueryColumns(
            take_ragged(*self.id, at),
            take_ragged(*self.expression, at),
            regions,
            [self.sessions[i] for i in at],
            [],
            self.until[at],
        )


def read_query(
    query: query_pb2.Query, gateway: DispatcherGateway, retro: bool = False
) -> QueryInserts:
    """Returns the insert of one query; with `retro` it is also matched against the objects that are
    still valid. Raises InvalidArgument with paths below `query`."""
    found = _name_as_sent(_compile_inserts(_read_messages([query], ""), gateway, retro), [query])
    if found.refused:
        raise InvalidArgument([Violation(f"query.{r.field}", r.description) for r in found.refused])
    return found


def read_queries(
    batch: query_pb2.QueryBatch, gateway: DispatcherGateway, retro: bool = False
) -> QueryInserts:
    """Returns the inserts of a batch; `retro` is as in `read_query`. Raises InvalidArgument for
    what is wrong with the batch as a whole."""
    size = batch.ByteSize()
    if size > BATCH_BYTES:
        raise invalid("batch", f"{size} bytes are over the limit batch_bytes {BATCH_BYTES}")
    data = batch.arrow  # every access copies it
    if batch.queries and data:
        raise invalid("batch", "contains both queries and arrow; send one of them")
    if data:
        if problem := name_problem(batch.session, "session"):
            raise invalid("batch.session", problem)
        found = _read_arrow(data, batch.session)
    else:
        found = _read_messages(batch.queries, batch.session)
    if not found.sessions:
        raise invalid("batch", "holds no query")
    inserts = _compile_inserts(found, gateway, retro)
    return inserts if data else _name_as_sent(inserts, batch.queries)


def make_replacements(
    rows: QueryRows, at: I64, request_id: str, if_lsn: int = 0
) -> tuple[QueryRows, list[str]]:
    """Returns the inserts of rows `at` of a request as replacements, and the request id of each: as
    several may be of one query, it has the number of the row. So it is that of no delete either.
    if_lsn: the LSN of the queries that they may replace, 0 for any."""
    request_ids = [f"{request_id}\0{row}" if request_id else "" for row in at.tolist()]
    n = len(rows)
    kind, handle = np.full(n, UpdateKind.REPLACE, np.uint8), np.full(n, if_lsn, np.int64)
    return rows.replace(kind=kind, handle=handle), request_ids


def deletes(ids: Sequence[str]) -> QueryRows:
    """Returns the deletes of these ids, which must have been checked."""
    return delete_rows(strings_to_column(ids))


def read_deletes(ids: Sequence[str]) -> tuple[QueryRows, I64, list[RowRefusal]]:
    """Returns the deletes of the good ones of these ids, which of them those are, and the refused
    ones."""
    column, at = strings_to_column(ids), np.arange(len(ids))
    refused = [RowRefusal(*problem) for problem in id_problems(column)]
    if refused:
        at = np.setdiff1d(at, [r.row for r in refused])
        column = take_ragged(*column, at)
    return delete_rows(column), at, refused


def describe(reply: LookupReply) -> list[tuple[query_pb2.Query, int]]:
    """Returns each query that was found, as its client typed and named it, with its handle."""
    rows = QueryRows.decode(reply.rows.data)
    names = own(column_to_strings(reply.name_off, reply.name))
    return list(zip(describe_rows(rows, names), rows.handle.tolist(), strict=True))


def describe_rows(rows: QueryRows, sessions: Sequence[str]) -> list[query_pb2.Query]:
    """Returns each query as its client typed and named it, given the names of their sessions."""
    sources = rows.source.tobytes()
    at = rows.source_off.tolist()
    out = []
    for id_, session, a, b in zip(
        own(column_to_strings(rows.id_off, rows.id)),
        sessions,
        at[:-1],
        at[1:],
        strict=True,
    ):
        expression, region, canonical, until = describe_source(sources[a:b])
        query = query_pb2.Query(id=id_, expression=expression, session=session, canonical=canonical)
        if until:
            query.until_ms = until
        if region is None:
            pass
        elif region["type"] == "Rect":
            query.region.rectangle.CopyFrom(
                query_pb2.Rectangle(**{f: region[f] for f in RECT_FIELDS})
            )
        elif region["type"] == "Circle":
            query.region.circle.CopyFrom(
                query_pb2.Circle(**{f: region[f] for f in ("lon", "lat", "radius_km")})
            )
        else:
            query.region.geojson = json.dumps(region, separators=(",", ":"))
        out.append(query)
    return out


def _compile_inserts(found: _QueryColumns, gateway: DispatcherGateway, retro: bool) -> QueryInserts:
    """Compiles all queries, and when some are bad, the good ones again by themselves."""
    n = len(found.sessions)
    compiled = compile_column(*found.expression, gateway.analyzer, gateway.frequencies)
    refused = found.refused + [
        RowRefusal(*p) for p in check_rows(found.id, compiled, found.regions)
    ]
    if found.until.any():
        problems = find_end_problems(found.until, gateway.clock_ms())
        refused += [RowRefusal(row, "until", problem) for row, problem in problems]
    if not refused:
        rows = build_checked_rows(found.id, compiled, found.regions, found.expression)
        rows = add_validity(rows, found.until, np.full(n, retro))
        return QueryInserts(n, np.arange(n), rows, found.sessions, [])
    at = np.setdiff1d(np.arange(n), [r.row for r in refused])
    refused.sort()
    if not len(at):
        return QueryInserts(n, at, no_queries(), [], refused)
    good = _compile_inserts(found.take(at), gateway, retro)
    return QueryInserts(n, at, good.rows, good.sessions, refused)


def _read_arrow(data: bytes, session: str) -> _QueryColumns:
    if (plain := _plain_reader.read(data)) is not None:
        sides = RectColumns(*(plain.numbers[f] for f in RECT_FIELDS))
        until = plain.numbers.get("until")
        return _QueryColumns(
            plain.texts["id"],
            plain.texts["expression"],
            sides,
            [session] * plain.rows,
            [],
            np.zeros(plain.rows, np.int64) if until is None else mark_given_ends(until),
        )
    batch = arrow.open_batch(data, COLUMNS, REQUIRED)
    lon_min, lat_min, lon_max, lat_max = (arrow.doubles(batch, f) for f in RECT_FIELDS)
    absent = [arrow.nulls(batch, f) for f in RECT_FIELDS if batch.column(f).null_count]
    # A row without a region lacks all sides.
    world = np.logical_and.reduce(absent) if len(absent) == len(RECT_FIELDS) else None
    return _QueryColumns(
        arrow.strings(batch, "id"),
        arrow.strings(batch, "expression"),
        RectColumns(lon_min, lat_min, lon_max, lat_max, world),
        [session] * batch.num_rows,
        [],
        _read_ends(batch),
    )


def _read_ends(batch: pa.RecordBatch) -> I64:
    n = batch.num_rows
    if "until" not in batch.schema.names:
        return np.zeros(n, np.int64)
    until = mark_given_ends(arrow.times(batch, "until", NO_END, "batch.queries"))
    return np.where(arrow.nulls(batch, "until"), NO_END, until)


def _read_messages(queries: Sequence[query_pb2.Query], session: str) -> _QueryColumns:
    sessions = [q.session or session for q in queries]
    regions: list[Region] = []
    refused: list[RowRefusal] = []
    for row, query in enumerate(queries):
        if problem := name_problem(sessions[row], "session"):
            refused.append(RowRefusal(row, "session", problem))
        try:
            regions.append(_read_region(query))
        except InvalidArgument as error:
            refused += [RowRefusal(row, v.field, v.description) for v in error.violations]
            regions.append(_NOWHERE)
    return _QueryColumns(
        strings_to_column(q.id for q in queries),
        strings_to_column(q.expression for q in queries),
        regions,
        sessions,
        refused,
        np.fromiter(
            ((q.until_ms or ENDED) if q.HasField("until_ms") else NO_END for q in queries),
            np.int64,
            len(queries),
        ),
    )


def _name_as_sent(inserts: QueryInserts, queries: Sequence[query_pb2.Query]) -> QueryInserts:
    """Returns the inserts of messages with the fields of refused rows as the messages name them;
    columns have other names."""
    if not inserts.refused:
        return inserts
    refused = [r._replace(field=_name_field(r.field, queries[r.row])) for r in inserts.refused]
    return inserts._replace(refused=refused)


def _name_field(field: str, query: query_pb2.Query) -> str:
    if field == "until":
        return "until_ms"
    region, _, inner = field.partition(".")
    shape = query.region.WhichOneof("shape")
    if region != "region" or not inner or shape is None or inner == shape:
        return field
    return f"region.{shape}.{inner}"


def _read_region(query: query_pb2.Query) -> Region:
    if not query.HasField("region"):
        return World()
    match query.region.WhichOneof("shape"):
        case "rectangle":
            return Rect(*_read_numbers(query.region.rectangle, RECT_FIELDS))
        case "circle":
            return Circle(*_read_numbers(query.region.circle, ("lon", "lat", "radius_km")))
        case "geojson":
            return _read_polygon(query.region.geojson)
        case _:
            raise invalid("region", "has no shape")


def _read_numbers(
    shape: query_pb2.Rectangle | query_pb2.Circle, names: Sequence[str]
) -> list[float]:
    missing = [n for n in names if not shape.HasField(n)]  # type: ignore[arg-type]
    if missing:
        raise InvalidArgument([Violation(f"region.{n}", "is missing") for n in missing])
    return [getattr(shape, n) for n in names]


def _read_polygon(text: str) -> Region:
    if text.count(",") > _MOST_COMMAS:
        problem = f"more vertices than the limit polygon_vertices {POLYGON_VERTICES}"
        raise invalid("region.geojson", problem)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid("region.geojson", f"is not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("type") not in ("Polygon", "MultiPolygon"):
        raise invalid("region.geojson", "expected a GeoJSON Polygon or MultiPolygon")
    try:
        return geojson.from_json(value)
    except OverflowError:
        raise invalid("region.geojson", "a number is too large") from None
