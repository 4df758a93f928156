"""The routes of the HTTP interface, below /v1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from ps2stream.web.api.bodies import BodyRoom
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.documents import DocumentHandlers
from ps2stream.web.api.ephemeral import EphemeralQueries
from ps2stream.web.api.objects import ObjectHandlers
from ps2stream.web.api.operations import OPERATIONS
from ps2stream.web.api.pricing import PricingHandlers
from ps2stream.web.api.queries import QueryHandlers
from ps2stream.web.api.stream import StreamHandlers

ApiHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiRoute(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    handler: ApiHandler


def add_api(app: web.Application, callers: Callers, queries: EphemeralQueries) -> None:
    """Adds the HTTP interface to the map's application."""
    streams = StreamHandlers(callers, queries)
    routes = list_routes(callers, streams)
    for route in routes:
        app.router.add_route(route.method, route.path, route.handler)
    allowed: dict[str, list[str]] = {}
    for route in routes:
        allowed.setdefault(route.path, []).append(route.method)
    for path, methods in allowed.items():
        app.router.add_route("OPTIONS", path, _build_options([*methods, "OPTIONS"]))
    app.on_shutdown.append(streams.shutdown)
    app.on_cleanup.append(lambda _: callers.close())


def list_routes(callers: Callers, streams: StreamHandlers) -> list[ApiRoute]:
    """Returns all routes but those of OPTIONS, which every path has: those of the table of
    operations."""
    room = BodyRoom()
    access, queries = AccessHandlers(callers), QueryHandlers(callers, room)
    objects, pricing = ObjectHandlers(callers, room), PricingHandlers(callers)
    documents = DocumentHandlers(callers)
    handlers: dict[str, ApiHandler] = {
        "read_health": access.health,
        "keep_token": access.set_cookie,
        "drop_token": access.delete_cookie,
        "read_stream": streams.stream,
        "check_stream": streams.check,
        "insert_query": queries.insert,
        "list_queries": queries.list,
        "show_query": queries.show,
        "delete_query": queries.delete,
        "publish_objects": objects.publish,
        "price_query": pricing.price,
        "explain_match": pricing.explain,
        "describe_api": documents.openapi,
        "describe_streams": documents.asyncapi,
    }
    return [ApiRoute(o.method, o.path, handlers[o.name]) for o in OPERATIONS]


class AccessHandlers:
    """Handlers that say whether the service is there, and keep a token for a browser."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def health(self, request: web.Request) -> web.Response:
        """Answers 204 when the service serves."""
        client = await self._callers.find_client(request)
        await client.health()
        return web.Response(status=204)

    async def set_cookie(self, request: web.Request) -> web.Response:
        """Keeps the token of the Authorization header in a cookie that scripts cannot read: the
        way for a page, whose EventSource and WebSocket cannot send that header."""
        token = request.headers.get("Authorization", "").partition(" ")[2].strip()
        self._callers.identify(request)
        await (await self._callers.find_client(request)).health()
        response = web.Response(status=204)
        if token:
            response.set_cookie(
                self._callers.cookie,
                token,
                path="/v1/",
                httponly=True,
                samesite="Strict",
                secure=request.secure,
            )
        return response

    async def delete_cookie(self, _: web.Request) -> web.Response:
        """Forgets the token."""
        response = web.Response(status=204)
        response.del_cookie(self._callers.cookie, path="/v1/", httponly=True, samesite="Strict")
        return response


def _build_options(methods: list[str]) -> ApiHandler:
    allow = ", ".join(sorted(methods))

    async def answer_options(_: web.Request) -> web.Response:
        return web.Response(status=204, headers={"Allow": allow})

    return answer_options
