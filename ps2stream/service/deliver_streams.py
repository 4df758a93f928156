"""The Deliver streams: they relay a session's encoded batches, unparsed, from the gateway to the
client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import grpc

from ps2stream.dispatcher.gateway import DeliverStream, DispatcherGateway, Sink
from ps2stream.errors import FailedPrecondition, Unavailable, invalid
from ps2stream.limits import REQUEST_BYTES
from ps2stream.service.calls import name_problem, parse, session_not_made, wait
from ps2stream.service.inbox import InboxCut, InboxEnd, StreamInbox, StreamInboxes
from ps2stream.service.open_calls import OpenCall, TaskThread
from ps2stream.v1 import delivery_pb2

CREDIT_BATCHES = 256
CREDIT_BYTES = 1 << 20
MAX_CREDIT_BATCHES = 4096
MAX_CREDIT_BYTES = 8 << 20
"""Credits bound what waits here for a slow stream; inbox.py bounds what waits for all streams."""


class DeliveryThreads(NamedTuple):
    """The two threads of a server that serve all Deliver streams: one writes; the other handles the
    messages of clients, for which it may have to wait for the dispatcher."""

    writes: TaskThread
    credits: TaskThread

    @classmethod
    def start(cls) -> DeliveryThreads:
        return cls(TaskThread("ps2stream-deliver"), TaskThread("ps2stream-credits"))

    def close(self) -> None:
        self.writes.close()  # it may still give the other thread the end of a stream
        self.credits.close()


class DeliverStreams:
    """All Deliver streams of a tenant. `held` is what waits for the streams of all tenants."""

    def __init__(
        self, gateway: DispatcherGateway, held: StreamInboxes, threads: DeliveryThreads
    ) -> None:
        self._gateway = gateway
        self._held = held
        self._threads = threads
        self._open: dict[grpc.ServicerContext, StreamInbox] = {}
        self._stopping = False

    def deliver(
        self, requests: Iterator[bytes], context: grpc.ServicerContext, send: Callable[[None], None]
    ) -> None:
        """Handles a call by opening the stream, which ends with FAILED_PRECONDITION when another
        stream of the session takes over."""
        start = _read_start(next(requests, b""))
        inbox = self._held.open()

        def sink(data: bytes | Exception) -> bool:
            if not isinstance(data, Exception):
                return inbox.put(data)
            inbox.end(data)
            return False

        def leave() -> None:
            self._open.pop(context, None)
            inbox.close()

        self._open[context] = inbox
        try:
            if self._stopping:
                raise _service_stopping()
            stream = self._attach_stream(start, sink, context)
        except BaseException:
            leave()
            raise

        def close() -> None:
            try:
                stream.close()
            finally:
                leave()

        if not context.add_callback(lambda: self._threads.credits.do(close)):
            close()
            return
        started = delivery_pb2.Started(
            session=stream.session, epoch=stream.epoch, incarnation=self._gateway.incarnation
        )
        first = delivery_pb2.DeliverResponse(started=started).SerializeToString()
        DeliverRelay(stream, OpenCall(context, send), inbox, self._threads, close).begin(first)

    def stop(self) -> None:
        """Ends all streams with UNAVAILABLE, so that clients look for another server."""
        self._stopping = True
        for inbox in tuple(self._open.values()):
            inbox.end(_service_stopping())

    def end(self, context: grpc.ServicerContext, error: Exception) -> bool:
        """Ends one stream with `error`; returns False when there is no such stream."""
        inbox = self._open.get(context)
        if inbox is not None:
            inbox.end(error)
        return inbox is not None

    def _attach_stream(
        self, start: delivery_pb2.Start, sink: Sink, context: grpc.ServicerContext
    ) -> DeliverStream:
        fields = start.fields.text | start.fields.position << 1 | start.fields.time << 2
        attaching = self._gateway.attach(
            start.session,
            fields,
            start.credit_batches or CREDIT_BATCHES,
            start.credit_bytes or CREDIT_BYTES,
            sink,
            self._read_cursor(start),
            start.cursor.session,
        )
        try:
            stream = wait(attaching, context)
        except Exception:
            attaching.add_done_callback(_close_late)
            raise
        if not stream.session:
            stream.close()
            raise session_not_made()
        return stream

    def _read_cursor(self, start: delivery_pb2.Start) -> int:
        """Returns the number of the last pair that the client reports to have dealt with."""
        if not start.HasField("cursor"):
            return 0
        if start.cursor.incarnation != self._gateway.incarnation:
            raise FailedPrecondition(
                "cursor: it belongs to another service or data directory; start without it, and "
                "numbers begin at 1"
            )
        return min(start.cursor.session_seq, (1 << 63) - 1)


class DeliverRelay:
    """The relay of one stream. It sends what the stream's inbox holds to the client, one message at
    a time, and passes credits on, never more than was sent, so that those of the Start stay the
    bound. `close` releases the stream and the inbox."""

    def __init__(
        self,
        stream: DeliverStream,
        call: OpenCall,
        inbox: StreamInbox,
        threads: DeliveryThreads,
        close: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._call = call
        self._inbox = inbox
        self._writes, self._credits = threads
        self._close = close
        self._busy = True  # something is being written, or everything has been
        self._sent_batches = 0
        self._sent_bytes = 0
        self._credited_batches = 0
        self._credited_bytes = 0

    def begin(self, first: bytes) -> None:
        """Writes this message before all others."""
        self._inbox.ready = self._schedule_if_idle
        self._call.write(first, self._schedule_write)
        self._call.read(self._schedule_message)

    def _schedule_write(self) -> None:
        self._writes.do(self._write_next)

    def _schedule_if_idle(self) -> None:
        if not self._busy:
            self._writes.do(self._write_if_idle)

    def _write_if_idle(self) -> None:
        if not self._busy:
            self._write_next()

    def _write_next(self) -> None:
        self._busy = False
        match self._inbox.take():
            case None:
                return
            case InboxCut():
                self._credits.do(self._restart_after_cut)
            case InboxEnd(error):
                self._credits.do(lambda: self._end_call(error))
            case data:
                self._sent_batches += 1
                self._sent_bytes += len(data)
                self._call.write(data, self._schedule_write)
        self._busy = True

    def _restart_after_cut(self) -> None:
        try:
            self._stream.again(self._reopen_inbox)
        except Exception as error:  # noqa: BLE001
            self._inbox.end(error)
            self._schedule_write()

    def _reopen_inbox(self) -> InboxCut:
        """Takes batches again, and returns what was dropped."""
        cut = self._inbox.go_on()
        self._schedule_write()
        return cut

    def _end_call(self, error: Exception | None) -> None:
        try:
            self._close()
        finally:
            self._call.end(error)

    def _schedule_message(self, data: bytes | None) -> None:
        self._credits.do(lambda: self._handle_message(data))

    def _handle_message(self, data: bytes | None) -> None:
        if data is None:  # the client has ended its side, which ends the stream
            self._inbox.end()
            return
        try:
            request = parse(delivery_pb2.DeliverRequest, data, REQUEST_BYTES, "request_bytes")
            if request.WhichOneof("event") != "credit":
                raise invalid("event", "expected a credit after the start")
            self._grant_credit(request.credit)
        except Exception as error:  # noqa: BLE001
            self._inbox.end(error)
        else:
            self._call.read(self._schedule_message)

    def _grant_credit(self, credit: delivery_pb2.Credit) -> None:
        batches = min(credit.batches, self._sent_batches - self._credited_batches)
        size = min(credit.bytes, self._sent_bytes - self._credited_bytes)
        self._credited_batches += batches
        self._credited_bytes += size
        self._stream.credit(batches, size, min(credit.ack, (1 << 63) - 1))


def _read_start(data: bytes) -> delivery_pb2.Start:
    request = parse(delivery_pb2.DeliverRequest, data, REQUEST_BYTES, "request_bytes")
    if request.WhichOneof("event") != "start":
        raise invalid("event", "the first message must be a start")
    start = request.start
    if problem := name_problem(start.session, "session"):
        raise invalid("start.session", problem)
    for name, value, limit in (
        ("credit_batches", start.credit_batches, MAX_CREDIT_BATCHES),
        ("credit_bytes", start.credit_bytes, MAX_CREDIT_BYTES),
    ):
        if value > limit:
            raise invalid(f"start.{name}", f"{value} is over the limit {name} {limit}")
    return start


def _close_late(attaching: Future[DeliverStream]) -> None:
    if not attaching.cancelled() and attaching.exception() is None:
        attaching.result().close()


def _service_stopping() -> Unavailable:
    return Unavailable("the service is stopping")
