"""Access to the server over HTTP: other origins are refused, and each request names its caller.

This is asked before anything of a request is read. A browser that runs a stranger's page sends the
page's origin, and a name that was made to resolve to this address is not one of this machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ps2stream.assistant.callers import NOBODY, SCOPE, CallerTable
from ps2stream.assistant.sessions import ProtocolSessions
from ps2stream.errors import (
    PermissionDenied,
    Ps2StreamError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)

BODY_S = 10.0
"""How long the body of a request may take to arrive."""
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (Unauthenticated, 401, "Unauthorized"),
    (PermissionDenied, 403, "Forbidden"),
    (ResourceExhausted, 429, "Too Many Requests"),
    (Unavailable, 503, "Service Unavailable"),
    (TimeoutError, 503, "Service Unavailable"),
)


class SlowBody(Exception):
    """The body of a request did not arrive within BODY_S."""


class AssistantGate:
    """The ASGI application that sees each request before `app`, which reads the whole body before
    it answers. `hosts` are the values of Host that are served, None for any; `origins` are the
    origins whose pages are served."""

    def __init__(
        self,
        app: ASGIApp,
        callers: CallerTable,
        hosts: Sequence[str] | None,
        origins: Sequence[str],
    ) -> None:
        self._app = app
        self._callers = callers
        self._hosts = None if hosts is None else frozenset(hosts)
        self._origins = frozenset(origins)
        self._sessions = ProtocolSessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if (refusal := self._refuse_foreign(request)) is not None:
            await refusal(scope, receive, send)
            return
        async with AsyncExitStack() as stack:
            try:
                held = self._callers.hold(read_token(request))
                name, caller = await stack.enter_async_context(held)
                self._sessions.check_room(name, request)
            except (Ps2StreamError, TimeoutError) as error:
                await describe_error(error)(scope, receive, send)
                return
            # The protocol's sessions belong to the user that began them.
            user = AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
            scope = {**scope, "user": user, SCOPE: caller}
            try:
                sending = self._sessions.watch_answer(name, request, send)
                await self._app(scope, limit_time(receive), sending)
            except SlowBody as error:
                await build_problem(408, "Request Timeout", str(error))(scope, receive, send)

    def _refuse_foreign(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if self._hosts is not None and host not in self._hosts:
            return build_problem(421, "Misdirected Request", f"{host!r} is not this address")
        origin = request.headers.get("origin")
        if origin in self._origins:
            return None
        if origin is not None or request.headers.get("sec-fetch-site", "none") != "none":
            return build_problem(403, "Forbidden", "requests of web pages are refused")
        return None


def read_token(request: Request) -> str | None:
    """Returns the token of a request, None without any. Raises Unauthenticated for a header that
    holds none."""
    sent = request.headers.getlist("authorization")
    if not sent:
        return None
    kind, _, token = sent[0].partition(" ")
    if len(sent) > 1 or kind.lower() != "bearer" or not token.strip():
        raise Unauthenticated(NOBODY)
    return token.strip()


def limit_time(receive: Receive) -> Receive:
    """Returns what receives a request: its body within BODY_S, else it raises SlowBody, and then
    its end whenever that comes."""
    deadline = asyncio.get_running_loop().time() + BODY_S
    is_complete = False

    async def receive_in_time() -> Message:
        nonlocal is_complete
        if is_complete:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise SlowBody(f"the body did not arrive within {BODY_S:g} s") from None
        is_complete = not message.get("more_body", False)
        return message

    return receive_in_time


def describe_error(error: Exception) -> Response:
    """Returns an error of the service as an answer of HTTP."""
    status, title = next(
        ((status, title) for kind, status, title in _STATUS if isinstance(error, kind)),
        (400, "Bad Request"),
    )
    answer = build_problem(status, title, str(error))
    if status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ResourceExhausted):
        answer.headers["Retry-After"] = str(-(-error.retry_after_ms // 1000))
    return answer


def build_problem(status: int, title: str, detail: str) -> Response:
    """Returns a problem (RFC 9457)."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    kind = "application/problem+json"
    return JSONResponse(body, status, headers=HEADERS, media_type=kind)
