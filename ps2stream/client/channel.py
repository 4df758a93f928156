"""The synchronous client's way to gRPC: calls and streams, with our own errors.

`async_channel` has the same names for the asynchronous client.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import grpc

from ps2stream.client import requests
from ps2stream.client.answers import WatchReport
from ps2stream.client.connection import ChannelAccess
from ps2stream.client.discovery import ANSWER_S, LIST_DISPATCHERS, DispatcherFinder
from ps2stream.client.failures import rpc_error
from ps2stream.client.joining import RequestJoiner
from ps2stream.client.requests import LONGEST_S
from ps2stream.client.spreading import ChosenCall, DispatcherChoice
from ps2stream.errors import FailedPrecondition, Ps2StreamError, Unavailable

V = TypeVar("V")
Batches = Iterable[Any]
Reports = Generator[WatchReport, None, None]
Call = Callable[[float], V]
Event = threading.Event
Lock = threading.Lock
sleep = time.sleep
_Inbox = queue.SimpleQueue[bytes | Exception]
_Outbox = queue.SimpleQueue[bytes | None]


class Channel:
    """The channels to the dispatchers that are known, each of which can be called."""

    def __init__(self, access: ChannelAccess) -> None:
        self._metadata = access.metadata
        self._closed = False
        # Making a method takes as long as a third of a call.
        self._methods: dict[tuple[int, str], Any] = {}
        self._credentials = access.credentials
        self._choice = DispatcherChoice(len(access.targets))
        self._finder = DispatcherFinder(access)
        self._channels = [self._open_one(target) for target in access.targets]

    def _open_one(self, target: str) -> grpc.Channel:
        options = requests.CHANNEL_OPTIONS
        if self._credentials is None:
            return grpc.insecure_channel(target, options)
        return grpc.secure_channel(target, self._credentials, options)

    def find_dispatchers(self) -> None:
        """Asks a dispatcher where all are, if that is due. What cannot be learned now is asked
        again later."""
        if not self._finder.begin_question():
            return
        try:
            answer = self.call(LIST_DISPATCHERS, b"", ANSWER_S)
        except (Ps2StreamError, TimeoutError):
            return
        first = self._finder.read_answer(answer)
        for target in self._finder.targets[len(self._channels) :]:
            self._channels.append(self._open_one(target))
        if first:
            self._choice.prefer(first, len(self._channels))

    def close(self) -> None:
        """Ends the channels, and with them every call that is under way."""
        self._closed = True
        for channel in self._channels:
            channel.close()

    def call(self, name: str, request: bytes, timeout: float) -> bytes:
        """Makes a unary call and returns the answer; another dispatcher is called where one cannot
        be reached. Raises the errors of `ps2stream.errors`, and TimeoutError."""
        for left in reversed(range(len(self._channels))):
            try:
                return self._call_one(name, request, timeout)
            except Unavailable as error:
                if error.may_be_done or not left:
                    raise
        raise AssertionError("there is a dispatcher")

    def _call_one(self, name: str, request: bytes, timeout: float) -> bytes:
        with self._choice.begin_call() as opened:
            method = self._find_method(opened.number, name)
            return self._begin_call(lambda: bytes(method(request, timeout, self._metadata)))

    def _find_method(self, number: int, name: str) -> Any:
        """Returns gRPC's callable of a unary method of this dispatcher."""
        found = self._methods.get((number, name))
        if found is None:
            found = self._methods[number, name] = self._channels[number].unary_unary(name)
        return found

    def collect(self, name: str, request: bytes, timeout: float) -> list[bytes]:
        """Makes a call that is answered by a stream, and returns its answers. Raises as `call`."""
        with self._choice.begin_call() as opened:
            method: Any = self._channels[opened.number].unary_stream(name)
            return self._begin_call(lambda: list(method(request, timeout, self._metadata)))

    def open_feed(self, name: str, request: bytes) -> Stream:
        """Makes a call that is answered by a stream, to be read answer by answer."""
        with self._choice.begin_call(lasts=True) as opened:
            method: Any = self._channels[opened.number].unary_stream(name)
            call = self._begin_call(lambda: method(request, None, self._metadata))
            return Stream(call, opened.pass_on())

    def open_stream(
        self, name: str, *, buffered: bool = False, joiner: RequestJoiner | None = None
    ) -> Stream:
        """Opens a stream in both directions. With `buffered`, answers are read as they come, so the
        protocol must bound them; reads may then have a time limit. `joiner` joins requests."""
        outbox: _Outbox = queue.SimpleQueue()
        sent = take_requests(outbox, joiner or RequestJoiner())
        with self._choice.begin_call(lasts=True) as opened:
            method: Any = self._channels[opened.number].stream_stream(name)
            call = self._begin_call(lambda: method(sent, None, self._metadata))
            return Stream(call, opened.pass_on(), outbox, buffered=buffered)

    def _begin_call(self, begin: Callable[[], V]) -> V:
        try:
            if not self._closed:
                return begin()
        except grpc.RpcError as error:
            raise rpc_error(error) from None
        except ValueError:  # gRPC's word for a channel that was closed meanwhile
            if not self._closed:
                raise
        raise FailedPrecondition("the client is closed")


