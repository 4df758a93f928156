"""The asynchronous client's way to gRPC: calls and streams on grpc.aio, with our own errors.

`channel` has the same names for the synchronous client, and no others are used by the modules that
both clients share.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
)
from typing import Any, TypeVar

import grpc
import grpc.aio

from ps2stream.client import requests
from ps2stream.client.answers import WatchReport
from ps2stream.client.connection import ChannelAccess
from ps2stream.client.discovery import ANSWER_S, LIST_DISPATCHERS, DispatcherFinder
from ps2stream.client.failures import rpc_error
from ps2stream.client.joining import RequestJoiner
from ps2stream.client.spreading import ChosenCall, DispatcherChoice
from ps2stream.errors import Cancelled, FailedPrecondition, Ps2StreamError, Unavailable

V = TypeVar("V")
AsyncBatches = Iterable[Any] | AsyncIterable[Any]
AsyncReports = AsyncGenerator[WatchReport, None]
AsyncCall = Callable[[float], Awaitable[V]]
AsyncEvent = asyncio.Event
AsyncLock = contextlib.nullcontext
async_sleep = asyncio.sleep


class AsyncChannel:
    """The channels to the dispatchers that are known, each of which can be called."""

    def __init__(self, access: ChannelAccess) -> None:
        self._metadata = access.metadata
        self._closed = False
        self._methods: dict[tuple[int, str], Any] = {}
        self._credentials = access.credentials
        self._choice = DispatcherChoice(len(access.targets))
        self._finder = DispatcherFinder(access)
        self._channels = [self._open_one(target) for target in access.targets]

    def _open_one(self, target: str) -> grpc.aio.Channel:
        options = requests.CHANNEL_OPTIONS
        if self._credentials is None:
            return grpc.aio.insecure_channel(target, options)
        return grpc.aio.secure_channel(target, self._credentials, options)

    async def find_dispatchers(self) -> None:
        """Asks a dispatcher where all are, if that is due. What cannot be learned now is asked
        again later."""
        if not self._finder.begin_question():
            return
        try:
            answer = await self.call(LIST_DISPATCHERS, b"", ANSWER_S)
        except (Ps2StreamError, TimeoutError):
            return
        first = self._finder.read_answer(answer)
        for target in self._finder.targets[len(self._channels) :]:
            self._channels.append(self._open_one(target))
        if first:
            self._choice.prefer(first, len(self._channels))

    async def close(self) -> None:
        """Ends the channels, and with them every call that is under way."""
        self._closed = True
        for channel in self._channels:
            await channel.close()

    async def call(self, name: str, request: bytes, timeout: float) -> bytes:
        """Makes a unary call and returns the answer; another dispatcher is called where one cannot
        be reached. Raises the errors of `ps2stream.errors`, and TimeoutError."""
        for left in reversed(range(len(self._channels))):
            self._check_open()
            try:
                with self._choice.begin_call() as opened:
                    method = self._find_method(opened.number, name)
                    call = method(request, timeout=timeout, metadata=self._metadata)
                    return bytes(await self._wait_for(call))
            except Unavailable as error:
                if error.may_be_done or not left:
                    raise
        raise AssertionError("there is a dispatcher")

    def _find_method(self, number: int, name: str) -> Any:
        """Returns gRPC's callable of a unary method of this dispatcher."""
        found = self._methods.get((number, name))
        if found is None:
            found = self._methods[number, name] = self._channels[number].unary_unary(name)
        return found

    async def collect(self, name: str, request: bytes, timeout: float) -> list[bytes]:
        """Makes a call that is answered by a stream, and returns its answers. Raises as `call`."""
        self._check_open()
        with self._choice.begin_call() as opened:
            method: Any = self._channels[opened.number].unary_stream(name)
            answers = method(request, timeout=timeout, metadata=self._metadata)

            async def read_answers() -> list[bytes]:
                return [data async for data in answers]

            return await self._wait_for(read_answers())

    def open_feed(self, name: str, request: bytes) -> AsyncStream:
        """Makes a call that is answered by a stream, to be read answer by answer."""
        self._check_open()
        with self._choice.begin_call(lasts=True) as opened:
            method: Any = self._channels[opened.number].unary_stream(name)
            return AsyncStream(method(request, metadata=self._metadata), opened.pass_on())

    def open_stream(
        self, name: str, *, buffered: bool = False, joiner: RequestJoiner | None = None
    ) -> AsyncStream:
        """Opens a stream in both directions, of which `joiner` joins requests. Nothing is to be
        done for one that is `buffered`."""
        self._check_open()
        outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        sent = _take_requests(outbox, joiner or RequestJoiner())
        with self._choice.begin_call(lasts=True) as opened:
            method: Any = self._channels[opened.number].stream_stream(name)
            return AsyncStream(method(sent, metadata=self._metadata), opened.pass_on(), outbox)

    async def _wait_for(self, answer: Awaitable[V]) -> V:
        try:
            return await answer
        except grpc.aio.AioRpcError as error:
            raise rpc_error(error) from None
        except (asyncio.CancelledError, grpc.aio.UsageError):
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            raise Cancelled("the client was closed during the call") from None

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPrecondition("the client is closed")


