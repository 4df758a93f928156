"""The service's answers as values: receipts, refused rows, status, errors, and when to retry."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from ps2stream.client.field_names import invalid_field
from ps2stream.client.joining import RequestJoiner
from ps2stream.client.requests import LEVELS, Query
from ps2stream.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    Ps2StreamError,
    ResourceExhausted,
)
from ps2stream.security import QUOTA_RETRY_MS
from ps2stream.space import geojson
from ps2stream.space.regions import RECT_FIELDS, Circle, Rect, Region
from ps2stream.v1 import admin_pb2, explain_pb2, pubsub_pb2, query_pb2


class RefusedRow(NamedTuple):
    """A row of a batch that was not accepted: its index in the batch, and the error that the
    service would give for it alone."""

    row: int
    error: Ps2StreamError


class InsertedQuery(int):
    """The LSN of an insert, with what the service understood of the query.

    `expression` is canonical. `area` is a dict with the fields of AreaSummary, None for the whole
    world. `warnings` say what looks like a mistake, and what may have been meant.
    """

    expression: str
    area: dict[str, Any] | None
    warnings: tuple[str, ...]


class QueryPage(NamedTuple):
    """A page of a list of queries; `next` leads to the next one, and is empty on the last."""

    queries: list[Query]
    next: str


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """The place where a batch was accepted, and at which level.

    Of the `accepted` objects, object i has offset `first_offset + i` in `partition` and is matched
    against the queries as of `lsn`. `level` is the one that took effect. `refused` are the rows
    that were not accepted. `retry_after_ms` is set when a full service or a quota refused the whole
    batch: the time to wait before sending it again.
    """

    level: str
    partition: int
    first_offset: int
    accepted: int
    lsn: int
    refused: tuple[RefusedRow, ...] = ()
    retry_after_ms: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret. Times are in Unix milliseconds; `expires_ms` is 0 for a token
    that never expires."""

    id: str
    tenant: str
    scopes: tuple[str, ...]
    created_ms: int
    expires_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationInfo:
    """A change from one plan to another that has ended.

    `began_lsn`, `switched_lsn` and `ended_lsn` have their times in Unix ms beside them;
    `switched_lsn` is 0 when the change was aborted. `coexisting_lsn` is the LSN since which new
    queries belonged to the new plan if the two coexisted, else 0.

    Workers fetched `queries` queries of `bytes` bytes. `objects` were accepted meanwhile; the
    matches of `delayed` of them took more than 0.1 s to be durable, those of `stalled` more than 1
    s. `collapsed` counts the matches that two workers found and a merger made into one. At the end,
    workers lacked `missing` postings of what they own, and held `surplus` postings beyond it; both
    must be 0. None means not measured.
    """

    from_version: int
    to_version: int
    outcome: str
    began_lsn: int
    switched_lsn: int
    ended_lsn: int
    coexisting_lsn: int = 0
    coexisting_ms: int | None = None
    began_ms: int | None = None
    switched_ms: int | None = None
    ended_ms: int | None = None
    queries: int | None = None
    bytes: int | None = None
    objects: int | None = None
    delayed: int | None = None
    stalled: int | None = None
    collapsed: int | None = None
    missing: int | None = None
    surplus: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationHistory:
    """The plan in force, the plan change under way, and those that ended.

    `plan_version` and `workers` are those of the plan in force, `following_version` is that of the
    plan that follows, 0 without one. `state` says how far the change is: none, coexisting,
    transferring, ready or retiring; `began_lsn`, `switched_lsn` and `coexisting_lsn` are the LSNs
    of its steps, 0 for a step that was not taken. Of the `live_queries`, `old_queries` belong to
    the old one of two plans that coexist. They have coexisted since `coexisting_ms` (Unix ms; None
    when that is not known, or when they do not). `migrations` are the plan changes that ended,
    oldest first. `pending_version` is that of the plan with another grid that waits for the next
    start, 0 without one.
    """

    plan_version: int
    workers: int
    following_version: int
    state: str
    began_lsn: int
    switched_lsn: int
    coexisting_lsn: int
    live_queries: int
    old_queries: int
    coexisting_ms: int | None
    migrations: tuple[MigrationInfo, ...]
    pending_version: int = 0

    @property
    def old_share(self) -> float:
        """The share of the live queries that belongs to the old plan, from 0 to 1."""
        return self.old_queries / self.live_queries if self.live_queries else 0.0


def inserted_query_of(answer: pubsub_pb2.InsertQueryResponse) -> InsertedQuery:
    """Reads the answer to an insert."""
    inserted = InsertedQuery(answer.lsn)
    found = answer.interpretation
    inserted.expression = found.expression
    inserted.area = plain(found.area) if found.HasField("area") else None
    inserted.warnings = tuple(found.warnings)
    return inserted


