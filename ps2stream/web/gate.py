"""Who may use the page: nobody from another origin, and strangers only where there are none.

The map acts for whoever started it. Where others could reach it - off loopback, or when it
holds a token that other users of this machine lack - the page asks for a key, which the
command prints as part of a link and the browser then keeps as a cookie.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web

from ps2stream.security import is_loopback

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


class Gate:
    """The first to see each request. key "": none is asked for."""

    def __init__(self, host: str, key: str, secure: bool) -> None:
        self.key = key
        self.port = 0
        self._local = is_loopback(host)
        self._secure = secure

    @property
    def cookie(self) -> str:
        """Its name; cookies do not tell ports apart."""
        return f"ps2stream-map-{self.port}"

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        found = self._refused(request) or self._entered(request)
        response = await handler(request) if found is None else found
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refused(self, request: web.Request) -> web.Response | None:
        # A name that was made to lead here is somebody else's page.
        if self._local and request.host not in self._names():
            return _plain(421, f"{request.host!r} is not this page's address")
        origin = f"{'https' if self._secure else 'http'}://{request.host}"
        same = request.headers.get("Origin") in (None, origin)
        site = request.headers.get("Sec-Fetch-Site", "none")
        reading = request.method in READS
        navigation = reading and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if not same or not (site in ("none", "same-origin") or navigation):
            return _plain(403, "requests of other pages are refused")
        return None

    def _entered(self, request: web.Request) -> web.Response | None:
        """None for who has the key; else the way in, or no way."""
        if not self.key or _equal(request.cookies.get(self.cookie, ""), self.key):
            return None
        given = request.query.get("key", "") if request.path == "/" else ""
        if not (request.method in READS and _equal(given, self.key)):
            return _plain(401, STRANGER)
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            self.cookie, self.key, path="/", httponly=True, samesite="Strict", secure=self._secure
        )
        return response

    def _names(self) -> list[str]:
        hosts = ("127.0.0.1", "localhost", "[::1]")
        usual = self.port == (443 if self._secure else 80)
        return [f"{host}:{self.port}" for host in hosts] + list(hosts) * usual


def _equal(given: str, key: str) -> bool:
    return hmac.compare_digest(given.encode(), key.encode())


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text)
