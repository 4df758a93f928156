"""A Jetstream of this machine: it speaks the format and the parameters of the real one over a
WebSocket, with events that the tests write."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

DID = "did:plc:abcdefghijklmnopqrstuvwx"


def make_post(
    number: int, text: str, lat: str | None = None, lon: str | None = None, **more: Any
) -> dict[str, Any]:
    """A commit of a post, with a place if it is given; `record` adds members to the post."""
    record: dict[str, Any] = {"$type": "app.bsky.feed.post", "text": text, "langs": ["en"]}
    if lat is not None:
        kind = "community.lexicon.location.geo"
        record["location"] = {"$type": kind, "latitude": lat, "longitude": lon}
    record |= more.pop("record", {})
    return make_commit(number, "create", record=record, cid="bafyreib", **more)


def make_commit(number: int, operation: str, **more: Any) -> dict[str, Any]:
    """A commit of the record of this number."""
    commit = {
        "rev": f"3l{number:011}{operation[0]}",
        "operation": operation,
        "collection": "app.bsky.feed.post",
        "rkey": f"3k{number:011}",
    }
    event = {"did": DID, "time_us": time.time_ns() // 1000, "kind": "commit"}
    at = more.pop("time_us", None)
    return event | ({} if at is None else {"time_us": at}) | {"commit": commit | more}


def id_of(number: int) -> str:
    """The object id of the post of this number."""
    return f"at://{DID}/app.bsky.feed.post/3k{number:011}"


class Jetstream:
    """Events in order, which each connection gets from its cursor on, or those from now on."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.answer = 0  # the status of an answer that is no WebSocket
        self.port = 0
        self._events: list[str] = []
        self._sockets: dict[web.WebSocketResponse, web.Request] = {}
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/subscribe"

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(30)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)

    def send(self, *events: Any) -> None:
        """Adds events; texts as they are."""
        texts = [e if isinstance(e, str) else json.dumps(e) for e in events]
        asyncio.run_coroutine_threadsafe(self._add(texts), self._loop).result(30)

    def cut(self) -> None:
        """Ends all connections as a crash does."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(30)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._added, self._over = asyncio.Condition(), asyncio.Event()
        app = web.Application()
        app.router.add_get("/subscribe", self._subscribe)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        self._is_up.set()
        await self._over.wait()
        await self._cut()
        await runner.cleanup()

    async def _add(self, texts: list[str]) -> None:
        async with self._added:
            self._events += texts
            self._added.notify_all()

    async def _cut(self) -> None:
        for request in list(self._sockets.values()):
            if request.transport is not None:
                request.transport.abort()

    async def _subscribe(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if self.answer:
            return web.Response(status=self.answer, headers={"location": "/elsewhere"})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets[socket] = request
        cursor = int(request.query.get("cursor", "0"))
        limit = int(request.query.get("maxMessageSizeBytes", "0"))
        at = 0 if cursor else len(self._events)
        try:
            while not socket.closed:
                async with self._added:
                    while len(self._events) <= at:
                        await self._added.wait()
                while at < len(self._events):
                    text = self._events[at]
                    at += 1
                    if _time_of(text) >= cursor and (not limit or len(text) <= limit):
                        await socket.send_str(text)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._sockets.pop(socket, None)
        return socket


def _time_of(text: str) -> float:
    try:
        return float(json.loads(text)["time_us"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


@contextmanager
def jetstream() -> Iterator[Jetstream]:
    """A Jetstream within the block."""
    found = Jetstream()
    found.start()
    try:
        yield found
    finally:
        found.end()
