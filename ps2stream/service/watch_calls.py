"""The calls of ps2stream.v1.Admin with which a user watches the stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import Unavailable
from ps2stream.limits import REQUEST_BYTES
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.messages.watch import SeenMatches, SeenObjects, WatchSample
from ps2stream.security import AccessScope
from ps2stream.service.calls import StreamBehaviour, parse
from ps2stream.service.identity import CallerIdentity
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.service_loop import service_loop
from ps2stream.tenants import own
from ps2stream.v1 import admin_pb2

WAITING = 20
"""The number of glimpses that wait for a slow watcher; beyond it, a new one replaces the oldest."""
MOST_WITHDRAWN = 10_000
"""Ids of withdrawn objects that a slow watcher gets in one glimpse."""


class WatchCalls:
    """The method Watch. `stop` ends all streams. On `threads` the gateway is called."""

    def __init__(self, gateway: DispatcherGateway, threads: Executor) -> None:
        self._gateway = gateway
        self._threads = threads
        self._open: set[_GlimpseQueue] = set()
        self._stopped = False

    def stop(self) -> None:
        """Ends all streams."""
        self._stopped = True
        for glimpses in tuple(self._open):
            glimpses.close()

    def serve_caller(self, caller: CallerIdentity) -> StreamBehaviour:
        """Returns the behaviour for a caller."""
        # Only operators get the number of all matches: it would reveal what other tenants look for.
        overall = AccessScope.ADMIN in caller.scopes
        return partial(self._stream_glimpses, caller.tenant, overall)

    async def _stream_glimpses(self, tenant: str, overall: bool, call: OpenCall) -> None:
        data = await call.read()
        if data is None:
            return
        parse(admin_pb2.WatchRequest, data, REQUEST_BYTES, "request_bytes")
        glimpses = _GlimpseQueue()
        self._open.add(glimpses)
        if self._stopped:
            glimpses.close()
        beginning = self._threads.submit(self._gateway.watch, tenant, glimpses.put)
        try:
            await service_loop().follow(beginning)
            await call.write(admin_pb2.WatchResponse().SerializeToString())
            while (glimpse := await glimpses.take()) is not None:
                await call.write(encode_glimpse(glimpse, glimpses.missed, overall))
        finally:
            self._open.discard(glimpses)
            self._threads.submit(_end_watch, beginning)
        if self._stopped:
            raise Unavailable("the service is stopping")


def _end_watch(beginning: Future[Callable[[], None]]) -> None:
    beginning.result()()


class _GlimpseQueue:
    """The queue between the dispatcher, which must not wait, and a stream, which may be slow."""

    def __init__(self) -> None:
        self.missed = 0
        self._glimpses: deque[WatchSample] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, glimpse: WatchSample) -> None:
        """Adds a glimpse; for any thread."""
        service_loop().post(self._add_glimpse, glimpse)

    def _add_glimpse(self, glimpse: WatchSample) -> None:
        if len(self._glimpses) == WAITING:
            old = self._glimpses.popleft().withdrawn
            glimpse = glimpse._replace(withdrawn=[*old, *glimpse.withdrawn][-MOST_WITHDRAWN:])
            self.missed += 1
        self._glimpses.append(glimpse)
        self._changed.set()

    async def take(self) -> WatchSample | None:
        """Returns the next glimpse, or None once the queue is closed."""
        while not self._glimpses and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        return None if self._closed else self._glimpses.popleft()

    def close(self) -> None:
        self._closed = True
        self._changed.set()


def encode_glimpse(glimpse: WatchSample, missed: int, overall: bool) -> bytes:
    own = sum(len(seen.handle) for seen in glimpse.matches)
    answer = admin_pb2.WatchResponse(
        objects=[o for objects in glimpse.objects for o in _objects_to_proto(objects)],
        matches=[m for seen in glimpse.matches for m in _matches_to_proto(seen)],
        accepted=glimpse.accepted,
        matched=glimpse.matched if overall else own,
        latency_ms=[1000 * s for s in glimpse.latency],
        missed=missed,
        withdrawn=glimpse.withdrawn,
    )
    return answer.SerializeToString()


def _objects_to_proto(objects: SeenObjects) -> list[admin_pb2.WatchedObject]:
    texts = column_to_strings(objects.text_off, objects.text)
    columns = zip(
        column_to_strings(objects.id_off, objects.id),
        objects.partition.tolist(),
        objects.offset.tolist(),
        objects.time.tolist(),
        objects.lon.tolist(),
        objects.lat.tolist(),
        (text.rstrip("\ufffd") for text in texts),  # a character that was cut in two
        strict=True,
    )
    names = ("id", "partition", "offset", "time_ms", "lon", "lat", "text")
    return [admin_pb2.WatchedObject(**dict(zip(names, row, strict=True))) for row in columns]


def _matches_to_proto(seen: SeenMatches) -> list[admin_pb2.WatchedMatch]:
    columns = zip(
        _objects_to_proto(seen),
        own(column_to_strings(seen.query_off, seen.query)),
        seen.handle.tolist(),
        seen.session.tolist(),
        strict=True,
    )
    return [
        admin_pb2.WatchedMatch(object=o, query_id=q, query_lsn=lsn, session=s)
        for o, q, lsn, s in columns
    ]