class AsyncStream:
    """A stream of requests and answers."""

    def __init__(
        self, call: Any, opened: ChosenCall, outbox: asyncio.Queue[bytes | None] | None = None
    ) -> None:
        self._call = call
        self._opened = opened
        weakref.finalize(self, opened.end)
        self._outbox = outbox
        self._reading: asyncio.Task[bytes] | None = None

    def write(self, data: bytes) -> None:
        """Sends a request, now or when the ones before it are sent. When the stream has ended, the
        next `read` raises why."""
        if self._outbox is not None:
            self._outbox.put_nowait(data)

    def end_requests(self) -> None:
        """Tells the service that no more requests follow."""
        if self._outbox is not None:
            self._outbox.put_nowait(None)

    async def read(self) -> bytes:
        """Returns the next answer. Raises the stream's status, or Unavailable at its end."""
        data = await self.read_within(None)
        assert data is not None
        return data

    async def read_within(self, timeout: float | None) -> bytes | None:
        """Returns the next answer, None when none comes within `timeout` seconds. Raises as `read`
        does."""
        # A read that is cancelled would cancel the whole call, so it goes on until the next one.
        if self._reading is None:
            self._reading = asyncio.ensure_future(_read_answer(self._call, self._opened))
            self._reading.add_done_callback(_mark_retrieved)
        reading = self._reading
        await asyncio.wait({reading}, timeout=timeout)
        if not reading.done():
            return None
        if reading.exception() is None and self._reading is reading:
            self._reading = None  # an error stays, for the next read raises it too
        return reading.result()

    async def finish(self, timeout: float) -> None:
        """Reads until the service ends the stream, for at most `timeout` seconds."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(timeout):
                while await self.read():
                    pass
        self.cancel()

    def cancel(self) -> None:
        """Ends the stream now."""
        self.end_requests()
        self._call.cancel()
        self._opened.end()


async def _take_requests(
    outbox: asyncio.Queue[bytes | None], joiner: RequestJoiner
) -> AsyncIterator[bytes]:
    """Yields requests until None comes, those that wait joined if that is allowed."""
    joiner.is_allowed = False  # until the service of this stream says so
    while True:
        waiting = [await outbox.get()]
        while joiner.is_allowed and waiting[-1] is not None and not outbox.empty():
            waiting.append(outbox.get_nowait())
        for request in joiner.join([request for request in waiting if request is not None]):
            yield request
        if waiting[-1] is None:
            return


async def _read_answer(call: Any, opened: ChosenCall) -> bytes:
    try:
        data = await call.read()
    except grpc.aio.AioRpcError as error:
        failure = rpc_error(error)
        opened.end(failure)
        raise failure from None
    except (asyncio.CancelledError, asyncio.InvalidStateError):
        raise Cancelled("the stream was closed") from None
    if data is grpc.aio.EOF:
        opened.end()
        raise Unavailable("the service ended the stream")
    return bytes(data)


def _mark_retrieved(reading: asyncio.Task[bytes]) -> None:
    """Keeps asyncio from logging the end of a stream that nobody reads any more."""
    if not reading.cancelled():
        reading.exception()


async def iterate_any(values: Iterable[V] | AsyncIterable[V]) -> AsyncIterator[V]:
    """Yields the values of an iterable of either kind."""
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


async def wait_until_set(event: asyncio.Event, timeout: float) -> bool:
    """Waits at most `timeout` seconds and returns whether the event is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout)
    return event.is_set()


def open_early(subscription: Any) -> None:
    """Does nothing: a stream opens in `async with`, or when it is first read."""
