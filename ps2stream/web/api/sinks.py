"""The two ways to write a stream to its reader: server-sent events, and a WebSocket.

What a reader has not taken is bounded: writing waits for it, and one that takes nothing for
WRITE_S is disconnected. Its cursor brings back what it has missed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import NoReturn, Protocol

from aiohttp import WSMsgType, web

from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.web.api.output import OutputEvent
from ps2stream.web.api.problems import describe_error

EVENT_STREAM = "text/event-stream"
PART_BYTES = 32 << 10
"""Bytes that are written at a time."""
WRITE_S = 30.0
RETRY_MS = 1000
TAKEN_RETRY_MS = 60_000
"""Pause of a reader whose session another one has taken: they would take it from each other."""
LATER_RETRY_MS = 5000
FIRST_S = 10.0
"""How long a WebSocket waits for the message with the cursor."""
PING_S = 20.0
MESSAGE_BYTES = 4096
GOING_AWAY, POLICY, AGAIN_LATER, INTERNAL = 1001, 1008, 1013, 1011
REASON_BYTES = 120


class ReaderLeft(Exception):
    """The reader has closed the connection, or takes nothing."""


class EventSink(Protocol):
    """A reader of events."""

    @property
    def is_prepared(self) -> bool: ...

    @property
    def response(self) -> web.StreamResponse: ...

    async def prepare(self, request: web.Request) -> None:
        """Begins the answer, if it has not begun."""

    async def write(self, events: Iterable[OutputEvent]) -> int:
        """Writes events, and returns their bytes. Raises ReaderLeft."""

    async def beat(self) -> None:
        """Writes what shows that the stream is alive."""

    def check(self) -> None:
        """Raises ReaderLeft when the reader has gone."""

    async def end(self, error: Exception, instance: str) -> None:
        """Tells the reader why the stream ends."""

    def abort(self) -> None:
        """Drops the connection, with what waits in it."""


class EventStreamSink:
    """A reader of server-sent events."""

    def __init__(self) -> None:
        self._response = web.StreamResponse(
            headers={"Content-Type": EVENT_STREAM, "X-Accel-Buffering": "no"}
        )
        self._transport: asyncio.BaseTransport | None = None

    @property
    def is_prepared(self) -> bool:
        return self._response.prepared

    @property
    def response(self) -> web.StreamResponse:
        return self._response

    async def prepare(self, request: web.Request) -> None:
        self._transport = request.transport
        await self._response.prepare(request)
        await self._write_data(f"retry: {RETRY_MS}\n\n".encode())

    async def write(self, events: Iterable[OutputEvent]) -> int:
        size = 0
        for part in _join_parts(_format_event(event) for event in events):
            await self._write_data(part)
            size += len(part)
        return size

    async def beat(self) -> None:
        await self._write_data(b": beat\n\n")

    def check(self) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ReaderLeft

    async def end(self, error: Exception, instance: str) -> None:
        """Writes the event `end` with a problem. A browser connects again, so the pause is long
        when that would take the session from somebody else."""
        pause = TAKEN_RETRY_MS if isinstance(error, FailedPrecondition) else RETRY_MS
        problem = describe_error(error, instance).text or ""
        try:
            await self._write_data(f"retry: {pause}\nevent: end\ndata: {problem}\n\n".encode())
            async with asyncio.timeout(WRITE_S):
                await self._response.write_eof()
        except (ReaderLeft, ConnectionError, TimeoutError):
            self.abort()

    def abort(self) -> None:
        if isinstance(self._transport, asyncio.Transport):
            self._transport.abort()

    async def _write_data(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(WRITE_S):
                await self._response.write(data)
        except (ConnectionError, TimeoutError):
            raise ReaderLeft from None


class WebSocketSink:
    """A reader over a WebSocket: each event is a text message {"id", "event", "data"}."""

    def __init__(self) -> None:
        self._socket = web.WebSocketResponse(
            heartbeat=PING_S, max_msg_size=MESSAGE_BYTES, compress=False, timeout=2.0
        )
        self._transport: asyncio.BaseTransport | None = None
        self._reading: asyncio.Task[str] | None = None

    @property
    def is_prepared(self) -> bool:
        return self._socket.prepared

    @property
    def response(self) -> web.StreamResponse:
        return self._socket

    async def prepare(self, request: web.Request) -> None:
        if not self._socket.prepared:
            self._transport = request.transport
            await self._socket.prepare(request)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_message())

    async def read_cursor(self) -> str:
        """Returns the cursor of the first message, {"cursor": "..."}. Raises ReaderLeft after
        closing the connection when there is none within FIRST_S."""
        assert self._reading is not None
        await asyncio.wait({self._reading}, timeout=FIRST_S)
        if not self._reading.done():
            await self._refuse(f"no message came within {FIRST_S:g} s")
        try:
            message = json.loads(self._reading.result())
        except (ValueError, RecursionError):
            message = None
        cursor = message.get("cursor") if isinstance(message, dict) else None
        if not isinstance(cursor, str) or not cursor:
            await self._refuse('the first message is not {"cursor": "..."}')
        self._reading = asyncio.create_task(self._read_message())
        assert isinstance(cursor, str)
        return cursor

    async def write(self, events: Iterable[OutputEvent]) -> int:
        size = 0
        for event in events:
            text = f'{{"id":"{event.cursor}","event":"{event.event}","data":{event.data}}}'
            data = text.encode("utf-8", "replace")
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._socket.send_frame(data, WSMsgType.TEXT)
            except (ConnectionError, RuntimeError):
                raise ReaderLeft from None
            except TimeoutError:
                self.abort()
                raise ReaderLeft from None
            size += len(data)
        return size

    async def beat(self) -> None:
        """Does nothing: the connection sends pings by itself."""

    def check(self) -> None:
        if self._socket.closed or self._reading is None or self._reading.done():
            raise ReaderLeft

    async def end(self, error: Exception, instance: str) -> None:
        code = POLICY
        if isinstance(error, Unavailable):
            code = GOING_AWAY if "stopping" in str(error) else AGAIN_LATER
        await self._close(code, str(error) or "the service did not answer in time")

    def abort(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if isinstance(self._transport, asyncio.Transport):
            self._transport.abort()

    async def _read_message(self) -> str:
        """Returns the next message, which comes once at most; the end of the connection is an empty
        one."""
        message = await self._socket.receive()
        return str(message.data) if message.type is WSMsgType.TEXT else ""

    async def _refuse(self, problem: str) -> NoReturn:
        await self._close(POLICY, problem)
        raise ReaderLeft

    async def _close(self, code: int, reason: str) -> None:
        if self._reading is not None:
            self._reading.cancel()  # only one may read, and closing does
            await asyncio.gather(self._reading, return_exceptions=True)
        shown = reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")
        await self._socket.close(code=code, message=shown.encode())


def is_upgrade(request: web.Request) -> bool:
    """Returns whether the request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def answer_later(request: web.Request) -> web.StreamResponse:
    """Answers a browser that reconnects while the service is away. It would give up for good after
    any other status than 200, so it is told to come again later."""
    response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM})
    await response.prepare(request)
    await response.write(f"retry: {LATER_RETRY_MS}\n: the service is away\n\n".encode())
    await response.write_eof()
    return response


def _format_event(event: OutputEvent) -> bytes:
    text = f"id: {event.cursor}\nevent: {event.event}\ndata: {event.data}\n\n"
    return text.encode("utf-8", "replace")


def _join_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields pieces joined to parts of about PART_BYTES."""
    part: list[bytes] = []
    size = 0
    for piece in pieces:
        part.append(piece)
        size += len(piece)
        if size >= PART_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)
