"""The bodies of requests: bounded before they are read, unpacked or parsed."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from aiohttp import web

from ps2stream.errors import ResourceExhausted, invalid, short
from ps2stream.posts.members import BadNumberError, load_record

GZIP = ("gzip", "x-gzip")
_STEP = 64 << 10
BODY_S = 30.0
"""Seconds within which a body must have come."""
BODIES = 32
"""Bodies that are read or waited for at a time; each takes some 30 times its bytes at most, while
it is parsed."""
BODIES_EACH = 8
DEPTH = 64
"""Nested levels that JSON may have."""
OBJECTS = 65_536
"""Objects of JSON that a body may have; a Feature is three."""


class BodyRoom:
    """The room for bodies: how many there are at a time, of all identities and of one."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def hold(self, identity: str) -> Iterator[None]:
        """Holds the room for a body within the block. Raises ResourceExhausted."""
        if self._held[identity] >= BODIES_EACH:
            problem = f"{BODIES_EACH} requests with bodies are under way, the limit of one identity"
            raise ResourceExhausted(f"{problem} (bodies)", 1000)
        if self._held.total() >= BODIES:
            problem = f"{BODIES} requests with bodies are under way, the limit (bodies)"
            raise ResourceExhausted(problem, 1000)
        self._held[identity] += 1
        try:
            yield
        finally:
            self._held[identity] -= 1
            if not self._held[identity]:
                del self._held[identity]


async def read_body(request: web.Request, limit: int) -> bytes:
    """Returns the body of a request, unpacked where it was sent with gzip. What counts are its
    unpacked bytes: at more than `limit` of them, or of packed ones, it is given up, and so it is
    after BODY_S seconds. Raises HTTPRequestEntityTooLarge, HTTPUnsupportedMediaType,
    HTTPRequestTimeout and InvalidArgument."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _read_bounded(request, limit)
    except TimeoutError:
        reason = f"the body did not come within {BODY_S:g} s"
        raise web.HTTPRequestTimeout(reason=reason) from None


async def _read_bounded(request: web.Request, limit: int) -> bytes:
    packing = request.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in (*GZIP, "identity", ""):
        raise web.HTTPUnsupportedMediaType(headers={"Accept-Encoding": "gzip, identity"})
    unpack = zlib.decompressobj(wbits=31) if packing in GZIP else None
    body, came = bytearray(), 0
    async for chunk in request.content.iter_chunked(_STEP):
        came += len(chunk)
        while chunk:
            if unpack is None:
                body += chunk
                chunk = b""
            else:
                body += _inflate(unpack, chunk, limit + 1 - len(body))
                chunk = unpack.unconsumed_tail if not unpack.eof else unpack.unused_data
                if unpack.eof and chunk:
                    unpack = zlib.decompressobj(wbits=31)  # gzip joins its members
            if max(len(body), came) > limit:
                reason = f"the body is too large: more than {limit} bytes, unpacked"
                raise web.HTTPRequestEntityTooLarge(limit, len(body), reason=reason)
    if unpack is not None and not unpack.eof:
        raise invalid("body", "is not whole: its gzip ends early")
    return bytes(body)


def _inflate(unpack: Any, chunk: bytes, room: int) -> bytes:
    try:
        found: bytes = unpack.decompress(chunk, room)
    except zlib.error:
        raise invalid("body", "is not of gzip, as its Content-Encoding says") from None
    return found


async def read_json(request: web.Request, limit: int) -> dict[str, Any]:
    """Returns the JSON object that is the body. Raises as `read_body`, and InvalidArgument."""
    check_type(request, ("application/json",))
    body = parse_json(await read_body(request, limit), "body")
    if not isinstance(body, dict):
        raise invalid("body", f"expected an object of JSON, got {short(body)}")
    return body


def check_type(request: web.Request, known: tuple[str, ...]) -> str:
    """Returns the type of a request's body. Raises HTTPUnsupportedMediaType for any but `known`."""
    if request.content_type not in known:
        raise web.HTTPUnsupportedMediaType(headers={"Accept": ", ".join(known)})
    return request.content_type


def parse_json(data: bytes, field: str) -> Any:
    """Returns the value that is written as JSON in UTF-8. Raises InvalidArgument, naming `field`,
    also for a name that an object has twice, and beyond DEPTH levels or OBJECTS objects; for NaN,
    Infinity and a number beyond 64 bits naming its place behind `field`."""
    _check_nesting(data, field)
    try:
        return load_record(data.decode())
    except UnicodeDecodeError:
        raise invalid(field, "is not UTF-8") from None
    except BadNumberError as error:
        dot = "." if error.member and not error.member.startswith("[") else ""
        raise invalid(f"{field}{dot}{error.member}", error.problem) from None
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"is not JSON: {error}") from None


def _check_nesting(data: bytes, field: str) -> None:
    """Raises InvalidArgument if brackets are nested too deep, or if there are too many objects."""
    if data.count(b"[") + data.count(b"{") <= DEPTH:
        return
    # Without escapes every quote begins or ends a string.
    bare = np.frombuffer(data.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = np.cumsum(bare == ord('"'), dtype=np.uint8) & 1 == 0
    objects = (bare == ord("{")) & outside
    opens = objects | (bare == ord("[")) & outside
    closes = ((bare == ord("]")) | (bare == ord("}"))) & outside
    if (count := int(np.count_nonzero(objects))) > OBJECTS:
        raise invalid(field, f"has {count} objects of JSON, over the limit {OBJECTS}")
    rise = opens.astype(np.int8) - closes
    if int(np.cumsum(rise, dtype=np.int32).max(initial=0)) > DEPTH:
        raise invalid(field, f"has more than {DEPTH} nested levels, the limit")
