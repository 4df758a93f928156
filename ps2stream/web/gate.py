"""Access to the page and the HTTP interface: other origins are refused, and strangers need a key.

The map acts for whoever started it. Where others could reach it off loopback, or when it holds
a token that other users of this machine lack, the page asks for a key. The command prints the
key as part of a link, and the browser then keeps it as a cookie.

Requests of the HTTP interface (/v1/) may have a token instead, which `api.callers` looks at. Pages
of other origins may make such requests if the origin was named when the map was started.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from ps2stream.security import is_loopback
from ps2stream.web.api.problems import build_problem, is_api

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STRANGER = "This page needs its key: open the link that `ps2stream map` printed."
READS = ("GET", "HEAD")
CORS_HEADERS = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Content-Encoding, "
    "Idempotency-Key, Last-Event-ID",
    "Access-Control-Expose-Headers": "Location, Retry-After",
    "Access-Control-Max-Age": "600",
}
"""Sent to the origins that were named; without cookies, which belong to this origin's pages."""


class PageGate:
    """The middleware that sees each request first; with the key "" none is asked for. Pages of
    `origins` may use the HTTP interface."""

    def __init__(self, host: str, key: str, secure: bool, origins: Sequence[str] = ()) -> None:
        self.key = key
        self.port = 0
        self._local = is_loopback(host)
        self._secure = secure
        self._origins = frozenset(origins)

    @property
    def cookie(self) -> str:
        """Name of the cookie, with the port, as cookies do not tell ports apart."""
        return f"ps2stream-map-{self.port}"

    def has_key(self, request: web.Request) -> bool:
        """Returns whether the request may act as the map does: it has the key, or none is asked
        for."""
        return not self.key or _is_equal(request.cookies.get(self.cookie, ""), self.key)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        found = self._refuse_foreign(request)
        if found is None and not is_api(request):
            found = self._check_key(request)
        elif found is None and request.method == "OPTIONS" and self._is_named(request):
            found = web.Response(status=204)  # what may be sent is in the headers
        return await handler(request) if found is None else found

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds the headers that every answer has, also one that is a stream; the signal
        on_response_prepare calls it."""
        response.headers.update(HEADERS)
        if self._origins and is_api(request):
            response.headers["Vary"] = "Origin"
            if self._is_named(request):
                response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
                response.headers.update(CORS_HEADERS)

    def _is_named(self, request: web.Request) -> bool:
        """Returns whether the request is of the HTTP interface and comes from a named origin."""
        return is_api(request) and request.headers.get("Origin") in self._origins

    def _refuse_foreign(self, request: web.Request) -> web.Response | None:
        # A foreign name that was made to resolve to this address is somebody else's page.
        if self._local and request.host not in self._list_hosts():
            return _build_refusal(request, 421, f"{request.host!r} is not this page's address")
        if self._is_named(request):
            return None
        origin = f"{'https' if self._secure else 'http'}://{request.host}"
        same = request.headers.get("Origin") in (None, origin)
        site = request.headers.get("Sec-Fetch-Site", "none")
        reading = request.method in READS and not is_api(request)
        navigation = reading and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if not same or not (site in ("none", "same-origin") or navigation):
            return _build_refusal(request, 403, "requests of other pages are refused")
        return None

    def _check_key(self, request: web.Request) -> web.Response | None:
        """Returns None for a request that has the key; else the answer that sets it, or refuses."""
        if self.has_key(request):
            return None
        offered = request.query.get("key", "") if request.path == "/" else ""
        if not (request.method in READS and _is_equal(offered, self.key)):
            return _build_plain(401, STRANGER)
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            self.cookie, self.key, path="/", httponly=True, samesite="Strict", secure=self._secure
        )
        return response

    def _list_hosts(self) -> list[str]:
        hosts = ("127.0.0.1", "localhost", "[::1]")
        usual = self.port == (443 if self._secure else 80)
        return [f"{host}:{self.port}" for host in hosts] + list(hosts) * usual


def _is_equal(offered: str, key: str) -> bool:
    return hmac.compare_digest(offered.encode(), key.encode())


def _build_refusal(request: web.Request, status: int, text: str) -> web.Response:
    if is_api(request):
        return build_problem(status, text, request.path)
    return _build_plain(status, text)


def _build_plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text)
