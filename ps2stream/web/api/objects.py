"""POST /v1/objects: posts in GeoJSON, JSON or JSON lines, published whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

from aiohttp import web

from ps2stream.client.inputs import object_batch
from ps2stream.errors import AlreadyExists, InvalidArgument, Violation, invalid, short
from ps2stream.limits import BATCH_BYTES, BATCH_ROWS, ID_BYTES
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.post import bad, check_records
from ps2stream.posts.readers import make_rows, read_feature
from ps2stream.v1.object_pb2 import ObjectBatch
from ps2stream.web.api.bodies import BodyRoom, check_type, parse_json, read_body
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.operations import GEOJSON, JSON, LEVELS, LINES
from ps2stream.web.api.query_strings import check_names

AT_ONCE = 64 << 10
"""Bytes of a body that are read on the event loop; larger ones would hold up other requests."""
_NUMBERED = re.compile(r"(.+)/([1-9][0-9]{0,17})")
_PLACE = re.compile(r"^(objects\[[0-9]+\]) ")


class ReadPosts:
    """Posts as the client takes them, and the members that were left out, each with the reason."""

    def __init__(self, rows: list[dict[str, Any]], left_out: list[str]) -> None:
        self.rows = rows
        self.left_out = left_out


class ObjectHandlers:
    """Handlers of posts."""

    def __init__(self, callers: Callers, room: BodyRoom) -> None:
        self._callers = callers
        self._room = room

    async def publish(self, request: web.Request) -> web.Response:
        """Publishes the posts of the body as one batch."""
        check_names(request, {"level"})
        level = request.query.get("level", "durable")
        if level not in LEVELS:
            raise invalid("level", f"expected one of {', '.join(LEVELS)}, got {short(level)}")
        kind = check_type(request, (JSON, GEOJSON, *LINES))
        identity = self._callers.identify(request)
        producer, seq = read_key(request, identity)
        client = await self._callers.find_client(request)
        with self._room.hold(identity):
            body = await read_body(request, BATCH_BYTES)
            in_lines = kind in LINES
            if len(body) <= AT_ONCE:
                batch, left_out = _build_batch(body, in_lines)
            else:
                batch, left_out = await asyncio.to_thread(_build_batch, body, in_lines)
            try:
                receipt = await client.publish(batch, level=level, producer=producer, seq=seq)
            except AlreadyExists as error:
                raise web.HTTPUnprocessableEntity(reason=f"Idempotency-Key: {error}") from None
        return web.json_response(
            {
                "accepted": receipt.accepted,
                "level": receipt.level,
                "lsn": receipt.lsn,
                "partition": receipt.partition,
                "first_offset": receipt.first_offset,
                "left_out": left_out,
            }
        )


def _build_batch(body: bytes, in_lines: bool) -> tuple[ObjectBatch, list[str]]:
    """Returns the message of a body's posts, and what was left out of them."""
    posts = read_posts(body, in_lines)
    return object_batch(posts.rows), posts.left_out


def read_posts(body: bytes, in_lines: bool) -> ReadPosts:
    """Returns the posts of a body: a post, a list of posts, a Feature or a FeatureCollection, or
    with `in_lines` a post or a Feature on each line. Members beyond those of a post become
    attributes where they can. Raises InvalidArgument, which names post and field."""
    return check_posts(_read_lines(body) if in_lines else _list_values(parse_json(body, "body")))


def check_posts(values: list[Any]) -> ReadPosts:
    """Returns posts or Features of Points as the client takes them. Raises InvalidArgument."""
    if not values:
        raise invalid("objects", "there is none")
    if len(values) > BATCH_ROWS:
        raise invalid("objects", f"there are {len(values)}, over the limit {BATCH_ROWS}")
    choice = AttributeChoice(exact=True)
    try:
        found = [
            (where, _read_record(where, value))
            for where, value in ((f"objects[{i}]", value) for i, value in enumerate(values))
        ]
        rows = make_rows(check_records(found, choice=choice))
    except InvalidArgument as error:
        raise InvalidArgument(
            [Violation(_PLACE.sub(r"\1.", v.field), v.description) for v in error.violations]
        ) from None
    for row, (_, record) in zip(rows, found, strict=True):
        if record.get("id") is None:  # the service makes one
            del row["id"]
    return ReadPosts(rows, choice.pop_left_out())


def _read_lines(body: bytes) -> list[Any]:
    if (count := body.count(b"\n")) > BATCH_ROWS:
        raise invalid("objects", f"there are {count} lines, over the limit {BATCH_ROWS}")
    lines = [line for line in body.split(b"\n") if line.strip()]
    return [parse_json(line, f"objects[{i}]") for i, line in enumerate(lines)]


def _list_values(whole: Any) -> list[Any]:
    if isinstance(whole, list):
        return whole
    if isinstance(whole, dict) and whole.get("type") == "FeatureCollection":
        features = whole.get("features")
        if not isinstance(features, list):
            raise invalid("features", f"expected a list of Features, got {short(features)}")
        return features
    return [whole]


def _read_record(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad(where, f"expected an object of JSON, got {short(value)}")
    if value.get("type") == "Feature":
        return read_feature(where, value)
    return value


def read_key(request: web.Request, identity: str) -> tuple[str, int]:
    """Returns the producer and the number of a publication that the header Idempotency-Key names,
    ("", 0) without it. `NAME/NUMBER` is publication NUMBER of the producer NAME; any other key is
    the first publication of a producer that only this key of the identity has. Raises
    InvalidArgument."""
    sent = request.headers.getall("Idempotency-Key", [])
    if not sent:
        return "", 0
    key = sent[0].strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    size = len(key.encode("utf-8", "surrogateescape"))
    if len(sent) > 1 or not key or not key.isascii() or not key.isprintable():
        raise invalid("Idempotency-Key", "expected one key of visible ASCII characters")
    if size > ID_BYTES:
        raise invalid("Idempotency-Key", f"has {size} bytes, over the limit {ID_BYTES}")
    if (numbered := _NUMBERED.fullmatch(key)) is not None:
        return numbered[1], int(numbered[2])
    data = f"{identity}\n{key}".encode()
    return "key-" + hashlib.blake2b(data, digest_size=16).hexdigest(), 1
