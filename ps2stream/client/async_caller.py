"""Calls of the asynchronous client, with their retries."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from ps2stream.client import failures, requests
from ps2stream.client.async_channel import (
    AsyncBatches,
    AsyncCall,
    AsyncChannel,
    async_sleep,
    iterate_any,
)
from ps2stream.client.async_subscription import AsyncSubscription
from ps2stream.client.connection import File, access
from ps2stream.client.joining import RequestJoiner
from ps2stream.client.window import WINDOW, SendWindow
from ps2stream.errors import Ps2StreamError, ResourceExhausted, Unavailable

A = TypeVar("A", bound=Message)
T = TypeVar("T")
PUBSUB = "/ps2stream.v1.PubSub/"  # where a name without a path is
ADMIN = "/ps2stream.v1.Admin/"


class AsyncCaller:
    """A connection to dispatchers, and how calls are made over it. The parameters are those of the
    client."""

    def __init__(
        self,
        target: str = requests.DEFAULT_TARGET,
        *,
        timeout: float = 30.0,
        token: str | None = None,
        tls_ca: File | None = None,
        tls_cert: File | None = None,
        tls_key: File | None = None,
        discover: bool = False,
    ) -> None:
        self._channel = AsyncChannel(access(target, token, tls_ca, tls_cert, tls_key, discover))
        self._subscriptions: weakref.WeakSet[AsyncSubscription] = weakref.WeakSet()
        self.target = target
        self._timeout = min(timeout, requests.LONGEST_S)

    async def close(self) -> None:
        """Ends the connection and every subscription on it."""
        for subscription in tuple(self._subscriptions):
            await subscription.close()
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call_rpc(
        self, name: str, request: Message, kind: type[A], *, repeatable: bool = True
    ) -> A:
        data = request.SerializeToString()
        await self._channel.find_dispatchers()

        async def attempt(left: float) -> bytes:
            return await self._channel.call(find_path(name), data, left)

        return kind.FromString(await self._retry_call(attempt, repeatable))

    async def _list_pages(self, name: str, kind: type[A], request: Any) -> AsyncIterator[A]:
        """Yields the pages of a list, and writes the token of the next page into the request."""
        while True:
            page: Any = await self._call_rpc(name, request, kind)
            yield page
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def _send_windowed(
        self,
        name: str,
        messages: AsyncBatches,
        read: Callable[[bytes], Sequence[T]],
        in_flight: int | None,
        joiner: RequestJoiner | None = None,
    ) -> AsyncIterator[T]:
        """Sends requests over one stream and yields the answers in order, as `read` returns those
        of a response, with as many requests unanswered as a SendWindow lets. Requests are made
        where the caller iterates, so that the caller gets their errors. `joiner` joins them."""
        await self._channel.find_dispatchers()
        stream = self._channel.open_stream(find_path(name), joiner=joiner)
        window = SendWindow(in_flight)
        try:
            async for message in iterate_any(messages):
                stream.write(message)
                window.note_sent(len(message))
                while window.is_full:
                    for answer in read(await stream.read()):
                        window.note_answered()
                        yield answer
            stream.end_requests()
            while len(window):
                for answer in read(await stream.read()):
                    window.note_answered()
                    yield answer
        finally:
            stream.cancel()

    def _send_bulk(
        self, name: str, messages: Iterable[Message], kind: type[A], in_flight: int = WINDOW
    ) -> AsyncIterator[A]:
        """Sends idempotent batches, like `_send_repeatable`, and yields their answers."""
        encoded = (message.SerializeToString() for message in messages)

        def parse_one(data: bytes) -> Sequence[A]:
            return (kind.FromString(data),)

        return self._send_repeatable(name, encoded, parse_one, in_flight)

    async def _send_repeatable(
        self,
        name: str,
        messages: AsyncBatches,
        read: Callable[[bytes], Sequence[T]],
        in_flight: int | None,
        joiner: RequestJoiner | None = None,
    ) -> AsyncIterator[T]:
        """Sends idempotent requests, like `_send_windowed`. After a lost connection, those without
        an answer are sent again."""
        unanswered: deque[bytes] = deque()
        source = aiter(iterate_any(messages))

        async def repeat_unanswered() -> AsyncIterator[bytes]:
            for message in tuple(unanswered):
                yield message
            async for message in source:
                unanswered.append(message)
                yield message

        tries, deadline = 0, time.monotonic() + self._timeout
        while True:
            try:
                async for answer in self._send_windowed(
                    name, repeat_unanswered(), read, in_flight, joiner
                ):
                    unanswered.popleft()
                    yield answer
                    tries, deadline = 0, time.monotonic() + self._timeout
                return
            except (Unavailable, ResourceExhausted) as error:
                pause = failures.pause_before(error, tries, True)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise
            await async_sleep(pause)
            tries += 1

    async def _retry_call(self, attempt: AsyncCall[T], repeatable: bool) -> T:
        """Repeats an attempt, which is given the seconds that are left, until it succeeds."""
        deadline = time.monotonic() + self._timeout
        tries = 0
        while True:
            try:
                return await attempt(max(0.001, deadline - time.monotonic()))
            except TimeoutError as error:
                if str(error) != failures.NO_ANSWER:
                    raise
                problem = f"{self.target} did not answer within {self._timeout:g} s"
                raise TimeoutError(problem) from None
            except Ps2StreamError as error:
                pause = failures.pause_before(error, tries, repeatable)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise
            await async_sleep(pause)
            tries += 1


def find_path(name: str) -> str:
    """Returns the path of a method, which is one of PubSub when only its name is given."""
    return name if name.startswith("/") else PUBSUB + name
