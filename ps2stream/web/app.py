"""The HTTP side of the map: its files, the stream of events, and the queries drawn on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, NoReturn

from aiohttp import web

from ps2stream.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Ps2StreamError,
    ResourceExhausted,
    Unauthenticated,
    Violation,
)
from ps2stream.web.gate import HEADERS, Gate, Handler
from ps2stream.web.hub import Hub

STATIC = Path(__file__).parent / "static"
BODY_BYTES = 256 << 10
PAUSE_S = 0.15
"""Between two events of a page."""
BEAT_S = 10.0
WRITE_S = 30.0
"""A page that takes nothing for so long is let go of."""
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (InvalidArgument, 400),
    (Unauthenticated, 502),
    (PermissionDenied, 403),
    (NotFound, 404),
    (AlreadyExists, 409),
    (FailedPrecondition, 409),
    (ResourceExhausted, 429),
    (Exception, 503),
)


def application(hub: Hub, gate: Gate) -> web.Application:
    """The page of `hub` behind `gate`."""
    site = Site(hub)
    app = web.Application(middlewares=[gate.middleware, _told], client_max_size=BODY_BYTES)
    app.add_routes(
        [
            web.get("/", site.index),
            web.get("/events", site.events),
            web.get("/api/plan", site.plan),
            web.post("/api/queries", site.insert),
            web.delete("/api/queries/{id}", site.drop),
            web.static("/static", STATIC, follow_symlinks=False),
        ]
    )
    app.on_shutdown.append(site.shutdown)
    return app


class Site:
    """The handlers."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._streams: set[asyncio.Task[Any]] = set()

    async def shutdown(self, _: web.Application) -> None:
        """End the streams of events."""
        for task in tuple(self._streams):
            task.cancel()

    async def index(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def plan(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(self._hub.plan)

    async def insert(self, request: web.Request) -> web.StreamResponse:
        """{"expression": text, "region": null, a Rect, a Circle or GeoJSON}."""
        body = await _body(request)
        if unknown := sorted(set(body) - {"expression", "region"}):
            _bad(unknown[0], "is not a field of a query")
        expression, region = body.get("expression", ""), body.get("region")
        if not isinstance(expression, str):
            _bad("expression", "is not a text")
        if not isinstance(region, dict | None):
            _bad("region", "is neither null nor an object")
        return web.json_response(await self._hub.own.insert(expression, region), status=201)

    async def drop(self, request: web.Request) -> web.StreamResponse:
        await self._hub.own.drop(request.match_info["id"])
        return web.json_response({})

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, each one JSON object: what is new of what the hub tells."""
        page = self._hub.join()
        # It begins before the gate could add its headers.
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, TimeoutError):
                await _write(response, b"retry: 1000\n\n")
                while True:
                    try:
                        async with asyncio.timeout(BEAT_S):
                            told = await page.take()
                    except TimeoutError:
                        await _write(response, b": beat\n\n")
                        continue
                    data = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
                    await _write(response, f"data: {data}\n\n".encode("utf-8", "replace"))
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._streams.discard(task)
            self._hub.leave(page)
        return response


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_S):
        await response.write(data)


async def _body(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        _bad("request", "is not of the type application/json")
    try:
        body = json.loads(await request.read(), parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        _bad("request", f"is not JSON: {error}")
    if not isinstance(body, dict):
        _bad("request", "is not an object")
    return body


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _bad(field: str, problem: str) -> NoReturn:
    raise InvalidArgument([Violation(field, problem)])


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as JSON, with the fields that are to blame."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _error(error.status, f"{request.path}: {error.reason.lower()}")
    except (Ps2StreamError, TimeoutError) as error:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        message = str(error) or "the service did not answer in time"
        fields = [v._asdict() for v in getattr(error, "violations", ())]
        return _error(status, message, fields)


def _error(status: int, message: str, fields: list[dict[str, str]] | None = None) -> web.Response:
    body = {"error": {"message": message, "violations": fields or []}}
    return web.json_response(body, status=status)
