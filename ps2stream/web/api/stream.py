"""GET /v1/stream: the matches of a query or a session, as server-sent events or over a WebSocket.

The readers differ in how they are written to (`sinks`), and in nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from ps2stream.client.answers import InsertedQuery
from ps2stream.client.async_client import AsyncClient
from ps2stream.errors import (
    FailedPrecondition,
    NotFound,
    Ps2StreamError,
    ResourceExhausted,
    Unavailable,
    invalid,
)
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.cursors import UNKNOWN, CursorWriter, StreamCursor, read_cursor
from ps2stream.web.api.ephemeral import (
    PREFIX,
    QUIET_S,
    EphemeralQueries,
    EphemeralQuery,
    read_name,
)
from ps2stream.web.api.feed import SessionFeed
from ps2stream.web.api.output import EventWriter, OutputEvent
from ps2stream.web.api.parameters import StreamParameters, name_parameters, read_parameters
from ps2stream.web.api.sinks import (
    EVENT_STREAM,
    EventSink,
    EventStreamSink,
    ReaderLeft,
    WebSocketSink,
    answer_later,
    is_upgrade,
)

MAX_STREAMS = 128
"""Open streams of all identities; each may hold a window of 1 MiB."""
MAX_STREAMS_EACH = 64
BEAT_S = 10.0
LOOK_S = 1.0
"""How often a stream looks whether its reader is there, and what is to be acknowledged."""
CLAIMS = 3
"""How often a slot is claimed that another map takes at the same moment."""


@dataclasses.dataclass(slots=True)
class ReadyStream:
    """An open stream, ready to be written: where matches come from and how they are put.
    `renewing` is done when the stream's query is gone."""

    feed: SessionFeed
    writer: EventWriter
    first: OutputEvent
    renewing: asyncio.Task[None] | None = None


