"""Connections that never speak, or stop amid the head of a request, are ended.

A body has its own deadline (api/bodies), a stream its own (api/sinks)."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from ps2stream.web.gate import Handler

HEAD_S = 15.0
"""How long a new connection may take for the head of its first request."""
IDLE_S = 75.0
"""How long a connection is kept for a further request."""
LOOK_S = 2.0


class ConnectionWatch:
    """Ends the connections of a server whose first request does not come."""

    def __init__(self, head_s: float = HEAD_S, look_s: float = LOOK_S) -> None:
        self._head_s = head_s
        self._look_s = look_s
        self._spoken: set[web.RequestHandler] = set()

    @web.middleware
    async def note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notes that the connection of a request has spoken."""
        self._spoken.add(request.protocol)
        return await handler(request)

    async def end_silent(self, server: web.Server) -> None:
        """Looks at all connections of `server`, again and again, until it is cancelled."""
        since: dict[web.RequestHandler, float] = {}
        while True:
            await asyncio.sleep(self._look_s)
            now = time.monotonic()
            open_now = set(server.connections)
            self._spoken &= open_now
            since = {each: since.get(each, now) for each in open_now - self._spoken}
            for silent in [each for each, at in since.items() if now - at >= self._head_s]:
                silent.force_close()