class Stream:
    """A stream of requests and answers. A buffered one has a thread of its own that reads, because
    gRPC's reads cannot be given a time limit."""

    def __init__(
        self,
        call: Any,
        opened: ChosenCall,
        outbox: _Outbox | None = None,
        *,
        buffered: bool = False,
    ) -> None:
        self._call = call
        self._opened = opened
        self._outbox = outbox
        self._inbox: _Inbox = queue.SimpleQueue()
        self._reader: threading.Thread | None = None
        if buffered:
            self._reader = threading.Thread(
                target=_read_answers, args=(call, opened, self._inbox), daemon=True,
                name="ps2stream-reader",
            )  # fmt: skip
            self._reader.start()
        weakref.finalize(self, _end_call, call, opened, outbox)

    def write(self, data: bytes) -> None:
        """Sends a request, now or when the ones before it are sent. When the stream has ended, the
        next `read` raises why."""
        if self._outbox is not None:
            self._outbox.put(data)

    def end_requests(self) -> None:
        """Tells the service that no more requests follow."""
        if self._outbox is not None:
            self._outbox.put(None)

    def read(self) -> bytes:
        """Returns the next answer. Raises the stream's status, or Unavailable at its end."""
        if self._reader is None:
            return _read_answer(self._call, self._opened)
        data = self.read_within(None)
        assert data is not None
        return data

    def read_within(self, timeout: float | None) -> bytes | None:
        """Returns the next answer of a buffered stream, None when none comes within `timeout`
        seconds. Raises as `read` does."""
        try:
            found = self._inbox.get(timeout=None if timeout is None else min(timeout, LONGEST_S))
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            self._inbox.put(found)  # the next read raises it too
            raise found
        return found

    def finish(self, timeout: float) -> None:
        """Waits until the service ends the stream, for at most `timeout` seconds."""
        if self._reader is not None:
            self._reader.join(timeout)
        self.cancel()

    def cancel(self) -> None:
        """Ends the stream now."""
        _end_call(self._call, self._opened, self._outbox)


def take_requests(outbox: _Outbox, joiner: RequestJoiner) -> Iterator[bytes]:
    """Yields requests until None comes, those that wait joined if that is allowed."""
    joiner.is_allowed = False  # until the service of this stream says so
    while True:
        waiting = [outbox.get()]
        while joiner.is_allowed and waiting[-1] is not None and not outbox.empty():
            waiting.append(outbox.get())
        yield from joiner.join([request for request in waiting if request is not None])
        if waiting[-1] is None:
            return


def _end_call(call: Any, opened: ChosenCall, outbox: _Outbox | None) -> None:
    if outbox is not None:
        outbox.put(None)
    call.cancel()
    opened.end()


def _read_answer(call: Any, opened: ChosenCall) -> bytes:
    try:
        return bytes(next(call))
    except StopIteration:
        opened.end()
        raise Unavailable("the service ended the stream") from None
    except grpc.RpcError as error:
        failure = rpc_error(error)
        opened.end(failure)
        raise failure from None


def _read_answers(call: Any, opened: ChosenCall, inbox: _Inbox) -> None:
    """Reads until the stream ends, and puts its end last."""
    try:
        while True:
            inbox.put(_read_answer(call, opened))
    except Exception as error:  # noqa: BLE001 - `read` raises it
        inbox.put(error)


def iterate_any(values: Iterable[V]) -> Iterable[V]:
    """Returns the values, for the asynchronous client can iterate over more than these."""
    return values


def wait_until_set(event: threading.Event, timeout: float) -> bool:
    """Waits at most `timeout` seconds and returns whether the event is set."""
    return event.wait(timeout)


def open_early(subscription: Any) -> None:
    """Opens the stream of a subscription that was just made."""
    subscription.open()
