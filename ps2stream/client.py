"""The synchronous client.

with Client("localhost:7077") as client:
    client.insert("thames", "flood AND (river OR creek)", region=Circle(-0.12, 51.5, 30))
    with client.subscribe() as matches:
        for match in matches:
            print(match.query_id, match.text)
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from ps2stream import api
from ps2stream.api import Places, Query, Receipt, Refused
from ps2stream.errors import Ps2StreamError, ResourceExhausted, Unavailable
from ps2stream.matches import Match, Matches, Receiver
from ps2stream.v1 import admin_pb2, pubsub_pb2

__all__ = ["Client", "Subscription"]

log = logging.getLogger("ps2stream.client")
A = TypeVar("A", bound=Message)
PUBSUB = "/ps2stream.v1.PubSub/"
ADMIN = "/ps2stream.v1.Admin/"
BULK_WINDOW = 8


class Client:
    """A connection to a dispatcher. Safe for several threads.

    timeout: seconds for a call with all its retries. Calls that a full service refuses are
    retried; so are, after a lost connection, those that cannot do their work twice (all but
    publishing). Raises the errors of `ps2stream.errors`, and TimeoutError.
    """

    def __init__(self, target: str = api.DEFAULT_TARGET, *, timeout: float = 30.0) -> None:
        self.target = target
        self._timeout = timeout
        self._channel = grpc.insecure_channel(target, options=api.CHANNEL_OPTIONS)
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    def close(self) -> None:
        """End the connection and every subscription on it."""
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

    # --- queries --------------------------------------------------------------

    def insert(
        self, id: str, expression: str = "", region: Places = None, *, session: str = "default"
    ) -> int:
        """Insert a query; its LSN. Later objects, through any dispatcher, are matched against
        it. Repeating it is harmless; AlreadyExists for another query under a taken id."""
        request = api.insert_request(id, expression, region, session)
        return self._call("InsertQuery", request, pubsub_pb2.InsertQueryResponse).lsn

    def insert_many(
        self,
        queries: Iterable[Any],
        *,
        session: str = "default",
        refused: list[Refused] | None = None,
    ) -> list[int]:
        """Insert queries, each a Query, a mapping, or (id, expression[, region]); their LSNs.
        All good ones are inserted; bad ones go to `refused`, or raise without it."""
        answers = api.BulkAnswers()
        requests = api.insert_batches(queries, session)
        for answer in self._bulk("InsertQueries", requests, pubsub_pb2.InsertQueriesResponse):
            answers.add(answer)
        return answers.result(refused)

    def delete(self, id: str) -> int:
        """Delete a query; the LSN of that. NotFound when there is none."""
        request = pubsub_pb2.DeleteQueryRequest(id=id, request_id=api.new_request_id())
        return self._call("DeleteQuery", request, pubsub_pb2.DeleteQueryResponse).lsn

    def delete_many(self, ids: Iterable[str], *, refused: list[Refused] | None = None) -> list[int]:
        """Delete queries; the LSNs. Unknown ids go to `refused`, or raise without it."""
        answers = api.BulkAnswers()
        requests = api.delete_batches(ids)
        for answer in self._bulk("DeleteQueries", requests, pubsub_pb2.DeleteQueriesResponse):
            answers.add(answer)
        return answers.result(refused)

    def get(self, id: str) -> Query:
        """A live query, in canonical form. NotFound when there is none."""
        request = pubsub_pb2.GetQueryRequest(id=id)
        return api.query_of(self._call("GetQuery", request, pubsub_pb2.GetQueryResponse).query)

    def list(self, session: str | None = None, *, page_size: int = 500) -> Iterator[Query]:
        """Live queries in the order of their insertion, of one session or of all."""
        token = ""
        while True:
            request = pubsub_pb2.ListQueriesRequest(
                session=session or "", page_size=page_size, page_token=token
            )
            page = self._call("ListQueries", request, pubsub_pb2.ListQueriesResponse)
            yield from map(api.query_of, page.queries)
            token = page.next_page_token
            if not token:
                return

    # --- objects --------------------------------------------------------------

    def publish(
        self, objects: Any, *, level: str = "accepted", allow_partial: bool = False
    ) -> Receipt:
        """Publish one batch: rows that are mappings (lon, lat, text; id and time where there
        are), a mapping of columns, or a record batch. Taken whole or refused whole, unless
        `allow_partial`."""
        request = api.publish_request(objects, level, allow_partial)
        answer = self._call("Publish", request, pubsub_pb2.PublishResponse, repeatable=False)
        return api.receipt_of(answer)

    def publish_arrow(
        self, batch: pa.RecordBatch, *, level: str = "accepted", allow_partial: bool = False
    ) -> Receipt:
        """Publish one record batch: lon, lat, text and perhaps id and time."""
        return self.publish(batch, level=level, allow_partial=allow_partial)

    def publish_stream(
        self,
        batches: Iterable[Any],
        *,
        level: str = "accepted",
        allow_partial: bool = False,
        in_flight: int = 8,
    ) -> Iterator[Receipt]:
        """Publish batch after batch, `in_flight` of them without an answer; a receipt for
        each, in order. One with `retry_after_ms` was not accepted: the service was full."""
        requests = (
            api.publish_stream_request(b, level, allow_partial).SerializeToString() for b in batches
        )
        for data in self._windowed("PublishStream", requests, in_flight):
            yield api.receipt_of(pubsub_pb2.PublishStreamResponse.FromString(data))

    # --- matches --------------------------------------------------------------

    def subscribe(
        self,
        session: str = "default",
        *,
        text: bool = True,
        position: bool = True,
        time: bool = True,
        reconnect: bool = True,
    ) -> Subscription:
        """The matches of a session, one by one or as `batches()`. Opens the stream before it
        returns. The newest stream of a session wins: an older one raises FailedPrecondition.
        With `reconnect` a lost connection is taken up again."""
        receiver = Receiver(session, text=text, position=position, time=time)
        made = Subscription(self._stream("Deliver"), receiver, reconnect, self._timeout)
        self._subscriptions.add(made)
        return made

    def status(self) -> dict[str, Any]:
        """What the dispatcher knows: version, live_queries, in_flight, counters."""
        request = admin_pb2.GetStatusRequest()
        return api.status_of(self._call(f"{ADMIN}GetStatus", request, admin_pb2.GetStatusResponse))

    # --- calls ----------------------------------------------------------------

    def _stream(self, name: str) -> Any:
        return self._channel.stream_stream(PUBSUB + name)

    def _call(self, name: str, request: Message, kind: type[A], *, repeatable: bool = True) -> A:
        call: Any = self._channel.unary_unary(name if name.startswith("/") else PUBSUB + name)
        data = request.SerializeToString()
        return kind.FromString(self._retried(lambda left: call(data, timeout=left), repeatable))

    def _windowed(self, name: str, requests: Iterable[bytes], window: int) -> Iterator[bytes]:
        """One stream: answers in order, with at most `window` requests unanswered. Requests
        are made on the caller's thread, so that their errors are the caller's."""
        outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = self._stream(name)(iter(outbox.get, None))
        unanswered = 0
        try:
            for request in requests:
                outbox.put(request)
                unanswered += 1
                if unanswered >= window:
                    yield _answer(call)
                    unanswered -= 1
            outbox.put(None)
            for _ in range(unanswered):
                yield _answer(call)
        finally:
            outbox.put(None)
            call.cancel()

    def _bulk(self, name: str, requests: Iterable[Message], kind: type[A]) -> Iterator[A]:
        """Answers to idempotent batches; after a lost connection those without an answer are
        sent again."""
        unanswered: deque[bytes] = deque()

        def sending() -> Iterator[bytes]:
            for request in source:
                unanswered.append(request.SerializeToString())
                yield unanswered[-1]

        source = iter(requests)
        tries, deadline = 0, time.monotonic() + self._timeout
        while True:
            try:
                again = tuple(unanswered)
                for data in self._windowed(name, chain(again, sending()), BULK_WINDOW):
                    unanswered.popleft()
                    yield kind.FromString(data)
                    tries, deadline = 0, time.monotonic() + self._timeout
                return
            except (Unavailable, ResourceExhausted) as error:
                pause = api.pause_before(error, tries, True)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            tries += 1

    def _retried(self, attempt: Callable[[float], bytes], repeatable: bool) -> bytes:
        deadline = time.monotonic() + self._timeout
        tries = 0
        while True:
            try:
                return attempt(max(0.001, deadline - time.monotonic()))
            except grpc.RpcError as error:
                found = _error(error)
                pause = api.pause_before(found, tries, repeatable)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise found from None
            time.sleep(pause)
            tries += 1


class Subscription:
    """Matches of one session, as they come. Iterate over it, or over `batches()`; close it
    from any thread to end the iteration. A batch counts as taken when the next one is asked
    for; what was not taken comes again to the session's next stream."""

    def __init__(self, stub: Any, receiver: Receiver, reconnect: bool, timeout: float) -> None:
        self._stub = stub
        self._receiver = receiver
        self._reconnect = reconnect
        self._timeout = timeout
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._shown = 0  # the last pair handed out, not yet known to be taken
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._connect()

    @property
    def missed(self) -> int:
        """Pairs that the service had to drop because nobody took them in time."""
        return self._receiver.missed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._shown = 0  # its handling may have failed
        self.close()

    def close(self) -> None:
        """Acknowledge what was handed out and end the stream."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            self._receiver.took(self._shown)
            if (last := self._receiver.credit(flush=True)) is not None:
                self._outbox.put(last)
            self._outbox.put(None)
            call = self._call
        limit = threading.Timer(0.5, call.cancel)
        limit.start()
        with self._reading:  # if another thread reads, it reads to the end
            try:
                for _ in call:  # what is still under way comes again to the next stream
                    pass
            except grpc.RpcError:
                log.debug("the stream ended before its last acknowledgement")
        limit.cancel()

    def __iter__(self) -> Iterator[Match]:
        for batch in self._batches():
            for number, match in enumerate(batch, batch.first):
                self._shown = number
                yield match

    def batches(self) -> Iterator[Matches]:
        """Whole batches as columns; also those that hold only a gap."""
        for batch in self._batches():
            self._shown = batch.last
            yield batch

    def _batches(self) -> Iterator[Matches]:
        while (data := self._next()) is not None:
            found = self._receiver.on(data)
            if found is not None:
                if found.gap is not None:
                    log.warning("%d matches were dropped: nobody took them", found.gap.count)
                yield found
                self._receiver.took(found.last)
            if (credit := self._receiver.credit()) is not None:
                self._outbox.put(credit)

    def _next(self) -> bytes | None:
        """The next message; None when the subscription has been closed."""
        while not self._closed.is_set():
            try:
                with self._reading:
                    return _answer(self._call)
            except (Ps2StreamError, TimeoutError) as error:
                self._outbox.put(None)
                if self._closed.is_set():
                    break
                if not (self._reconnect and isinstance(error, Unavailable)):
                    raise
                self._again(error)
        return None

    def _again(self, error: Exception) -> None:
        """Open the stream again; gives up after `timeout` seconds."""
        deadline = time.monotonic() + self._timeout
        for attempt in count():
            pause = api.pause_before(error, attempt, True)
            if pause is None or time.monotonic() + pause >= deadline:
                raise error
            if self._closed.wait(pause):
                return
            try:
                self._connect()
                return
            except Unavailable as again:
                error = again

    def _connect(self) -> None:
        with self._lock:
            self._outbox.put(None)  # lets go of the thread that sent for the last stream
            self._outbox = queue.SimpleQueue()
            self._outbox.put(self._receiver.start())
            self._call = self._stub(iter(self._outbox.get, None))
        try:
            self._receiver.on(_answer(self._call))
        except Exception:
            self._outbox.put(None)
            raise


def _answer(call: Any) -> bytes:
    """The next answer of a stream. Raises its status, or Unavailable at its end."""
    try:
        return bytes(next(call))
    except StopIteration:
        raise Unavailable("the service ended the stream") from None
    except grpc.RpcError as error:
        raise _error(error) from None


def _error(error: Any) -> Exception:
    trailing = {m.key: m.value for m in error.trailing_metadata() or ()}
    details = trailing.get(api.DETAILS_KEY)
    return api.error_of(
        error.code().name, error.details() or "", details if isinstance(details, bytes) else None
    )
