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
    invalid,
)
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.ephemeral import EphemeralQueries
from ps2stream.web.api.problems import build_reporter
from ps2stream.web.api.routes import add_api
from ps2stream.web.gate import Handler, PageGate
from ps2stream.web.hub import PageHub

STATIC = Path(__file__).parent / "static"
BODY_BYTES = 256 << 10
PAUSE_S = 0.15
"""Pause between two events of a page."""
BEAT_S = 10.0
WRITE_S = 30.0
"""Time after which a page that takes nothing is disconnected."""
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


def build_application(
    hub: PageHub, gate: PageGate, callers: Callers, queries: EphemeralQueries
) -> web.Application:
    """Returns the application that serves the page of `hub`, and the HTTP interface for `callers`
    with `queries`, behind `gate`."""
    site = PageHandlers(hub)
    app = web.Application(
        middlewares=[gate.middleware, _report_errors, build_reporter(callers)],
        client_max_size=BODY_BYTES,
    )
    app.on_response_prepare.append(gate.add_headers)
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
    add_api(app, callers, queries)
    app.on_shutdown.append(site.shutdown)
    return app


class PageHandlers:
    """Handlers of the page's requests."""

    def __init__(self, hub: PageHub) -> None:
        self._hub = hub
        self._streams: set[asyncio.Task[Any]] = set()

    async def shutdown(self, _: web.Application) -> None:
        """Ends the streams of events."""
        for task in tuple(self._streams):
            task.cancel()

    async def index(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def plan(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(self._hub.plan)

    async def insert(self, request: web.Request) -> web.StreamResponse:
        """Inserts {"expression": text, "region": null, a Rect, a Circle or GeoJSON}."""
        body = await _read_body(request)
        if unknown := sorted(set(body) - {"expression", "region"}):
            _reject_field(unknown[0], "is not a field of a query")
        expression, region = body.get("expression", ""), body.get("region")
        if not isinstance(expression, str):
            _reject_field("expression", "is not a text")
        if not isinstance(region, dict | None):
            _reject_field("region", "is neither null nor an object")
        return web.json_response(await self._hub.own.insert(expression, region), status=201)

    async def drop(self, request: web.Request) -> web.StreamResponse:
        await self._hub.own.drop(request.match_info["id"])
        return web.json_response({})

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Sends server-sent events, each one JSON object: what is new from the hub."""
        page = self._hub.join()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, TimeoutError):
                await _write_data(response, b"retry: 1000\n\n")
                while True:
                    try:
                        async with asyncio.timeout(BEAT_S):
                            event = await page.take()
                    except TimeoutError:
                        await _write_data(response, b": beat\n\n")
                        continue
                    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
                    await _write_data(response, f"data: {data}\n\n".encode("utf-8", "replace"))
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._streams.discard(task)
            self._hub.leave(page)
        return response


async def _write_data(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_S):
        await response.write(data)


async def _read_body(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        _reject_field("request", "is not of the type application/json")
    try:
        body = json.loads(await request.read(), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        _reject_field("request", f"is not JSON: {error}")
    if not isinstance(body, dict):
        _reject_field("request", "is not an object")
    return body


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _reject_field(field: str, problem: str) -> NoReturn:
    raise invalid(field, problem)


@web.middleware
async def _report_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers errors as JSON, with the fields that they concern."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _build_error(error.status, f"{request.path}: {error.reason.lower()}")
    except (Ps2StreamError, TimeoutError) as error:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        message = str(error) or "the service did not answer in time"
        fields = [v._asdict() for v in getattr(error, "violations", ())]
        return _build_error(status, message, fields)


def _build_error(
    status: int, message: str, fields: list[dict[str, str]] | None = None
) -> web.Response:
    body = {"error": {"message": message, "violations": fields or []}}
    return web.json_response(body, status=status)