class StreamHandlers:
    """Handlers of GET and HEAD /v1/stream."""

    def __init__(self, callers: Callers, queries: EphemeralQueries) -> None:
        self._callers = callers
        self._queries = queries
        self._streams: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def shutdown(self, _: web.Application) -> None:
        """Ends all streams; their queries end by themselves unless somebody comes back."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._queries.close()

    async def check(self, request: web.Request) -> web.StreamResponse:
        """Answers HEAD: checks the parameters, and makes nothing."""
        self._callers.identify(request)
        read_parameters(request)
        return web.Response(content_type=EVENT_STREAM)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answers GET, until the reader leaves."""
        identity = self._callers.identify(request)
        asked = read_parameters(request)
        with self._count_stream(identity), name_parameters(request.query):
            # A task of its own, so that the end of the map can end it.
            task = asyncio.ensure_future(self._serve_reader(request, identity, asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                return await task
            except asyncio.CancelledError:
                task.cancel()
                raise

    async def _serve_reader(
        self, request: web.Request, identity: str, asked: StreamParameters
    ) -> web.StreamResponse:
        client = await self._callers.find_client(request)
        sink: EventSink = WebSocketSink() if is_upgrade(request) else EventStreamSink()
        if isinstance(sink, WebSocketSink) and not _says_anything(asked):
            await sink.prepare(request)
            cursor = await sink.read_cursor()
            asked = dataclasses.replace(asked, cursor=cursor)
        if not _says_anything(asked):
            raise invalid("q", "is missing; give q, a place, a session or a cursor")
        try:
            async with self._open_stream(request, client, identity, asked) as opened:
                await sink.prepare(request)
                await _relay_matches(opened, sink)
        except ReaderLeft:
            sink.abort()
        except (Ps2StreamError, TimeoutError) as error:
            if not sink.is_prepared:
                resumes = asked.cursor and isinstance(error, Unavailable | TimeoutError)
                if resumes and "Last-Event-ID" in request.headers:
                    return await answer_later(request)
                raise
            await sink.end(error, request.path)
        except asyncio.CancelledError:
            await sink.end(Unavailable("the map is stopping"), request.path)
        return sink.response

    @asynccontextmanager
    async def _open_stream(
        self, request: web.Request, client: AsyncClient, identity: str, asked: StreamParameters
    ) -> AsyncIterator[ReadyStream]:
        key = self._callers.find_key(request)
        if asked.cursor:
            cursor = read_cursor(key, asked.cursor)
            opening = (
                self._resume_query(client, key, identity, asked, cursor)
                if cursor.ephemeral
                else self._open_session(client, key, asked, cursor)
            )
        elif asked.session:
            opening = self._open_session(client, key, asked, None)
        else:
            opening = self._make_query(client, key, identity, asked)
        async with opening as opened:
            yield opened

    @asynccontextmanager
    async def _open_session(
        self,
        client: AsyncClient,
        key: bytes,
        asked: StreamParameters,
        cursor: StreamCursor | None,
    ) -> AsyncIterator[ReadyStream]:
        """Opens the stream of an existing session, which is not ephemeral."""
        name = asked.session if cursor is None else cursor.name
        if asked.has_query or (asked.session and asked.session != name):
            raise invalid("cursor", "is of another stream than the one that is asked for")
        if name.startswith(PREFIX):
            raise NotFound(f"there is no session {name!r}")
        async with _subscribe(client, name, asked, cursor) as feed:
            cursors = CursorWriter(key, name, False, feed.place())
            ready = {"session": name}
            yield _build_stream(feed, cursors, name, asked, "", ready, cursor)

    @asynccontextmanager
    async def _resume_query(
        self,
        client: AsyncClient,
        key: bytes,
        identity: str,
        asked: StreamParameters,
        cursor: StreamCursor,
    ) -> AsyncIterator[ReadyStream]:
        """Opens the stream of an ephemeral query again."""
        query = read_name(cursor.name, identity)
        if asked.session or (asked.has_query and asked.digest != query.digest):
            raise invalid("cursor", "is of another query than the one that is asked for")
        async with self._queries.rejoin(query):
            kept = await self._queries.renew(client, query)
            async with (
                _subscribe(client, query.session, asked, cursor) as feed,
                self._hold_query(client, query) as renewing,
            ):
                cursors = CursorWriter(key, query.id, True, feed.place())
                ready = {"query_id": query.id, "expression": kept.canonical}
                opened = _build_stream(feed, cursors, query.session, asked, query.id, ready, cursor)
                yield dataclasses.replace(opened, renewing=renewing)

    @asynccontextmanager
    async def _make_query(
        self, client: AsyncClient, key: bytes, identity: str, asked: StreamParameters
    ) -> AsyncIterator[ReadyStream]:
        """Makes an ephemeral query and opens its stream."""
        for _ in range(CLAIMS):
            async with (
                self._queries.claim(client, identity, asked.digest) as query,
                _subscribe(client, query.session, asked, None) as feed,
            ):
                await feed.skip_waiting(QUIET_S)  # what a former query of the slot has left
                inserted = await self._queries.insert(client, query, asked.expression, asked.region)
                if inserted is None:
                    continue
                async with self._hold_query(client, query) as renewing:
                    cursors = CursorWriter(key, query.id, True, feed.place())
                    ready = _describe_query(query, inserted)
                    opened = _build_stream(
                        feed, cursors, query.session, asked, query.id, ready, None
                    )
                    yield dataclasses.replace(opened, renewing=renewing)
                return
        raise ResourceExhausted("another map takes the same slots; try again", 1000)

    @asynccontextmanager
    async def _hold_query(
        self, client: AsyncClient, query: EphemeralQuery
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Puts off the end of a query within the block, and lets it come after it."""
        renewing = asyncio.create_task(self._queries.keep_renewing(client, query))
        try:
            yield renewing
        finally:
            renewing.cancel()
            await self._queries.leave(client, query)

    @contextlib.contextmanager
    def _count_stream(self, identity: str) -> Iterator[None]:
        """Counts a stream within the block. Raises ResourceExhausted when there are too many."""
        if self._streams[identity] >= MAX_STREAMS_EACH:
            problem = f"{MAX_STREAMS_EACH} streams are open, the limit of one identity (streams)"
            raise ResourceExhausted(problem, 5000)
        if self._streams.total() >= MAX_STREAMS:
            raise ResourceExhausted(f"{MAX_STREAMS} streams are open, the limit (streams)", 5000)
        self._streams[identity] += 1
        try:
            yield
        finally:
            self._streams[identity] -= 1
            if not self._streams[identity]:
                del self._streams[identity]


async def _relay_matches(opened: ReadyStream, sink: EventSink) -> None:
    """Writes what comes to the reader, until it leaves or the session's stream ends."""
    feed, writer, beat = opened.feed, opened.writer, 0.0
    await sink.write([opened.first])
    while True:
        batch = await feed.take(LOOK_S)
        sink.check()
        if opened.renewing is not None and opened.renewing.done():
            raise NotFound(UNKNOWN)  # somebody has deleted the query
        if batch is None:
            beat += LOOK_S
            if beat >= BEAT_S:
                await sink.beat()
                beat = 0.0
        else:
            beat = 0.0
            size = 0
            if (lost := feed.find_lost(batch)) is not None:
                size += await sink.write([writer.write_gap(lost)])
            size += await sink.write(writer.write_batch(batch))
            feed.note_written(batch.last, size)
        feed.acknowledge_old()


@asynccontextmanager
async def _subscribe(
    client: AsyncClient, session: str, asked: StreamParameters, cursor: StreamCursor | None
) -> AsyncIterator[SessionFeed]:
    """Opens the stream of a session within the block. Raises NotFound for a cursor that is of
    another session or another service's data."""
    wanted: dict[str, Any] = {
        name: name in asked.fields for name in ("text", "position", "time", "attributes", "payload")
    }
    place = b"" if cursor is None else cursor.place
    subscription = client.subscribe(session, cursor=place, **wanted)
    feed = SessionFeed(subscription, None if cursor is None else cursor.number)
    try:
        try:
            await subscription.open()
        except FailedPrecondition:
            if cursor is None:
                raise
            raise NotFound(UNKNOWN) from None
        yield feed
    finally:
        await feed.close()


def _build_stream(
    feed: SessionFeed,
    cursors: CursorWriter,
    session: str,
    asked: StreamParameters,
    only: str,
    ready: dict[str, Any],
    cursor: StreamCursor | None,
) -> ReadyStream:
    number = feed.last if cursor is None else cursor.number
    data = json.dumps(ready, ensure_ascii=False, separators=(",", ":"))
    first = OutputEvent(cursors.write(number), "ready", data)
    return ReadyStream(feed, EventWriter(cursors, session, asked.format, only), first)


def _describe_query(query: EphemeralQuery, inserted: InsertedQuery) -> dict[str, Any]:
    return {
        "query_id": query.id,
        "expression": inserted.expression,
        "warnings": list(inserted.warnings),
    }


def _says_anything(asked: StreamParameters) -> bool:
    return asked.has_query or bool(asked.session or asked.cursor)