def query_of(message: query_pb2.Query, lsn: int = 0) -> Query:
    """Reads a query as the service shows it; lsn: that of its insert, 0 if it is not known."""
    region: Region | None = None
    match message.region.WhichOneof("shape"):
        case "rectangle":
            region = Rect(*(getattr(message.region.rectangle, f) for f in RECT_FIELDS))
        case "circle":
            circle = message.region.circle
            region = Circle(circle.lon, circle.lat, circle.radius_km)
        case "geojson":
            region = geojson.from_json(json.loads(message.region.geojson), stored=True)
    named = message.id, message.expression, region, message.session
    until = message.until_ms if message.HasField("until_ms") else None
    return Query(*named, message.canonical, until, lsn)


def query_page_of(page: pubsub_pb2.ListQueriesResponse) -> QueryPage:
    return QueryPage([query_of(query) for query in page.queries], page.next_page_token)


class BulkAnswers:
    """The collected answers of a bulk call."""

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self.refused: list[RefusedRow] = []

    def add(
        self, answer: pubsub_pb2.InsertQueriesResponse | pubsub_pb2.DeleteQueriesResponse
    ) -> None:
        """Adds the next answer."""
        self.refused += refusals(answer.errors, "queries", len(self.lsns))
        self.lsns += answer.lsns

    def result(self, refused: list[RefusedRow] | None) -> list[int]:
        """Returns the LSN of each row, 0 for a refused one, and adds refused rows to `refused`.
        Without that list, refused rows raise InvalidArgument, or if none is invalid the error of
        the first of them."""
        if refused is not None:
            refused += self.refused
        elif self.refused:
            invalid = [r.error for r in self.refused if isinstance(r.error, InvalidArgument)]
            if invalid:
                raise InvalidArgument([v for e in invalid for v in e.violations])
            raise self.refused[0].error
        return self.lsns


def refusals(
    errors: Iterable[query_pb2.RowError], name: str, base: int = 0
) -> tuple[RefusedRow, ...]:
    """Returns the rows that a batch refused; paths in their errors begin with `name[row]`."""
    out = []
    for e in errors:
        row = base + e.row
        error: Ps2StreamError
        if e.code == query_pb2.ROW_CODE_ALREADY_EXISTS:
            error = AlreadyExists(f"{name}[{row}]: {e.description}")
        elif e.code == query_pb2.ROW_CODE_NOT_FOUND:
            error = NotFound(f"{name}[{row}]: {e.description}")
        elif e.code == query_pb2.ROW_CODE_RESOURCE_EXHAUSTED:
            error = ResourceExhausted(f"{name}[{row}]: {e.description}", QUOTA_RETRY_MS)
        else:
            error = invalid_field(f"{name}[{row}].{e.field}", e.description)
        out.append(RefusedRow(row, error))
    return tuple(out)


def read_receipts(joiner: RequestJoiner, data: bytes) -> Sequence[Receipt]:
    """Returns the receipts of the batches that a response of PublishStream answers, in order. If
    the service takes joined requests, the joiner may join them from now on."""
    first = pubsub_pb2.PublishStreamResponse.FromString(data)
    joiner.is_allowed |= first.takes_following
    return [receipt_of(answer) for answer in (first, *first.following)]


def receipt_of(
    answer: pubsub_pb2.PublishResponse | pubsub_pb2.PublishStreamResponse,
) -> Receipt:
    """Reads the answer to a publication."""
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


def status_of(answer: admin_pb2.GetStatusResponse) -> dict[str, Any]:
    """Returns the status as a flat dict: whole numbers as int, `endpoints` and `problems` as lists,
    `census` as a dict with the fields of Census, None until there is one."""
    out: dict[str, Any] = {
        "version": answer.version,
        "plan_version": answer.plan_version,
        "dispatcher": answer.dispatcher,
        "live_queries": answer.live_queries,
        "streams": answer.streams,
        "in_flight": answer.in_flight,
        "endpoints": list(answer.endpoints),
        "healthy": not answer.problems,
        "problems": list(answer.problems),
        "census": plain(answer.census) if answer.HasField("census") else None,
    }
    for name, value in sorted(answer.counters.items()):
        out[name] = int(value) if value.is_integer() else value
    return out


