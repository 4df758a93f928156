"""The operations of the HTTP interface: the one table of which its routes and its documents are
made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ps2stream.limits import BATCH_ROWS, EXPRESSION_BYTES
from ps2stream.web.api.output import FIELDS, FORMATS
from ps2stream.web.api.schemas import refer

JSON = "application/json"
GEOJSON = "application/geo+json"
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
"""The types of JSON lines."""
EVENT_STREAM = "text/event-stream"
LEVELS = ("durable", "accepted", "none")
PAGE = 100
PAGE_MAX = 1000
Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}


class Parameter(NamedTuple):
    """A parameter of an address, a path or a header."""

    name: str
    description: str
    place: str = "query"
    schema: Schema = TEXT
    required: bool = False


class Answer(NamedTuple):
    """An answer that is no error: its status, type and schema; both are empty for no body."""

    status: int
    description: str
    media: str = ""
    schema: Schema | None = None
    headers: tuple[str, ...] = ()


class Operation(NamedTuple):
    """One method of one path. `name` says which handler answers it; `bodies` are the types that the
    body of a request may have, each with its schema; `errors` are the statuses of its own errors,
    beside COMMON_ERRORS."""

    name: str
    method: str
    path: str
    summary: str
    answer: Answer
    parameters: tuple[Parameter, ...] = ()
    bodies: tuple[tuple[str, Schema], ...] = ()
    errors: tuple[int, ...] = ()


COMMON_ERRORS = (400, 401, 403, 421, 429, 503)
"""The statuses of errors that every operation has."""
ERRORS = {
    400: "a field is wrong; `violations` names it",
    401: "there is no token, or the service does not know it",
    403: "the token lacks the scope, or the request is of another page",
    404: "there is no such query or cursor of this identity",
    408: "the body did not come in time",
    409: "the id is taken, or the state of the service forbids it",
    413: "the body is too large; its unpacked bytes count",
    415: "the body is of another type or packing",
    421: "the host is not this server's",
    422: "the key was used with other objects",
    429: "a limit or quota is reached; Retry-After says when to come again",
    503: "the service is away; Retry-After says when to come again",
}
_BODY_ERRORS = (408, 413, 415)
_PLACES = (
    Parameter("near", "circle LON,LAT,KM"),
    Parameter("bbox", "rectangle WEST,SOUTH,EAST,NORTH; WEST > EAST crosses the antimeridian"),
    Parameter("polygon", "LON,LAT;LON,LAT;... or a GeoJSON Polygon or MultiPolygon"),
)
_EXPRESSION = Parameter(
    "q",
    "expression, such as flood AND (river OR creek)",
    schema={"type": "string", "maxLength": EXPRESSION_BYTES},
)
_ID = Parameter("id", "id of a live query", "path", required=True)
_STREAM = (
    _EXPRESSION,
    *_PLACES,
    Parameter("session", "existing session whose matches are sent, instead of a query"),
    Parameter("fields", f"fields of the objects: some of {','.join(FIELDS)}, with commas"),
    Parameter("format", "form of the matches", schema={"type": "string", "enum": list(FORMATS)}),
    Parameter("cursor", "place from which the stream goes on: the id of an event"),
)
_POSTS = {"anyOf": [refer(name) for name in ("Post", "Posts", "Feature", "FeatureCollection")]}

OPERATIONS = (
    Operation(
        "read_health",
        "GET",
        "/v1/health",
        "Tells whether the service serves",
        Answer(204, "it does"),
    ),
    Operation(
        "keep_token",
        "POST",
        "/v1/cookie",
        "Keeps the token of the Authorization header in an HttpOnly cookie, for a browser",
        Answer(204, "kept"),
    ),
    Operation("drop_token", "DELETE", "/v1/cookie", "Forgets the token", Answer(204, "forgotten")),
    Operation(
        "read_stream",
        "GET",
        "/v1/stream",
        "Sends matches as server-sent events, or over a WebSocket: of a query that is made for the "
        "stream and deleted five minutes after its last reader, or of a session",
        Answer(200, "events ready, match, gap and end; each id is a cursor", EVENT_STREAM, TEXT),
        (*_STREAM, Parameter("Last-Event-ID", "cursor, as a browser sends it", "header")),
        errors=(404, 409),
    ),
    Operation(
        "check_stream",
        "HEAD",
        "/v1/stream",
        "Checks the parameters of a stream, and makes nothing",
        Answer(200, "the parameters are sound"),
        _STREAM,
    ),
    Operation(
        "insert_query",
        "POST",
        "/v1/queries",
        "Inserts a standing query; a repeat with the same id changes nothing",
        Answer(201, "inserted", JSON, refer("InsertedQuery"), ("Location",)),
        bodies=((JSON, refer("NewQuery")),),
        errors=(409, *_BODY_ERRORS),
    ),
    Operation(
        "list_queries",
        "GET",
        "/v1/queries",
        "Lists the live queries of a session, or of all, in the order of their insertion",
        Answer(200, "a page", JSON, refer("QueryPage")),
        (
            Parameter("session", "session whose queries are listed"),
            Parameter(
                "limit",
                f"largest number of queries on the page; {PAGE} without it",
                schema={"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
            ),
            Parameter("after", "value of `next` of the page before"),
        ),
        errors=(404,),
    ),
    Operation(
        "show_query",
        "GET",
        "/v1/queries/{id}",
        "Shows a live query",
        Answer(200, "the query", JSON, refer("Query")),
        (_ID,),
        errors=(404,),
    ),
    Operation(
        "delete_query",
        "DELETE",
        "/v1/queries/{id}",
        "Deletes a query",
        Answer(200, "deleted", JSON, refer("Deletion")),
        (_ID,),
        errors=(404,),
    ),
    Operation(
        "publish_objects",
        "POST",
        "/v1/objects",
        f"Publishes posts as one batch of at most {BATCH_ROWS}, whole or not at all",
        Answer(200, "accepted", JSON, refer("Receipt")),
        (
            Parameter(
                "level",
                "guarantee that the posts have when the request is answered; durable without it",
                schema={"type": "string", "enum": list(LEVELS)},
            ),
            Parameter(
                "Idempotency-Key",
                "name of the publication: a repeat with the same key and posts gets the first "
                "answer. PRODUCER/NUMBER is a publication of a producer that numbers them, from 1",
                "header",
                {"type": "string", "minLength": 1, "maxLength": 128},
            ),
            Parameter(
                "Content-Encoding",
                "packing of the body",
                "header",
                {"type": "string", "enum": ["gzip", "identity"]},
            ),
        ),
        (
            (JSON, _POSTS),
            (GEOJSON, {"anyOf": [refer("Feature"), refer("FeatureCollection")]}),
            *((kind, TEXT) for kind in LINES),
        ),
        (409, 422, *_BODY_ERRORS),
    ),
    Operation(
        "price_query",
        "GET",
        "/v1/price",
        "Estimates how many matches a query would bring and what it would cost; nothing is "
        "inserted",
        Answer(200, "the estimate", JSON, refer("Price")),
        (_EXPRESSION, *_PLACES),
        errors=(409,),
    ),
    Operation(
        "explain_match",
        "GET",
        "/v1/explain",
        "Explains why a post matches a query or does not; nothing is inserted or published",
        Answer(200, "the reason", JSON, refer("Explanation")),
        (
            Parameter("query", "id of a live query, instead of q and a place"),
            _EXPRESSION,
            *_PLACES,
            Parameter("lon", "longitude of the post, degrees", schema={"type": "number"}),
            Parameter("lat", "latitude of the post, degrees", schema={"type": "number"}),
            Parameter("text", "text of the post"),
            Parameter("object", "post or Feature as JSON, instead of lon, lat and text"),
        ),
        errors=(404,),
    ),
    Operation(
        "describe_api",
        "GET",
        "/v1/openapi.json",
        "Describes this interface as OpenAPI 3.1",
        Answer(200, "the document", JSON, {"type": "object"}),
    ),
    Operation(
        "describe_streams",
        "GET",
        "/v1/asyncapi.json",
        "Describes the streams as AsyncAPI 3.0",
        Answer(200, "the document", JSON, {"type": "object"}),
    ),
)


def list_errors(operation: Operation) -> Iterator[tuple[int, str]]:
    """Yields the statuses of an operation's errors, with what each means."""
    for status in sorted({*COMMON_ERRORS, *operation.errors}):
        yield status, ERRORS[status]
