"""The Deliver streams: they relay a session's encoded batches, unparsed, from the gateway to the
client."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, Future

from ps2stream.dispatcher.gateway import DeliverStream, DispatcherGateway, Sink
from ps2stream.errors import FailedPrecondition, Unavailable, invalid
from ps2stream.limits import REQUEST_BYTES
from ps2stream.service.calls import name_problem, parse, session_not_made, settle
from ps2stream.service.inbox import InboxCut, InboxEnd, StreamInbox, StreamInboxes
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.service_loop import service_loop
from ps2stream.v1 import delivery_pb2

log = logging.getLogger("ps2stream.service")
CREDIT_BATCHES = 256
CREDIT_BYTES = 1 << 20
MAX_CREDIT_BATCHES = 4096
MAX_CREDIT_BYTES = 8 << 20
"""Credits bound what waits here for a slow stream; inbox.py bounds what waits for all streams."""


class DeliverStreams:
    """All Deliver streams of a tenant. `held` is what waits for the streams of all tenants. Events
    of streams are put on the one thread of `puts`, which keeps their order and may have to handle
    them."""

    def __init__(self, gateway: DispatcherGateway, held: StreamInboxes, puts: Executor) -> None:
        self._gateway = gateway
        self._held = held
        self._puts = puts
        self._open: dict[OpenCall, StreamInbox] = {}
        self._stopping = False

    async def deliver(self, call: OpenCall) -> None:
        """Handles a call, which ends with FAILED_PRECONDITION when another stream of the session
        takes over."""
        start = _read_start(await call.read() or b"")
        inbox = self._open[call] = self._held.open()

        def sink(data: bytes | Exception) -> bool:
            if not isinstance(data, Exception):
                return inbox.put(data)
            inbox.end(data)
            return False

        try:
            if self._stopping:
                raise _service_stopping()
            stream = await self._attach_stream(start, sink, call)
            try:
                await DeliverRelay(stream, call, inbox, self._puts).run(
                    delivery_pb2.Started(
                        session=stream.session,
                        epoch=stream.epoch,
                        incarnation=self._gateway.incarnation,
                        acked=stream.acked,
                    )
                )
            finally:
                self._puts.submit(_close_stream, stream)
        finally:
            self._open.pop(call, None)
            inbox.close()

    def stop(self) -> None:
        """Ends all streams with UNAVAILABLE, so that clients look for another server."""
        self._stopping = True
        for inbox in tuple(self._open.values()):
            inbox.end(_service_stopping())

    def end(self, call: OpenCall, error: Exception) -> bool:
        """Ends one stream with `error`; returns False when there is no such stream."""
        inbox = self._open.get(call)
        if inbox is not None:
            inbox.end(error)
        return inbox is not None

    async def _attach_stream(
        self, start: delivery_pb2.Start, sink: Sink, call: OpenCall
    ) -> DeliverStream:
        """Opens the stream. If the call ends before, what is opened late is closed."""
        attached: Future[DeliverStream] = Future()
        self._puts.submit(self._attach_and_tell, start, sink, attached)
        try:
            stream = await settle(attached, call)
        except BaseException:
            attached.add_done_callback(lambda done: self._puts.submit(_close_late, done))
            raise
        if not stream.session:
            self._puts.submit(_close_stream, stream)
            raise session_not_made()
        return stream

    def _attach_and_tell(
        self, start: delivery_pb2.Start, sink: Sink, attached: Future[DeliverStream]
    ) -> None:
        try:
            attaching = self._gateway.attach(
                start.session,
                _read_fields(start.fields),
                start.credit_batches or CREDIT_BATCHES,
                start.credit_bytes or CREDIT_BYTES,
                sink,
                self._read_cursor(start),
                start.cursor.session,
            )
        except Exception as error:  # noqa: BLE001
            attached.set_exception(error)
            return
        attaching.add_done_callback(lambda done: _pass_on(done, attached))

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
    bound."""

    def __init__(
        self, stream: DeliverStream, call: OpenCall, inbox: StreamInbox, puts: Executor
    ) -> None:
        self._stream = stream
        self._call = call
        self._inbox = inbox
        self._puts = puts
        self._ready = asyncio.Event()
        self._is_ready = False  # the event is set, or soon will be
        self._is_reopening = False
        self._sent_batches = 0
        self._sent_bytes = 0
        self._credited_batches = 0
        self._credited_bytes = 0

    async def run(self, started: delivery_pb2.Started) -> None:
        """Writes `started` before all others, and relays until the inbox ends."""
        await self._call.write(delivery_pb2.DeliverResponse(started=started).SerializeToString())
        self._inbox.ready = self._note_ready
        reading = asyncio.create_task(self._read_credits())
        try:
            await self._write_all()
        finally:
            self._inbox.ready = _do_nothing
            reading.cancel()

    def _note_ready(self) -> None:
        """Wakes the stream; for any thread."""
        if not self._is_ready:
            self._is_ready = True
            loop = service_loop()
            self._ready.set() if loop.is_here else loop.post(self._ready.set)

    async def _write_all(self) -> None:
        while True:
            self._ready.clear()
            self._is_ready = False  # before the look, so that what comes later wakes the stream
            item = self._inbox.take()
            if isinstance(item, bytes):
                self._sent_batches += 1
                self._sent_bytes += len(item)
                writing = self._call.write(item)
                del item  # nothing may hold a batch until the next one comes
                await writing
            elif isinstance(item, InboxEnd):
                if item.error is not None:
                    raise item.error
                return
            else:
                if isinstance(item, InboxCut):
                    self._reopen_soon()
                await self._ready.wait()

    def _reopen_soon(self) -> None:
        if not self._is_reopening:
            self._is_reopening = True
            self._puts.submit(self._restart_after_cut)

    def _restart_after_cut(self) -> None:
        try:
            self._stream.again(self._reopen_inbox)
        except Exception as error:  # noqa: BLE001
            self._inbox.end(error)

    def _reopen_inbox(self) -> InboxCut:
        """Takes batches again, and returns what was dropped."""
        cut = self._inbox.go_on()
        self._is_reopening = False
        self._note_ready()
        return cut

    async def _read_credits(self) -> None:
        try:
            while (data := await self._call.read()) is not None:
                request = parse(delivery_pb2.DeliverRequest, data, REQUEST_BYTES, "request_bytes")
                if request.WhichOneof("event") != "credit":
                    raise invalid("event", "expected a credit after the start")
                self._grant_credit(request.credit)
            self._inbox.end()  # the client has ended its side, which ends the stream
        except Exception as error:  # noqa: BLE001
            self._inbox.end(error)

    def _grant_credit(self, credit: delivery_pb2.Credit) -> None:
        batches = min(credit.batches, self._sent_batches - self._credited_batches)
        size = min(credit.bytes, self._sent_bytes - self._credited_bytes)
        self._credited_batches += batches
        self._credited_bytes += size
        ack = min(credit.ack, (1 << 63) - 1)
        self._puts.submit(self._put_credit, batches, size, ack)

    def _put_credit(self, batches: int, size: int, ack: int) -> None:
        try:
            self._stream.credit(batches, size, ack)
        except Exception as error:  # noqa: BLE001
            self._inbox.end(error)


def _read_fields(fields: delivery_pb2.DeliverFields) -> int:
    """Returns the fields as bits (merger/fanout.py)."""
    flags = (fields.text, fields.position, fields.time, fields.attributes, fields.payload)
    return sum(flag << i for i, flag in enumerate(flags))


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


def _pass_on(done: Future[DeliverStream], to: Future[DeliverStream]) -> None:
    if (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(done.result())


def _close_late(attached: Future[DeliverStream]) -> None:
    if attached.exception() is None:
        _close_stream(attached.result())


def _close_stream(stream: DeliverStream) -> None:
    try:
        stream.close()
    except Exception:
        log.exception("a stream could not be closed")


def _do_nothing() -> None:
    """Stands for a stream that takes nothing more."""


def _service_stopping() -> Unavailable:
    return Unavailable("the service is stopping")
