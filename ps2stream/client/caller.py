# Written from async_caller.py by scripts/sync_client.py: change that one.
"""Calls of the synchronous client, with their retries."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from ps2stream.client import failures, requests
from ps2stream.client.channel import (
    Batches,
    Call,
    Channel,
    iterate_any,
    sleep,
)
from ps2stream.client.connection import File, access
from ps2stream.client.joining import RequestJoiner
from ps2stream.client.subscription import Subscription
from ps2stream.client.window import WINDOW, SendWindow
from ps2stream.errors import Ps2StreamError, ResourceExhausted, Unavailable

A = TypeVar("A", bound=Message)
T = TypeVar("T")
PUBSUB = "/ps2stream.v1.PubSub/"  # where a name without a path is
ADMIN = "/ps2stream.v1.Admin/"


class Caller:
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
        self._channel = Channel(access(target, token, tls_ca, tls_cert, tls_key, discover))
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self.target = target
        self._timeout = min(timeout, requests.LONGEST_S)

    def close(self) -> None:
        """Ends the connection and every subscription on it."""
        for subscription in tuple(self._subscriptions):
            subscription.close()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call_rpc(
        self, name: str, request: Message, kind: type[A], *, repeatable: bool = True
    ) -> A:
        data = request.SerializeToString()
        self._channel.find_dispatchers()

        def attempt(left: float) -> bytes:
            return self._channel.call(find_path(name), data, left)

        return kind.FromString(self._retry_call(attempt, repeatable))

    def _list_pages(self, name: str, kind: type[A], request: Any) -> Iterator[A]:
        """Yields the pages of a list, and writes the token of the next page into the request."""
        while True:
            page: Any = self._call_rpc(name, request, kind)
            yield page
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    def _send_windowed(
        self,
        name: str,
        messages: Batches,
        read: Callable[[bytes], Sequence[T]],
        in_flight: int | None,
        joiner: RequestJoiner | None = None,
    ) -> Iterator[T]:
        """Sends requests over one stream and yields the answers in order, as `read` returns those
        of a response, with as many requests unanswered as a SendWindow lets. Requests are made
        where the caller iterates, so that the caller gets their errors. `joiner` joins them."""
        self._channel.find_dispatchers()
        stream = self._channel.open_stream(find_path(name), joiner=joiner)
        window = SendWindow(in_flight)
        try:
            for message in iterate_any(messages):
                stream.write(message)
                window.note_sent(len(message))
                while window.is_full:
                    for answer in read(stream.read()):
                        window.note_answered()
                        yield answer
            stream.end_requests()
            while len(window):
                for answer in read(stream.read()):
                    window.note_answered()
                    yield answer
        finally:
            stream.cancel()

    def _send_bulk(
        self, name: str, messages: Iterable[Message], kind: type[A], in_flight: int = WINDOW
    ) -> Iterator[A]:
        """Sends idempotent batches, like `_send_repeatable`, and yields their answers."""
        encoded = (message.SerializeToString() for message in messages)

        def parse_one(data: bytes) -> Sequence[A]:
            return (kind.FromString(data),)

        return self._send_repeatable(name, encoded, parse_one, in_flight)

    def _send_repeatable(
        self,
        name: str,
        messages: Batches,
        read: Callable[[bytes], Sequence[T]],
        in_flight: int | None,
        joiner: RequestJoiner | None = None,
    ) -> Iterator[T]:
        """Sends idempotent requests, like `_send_windowed`. After a lost connection, those without
        an answer are sent again."""
        unanswered: deque[bytes] = deque()
        source = iter(iterate_any(messages))

        def repeat_unanswered() -> Iterator[bytes]:
            for message in tuple(unanswered):
                yield message
            for message in source:
                unanswered.append(message)
                yield message

        tries, deadline = 0, time.monotonic() + self._timeout
        while True:
            try:
                for answer in self._send_windowed(
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
            sleep(pause)
            tries += 1

    def _retry_call(self, attempt: Call[T], repeatable: bool) -> T:
        """Repeats an attempt, which is given the seconds that are left, until it succeeds."""
        deadline = time.monotonic() + self._timeout
        tries = 0
        while True:
            try:
                return attempt(max(0.001, deadline - time.monotonic()))
            except TimeoutError as error:
                if str(error) != failures.NO_ANSWER:
                    raise
                problem = f"{self.target} did not answer within {self._timeout:g} s"
                raise TimeoutError(problem) from None
            except Ps2StreamError as error:
                pause = failures.pause_before(error, tries, repeatable)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise
            sleep(pause)
            tries += 1


def find_path(name: str) -> str:
    """Returns the path of a method, which is one of PubSub when only its name is given."""
    return name if name.startswith("/") else PUBSUB + name
