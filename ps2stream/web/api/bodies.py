"""The bodies of requests: bounded before they are read, unpacked or parsed."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any, NoReturn

import numpy as np
from aiohttp import web

from ps2stream.errors import invalid, short

JSON = ("application/json",)
GZIP = ("gzip", "x-gzip")
_STEP = 64 << 10
DEPTH = 64
"""Nested levels that JSON may have."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPEN, _CLOSE = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)


async def read_body(request: web.Request, limit: int) -> bytes:
    """Returns the body of a request, unpacked where it was sent with gzip. What counts are its
    unpacked bytes: at more than `limit` of them it is given up. Raises HTTPRequestEntityTooLarge,
    HTTPUnsupportedMediaType and InvalidArgument."""
    packing = request.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in (*GZIP, "identity", ""):
        raise web.HTTPUnsupportedMediaType(headers={"Accept-Encoding": "gzip, identity"})
    unpack = zlib.decompressobj(wbits=31) if packing in GZIP else None
    body = bytearray()
    async for chunk in request.content.iter_chunked(_STEP):
        while chunk:
            if unpack is None:
                body += chunk
                chunk = b""
            else:
                body += _inflate(unpack, chunk, limit + 1 - len(body))
                chunk = unpack.unconsumed_tail if not unpack.eof else unpack.unused_data
                if unpack.eof and chunk:
                    unpack = zlib.decompressobj(wbits=31)  # gzip joins its members
            if len(body) > limit:
                raise web.HTTPRequestEntityTooLarge(limit, len(body))
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
    check_type(request, JSON)
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
    also for NaN and Infinity, for a name that an object has twice, and beyond DEPTH levels."""
    _check_depth(data, field)
    try:
        return json.loads(
            data.decode(), parse_constant=_refuse_constant, object_pairs_hook=_build_object
        )
    except UnicodeDecodeError:
        raise invalid(field, "is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"is not JSON: {error}") from None


def _check_depth(data: bytes, field: str) -> None:
    """Raises InvalidArgument if brackets are nested too deep."""
    if data.count(b"[") + data.count(b"{") <= DEPTH:
        return
    bare = np.frombuffer(_STRING.sub(b"", data), np.uint8)
    rise = np.isin(bare, _OPEN).astype(np.int8) - np.isin(bare, _CLOSE)
    if int(np.cumsum(rise, dtype=np.int64).max(initial=0)) > DEPTH:
        raise invalid(field, f"has more than {DEPTH} nested levels, the limit")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {short(twice)} occurs twice in one object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
