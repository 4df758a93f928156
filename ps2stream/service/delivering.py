"""Deliver: relays a session's encoded batches, unparsed, from the gateway to the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import grpc

from ps2stream.errors import FailedPrecondition, InvalidArgument, Unavailable, Violation
from ps2stream.limits import REQUEST_BYTES
from ps2stream.service.calls import name_problem, no_session, parse, wait
from ps2stream.service.gateway import Gateway, Sink, Stream
from ps2stream.service.inbox import Cut, Held, Inbox
from ps2stream.v1 import delivery_pb2

CREDIT_BATCHES = 256
CREDIT_BYTES = 1 << 20
MAX_CREDIT_BATCHES = 4096
MAX_CREDIT_BYTES = 8 << 20
"""Credits bound what waits here for a slow stream; inbox.py what waits for all of them."""


class Delivering:
    """All Deliver streams of a tenant; `held` is what waits for those of all tenants."""

    def __init__(self, gateway: Gateway, held: Held) -> None:
        self._gateway = gateway
        self._held = held
        self._open: dict[grpc.ServicerContext, Inbox] = {}
        self._stopping = False

    def deliver(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """The handler; ends with FAILED_PRECONDITION when another stream takes over."""
        start = _start(next(requests, b""))
        inbox = self._held.open()

        def sink(data: bytes | None) -> bool:
            if data is not None:
                return inbox.put(data)
            inbox.end(_TAKEN_OVER)
            return False

        self._open[context] = inbox
        try:
            if not context.add_callback(inbox.end):
                return
            if self._stopping:
                raise _stopping()
            yield from self._relay(self._attach(start, sink, context), requests, inbox)
        finally:
            self._open.pop(context, None)
            inbox.close()

    def stop(self) -> None:
        """End all streams with UNAVAILABLE, so that clients look for another server."""
        self._stopping = True
        for inbox in tuple(self._open.values()):
            inbox.end(_stopping())

    def end(self, context: grpc.ServicerContext, error: Exception) -> bool:
        """End one stream with `error`; False when there is no such stream."""
        inbox = self._open.get(context)
        if inbox is not None:
            inbox.end(error)
        return inbox is not None

    def _attach(
        self, start: delivery_pb2.Start, sink: Sink, context: grpc.ServicerContext
    ) -> Stream:
        fields = start.fields.text | start.fields.position << 1 | start.fields.time << 2
        attaching = self._gateway.attach(
            start.session,
            fields,
            start.credit_batches or CREDIT_BATCHES,
            start.credit_bytes or CREDIT_BYTES,
            sink,
            self._resume(start),
        )
        try:
            stream = wait(attaching, context)
        except Exception:
            attaching.add_done_callback(_close_late)
            raise
        if not stream.session:
            stream.close()
            raise no_session()
        return stream

    def _resume(self, start: delivery_pb2.Start) -> int:
        """The number of the last pair that the client has dealt with, as far as it says."""
        if not start.HasField("cursor"):
            return 0
        if start.cursor.incarnation != self._gateway.incarnation:
            raise FailedPrecondition(
                "cursor: it is of another service: start without it, and expect numbers from 1"
            )
        return min(start.cursor.session_seq, (1 << 63) - 1)

    def _relay(self, stream: Stream, requests: Iterator[bytes], inbox: Inbox) -> Iterator[bytes]:
        flow = _Flow(stream)
        threading.Thread(
            target=flow.read, args=(requests, inbox), daemon=True, name="ps2stream-credits"
        ).start()
        try:
            started = delivery_pb2.Started(
                session=stream.session, epoch=stream.epoch, incarnation=self._gateway.incarnation
            )
            yield delivery_pb2.DeliverResponse(started=started).SerializeToString()
            while (item := inbox.take()) is not None:
                if isinstance(item, Cut):
                    stream.again(inbox.go_on)
                    continue
                flow.sent_batches += 1
                flow.sent_bytes += len(item)
                yield item
        finally:
            stream.close()


class _Flow:
    """Passes credits on, never more than what was sent: the bound is the Start's."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.sent_batches = 0
        self.sent_bytes = 0
        self._credited_batches = 0
        self._credited_bytes = 0

    def read(self, requests: Iterator[bytes], inbox: Inbox) -> None:
        """Until the client ends its side, which ends the stream."""
        try:
            for data in requests:
                request = parse(delivery_pb2.DeliverRequest, data, REQUEST_BYTES, "request_bytes")
                if request.WhichOneof("event") != "credit":
                    raise _invalid("event", "expected a credit after the start")
                self._pass_on(request.credit)
        except grpc.RpcError:
            pass
        except Exception as error:  # noqa: BLE001
            inbox.end(error)
        inbox.end()

    def _pass_on(self, credit: delivery_pb2.Credit) -> None:
        batches = min(credit.batches, self.sent_batches - self._credited_batches)
        size = min(credit.bytes, self.sent_bytes - self._credited_bytes)
        self._credited_batches += batches
        self._credited_bytes += size
        self._stream.credit(batches, size, min(credit.ack, (1 << 63) - 1))


def _start(data: bytes) -> delivery_pb2.Start:
    request = parse(delivery_pb2.DeliverRequest, data, REQUEST_BYTES, "request_bytes")
    if request.WhichOneof("event") != "start":
        raise _invalid("event", "the first message must be a start")
    start = request.start
    if problem := name_problem(start.session, "session"):
        raise _invalid("start.session", problem)
    for name, value, limit in (
        ("credit_batches", start.credit_batches, MAX_CREDIT_BATCHES),
        ("credit_bytes", start.credit_bytes, MAX_CREDIT_BYTES),
    ):
        if value > limit:
            raise _invalid(f"start.{name}", f"{value} is over the limit {name} {limit}")
    return start


def _close_late(attaching: Future[Stream]) -> None:
    if not attaching.cancelled() and attaching.exception() is None:
        attaching.result().close()


def _invalid(field: str, problem: str) -> InvalidArgument:
    return InvalidArgument([Violation(field, problem)])


def _stopping() -> Unavailable:
    return Unavailable("the service is stopping")


_TAKEN_OVER = FailedPrecondition("another stream has taken the session over")