def plain(answer: Message) -> dict[str, Any]:
    """Returns a message as a dict, with None for an optional field that is absent."""
    out: dict[str, Any] = {}
    for field in answer.DESCRIPTOR.fields:
        value = getattr(answer, field.name)
        if field.is_repeated:
            out[field.name] = [plain(v) if isinstance(v, Message) else v for v in value]
        else:
            absent = field.has_presence and not answer.HasField(field.name)
            shown = plain(value) if isinstance(value, Message) else value
            out[field.name] = None if absent else shown
    return out


def explanation_of(answer: explain_pb2.ExplainMatchResponse) -> dict[str, Any]:
    """Returns the message as a dict, with the query as `ps2stream list --json` prints it."""
    query = query_of(answer.query)
    region = None if query.region is None else query.region.to_json()
    fields = {"id": query.id, "session": query.session, "expression": query.expression}
    return plain(answer) | {"query": fields | {"region": region}}


class WatchedObject(NamedTuple):
    """An object: its position in degrees, its time in Unix ms, and the beginning of its text."""

    id: str
    partition: int
    offset: int
    time_ms: int
    lon: float
    lat: float
    text: str


class WatchedMatch(NamedTuple):
    """A match of one of the caller's own queries. `query_lsn` tells the query from others that had
    its id; `session` is the number of the session that gets the match."""

    object: WatchedObject
    query_id: str
    query_lsn: int
    session: int


class WatchReport(NamedTuple):
    """A message of Watch: samples and counts since the message before.

    `objects` are some of the `accepted` objects, `matches` some of the `matched` pairs.
    `latency_ms` has an entry for each batch whose matches became durable: how long that took since
    the batch was routed. `missed` counts the messages since the stream began that a slow reader has
    missed. `withdrawn` are ids of objects that were withdrawn: show those no longer.
    """

    objects: tuple[WatchedObject, ...]
    matches: tuple[WatchedMatch, ...]
    accepted: int
    matched: int
    latency_ms: tuple[float, ...]
    missed: int
    withdrawn: tuple[str, ...] = ()


def watched_of(data: bytes) -> WatchReport:
    """Reads a message of Watch."""
    answer = admin_pb2.WatchResponse.FromString(data)
    matches = (
        WatchedMatch(_read_watched_object(m.object), m.query_id, m.query_lsn, m.session)
        for m in answer.matches
    )
    return WatchReport(
        tuple(map(_read_watched_object, answer.objects)),
        tuple(matches),
        answer.accepted,
        answer.matched,
        tuple(answer.latency_ms),
        answer.missed,
        tuple(answer.withdrawn),
    )


def _read_watched_object(o: admin_pb2.WatchedObject) -> WatchedObject:
    return WatchedObject(o.id, o.partition, o.offset, o.time_ms, o.lon, o.lat, o.text)


def create_token_request(
    tenant: str, scopes: Iterable[str], expires_ms: int
) -> admin_pb2.CreateTokenRequest:
    """Builds the request for a new token. Raises InvalidArgument for an unknown scope."""
    names = {f"SCOPE_{scope.upper()}" for scope in scopes}
    if unknown := names - set(admin_pb2.Scope.keys()):
        raise invalid_field("scopes", f"there is no scope {min(unknown)[6:].lower()!r}")
    found = sorted(admin_pb2.Scope.Value(name) for name in names)
    return admin_pb2.CreateTokenRequest(tenant=tenant, scopes=found, expires_ms=expires_ms)


def token_of(token: admin_pb2.Token) -> TokenInfo:
    """Reads a token as the service shows it."""
    scopes = tuple(admin_pb2.Scope.Name(s)[6:].lower() for s in token.scopes)
    return TokenInfo(token.id, token.tenant, scopes, token.created_ms, token.expires_ms)


def migrations_of(answer: admin_pb2.GetMigrationsResponse) -> MigrationHistory:
    """Reads the answer to GetMigrations."""
    return MigrationHistory(
        answer.plan_version,
        answer.workers,
        answer.following_version,
        admin_pb2.MigrationState.Name(answer.state).removeprefix("MIGRATION_STATE_").lower(),
        answer.began_lsn,
        answer.switched_lsn,
        answer.coexisting_lsn,
        answer.live_queries,
        answer.old_queries,
        answer.coexisting_ms if answer.HasField("coexisting_ms") else None,
        tuple(map(_read_migration, answer.migrations)),
        answer.pending_version,
    )


def _read_migration(message: admin_pb2.Migration) -> MigrationInfo:
    named = {field.name: value for field, value in message.ListFields()}
    outcome = admin_pb2.MigrationOutcome.Name(message.outcome)
    named["outcome"] = outcome.removeprefix("MIGRATION_OUTCOME_").lower()
    return MigrationInfo(**{"switched_lsn": 0} | named)
