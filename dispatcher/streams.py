"""The Deliver streams of a dispatcher, each with its session's merger (docs/decisions/0006)."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from ps2stream.dispatcher.gateway import DeliverStream, Sink
from ps2stream.errors import FailedPrecondition, ResourceExhausted
from ps2stream.observability.meter import StageMeter
from ps2stream.observability.traces import Key, unix_ns
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.sessions import (
    DeliveryArrivals,
    StreamAttach,
    StreamAttached,
    StreamCredit,
    StreamDelivery,
    StreamDetach,
)
from ps2stream.security import QUOTA_RETRY_MS

Arrival = tuple[float, Key | None]
"""The time of a delivery's arrival (monotonic seconds), and the sampled batch that it is of."""
REPEAT_TICKS = 20
ARRIVED_BYTES = 1 << 20
"""The bytes of deliveries after which their arrival is confirmed without waiting for a tick."""
_TAKEN_OVER = FailedPrecondition("another stream has taken the session over")


class StreamEdge(Protocol):
    """The port to the dispatcher's edge, as streams need it."""

    lock: threading.RLock

    def send(self, sends: list[Send]) -> None: ...
    def rename(self, stream: SessionStream) -> None:
        """Requests a new epoch; `SessionStreams.open` follows."""


@dataclasses.dataclass(eq=False)
class SessionStream:
    """A Deliver stream of a session; a later stream of the same session ends it.

    Credits are totals. They are sent when they have grown by a quarter of the window, and at
    every tick.
    """

    streams: SessionStreams
    name: str
    sink: Sink
    fields: int
    window_batches: int
    window_bytes: int
    ack: int
    of: int  # the session that `ack` is of, if known
    opening: Future[DeliverStream] | None
    session: int = 0
    epoch: int = 0
    attached: bool = False
    closed: bool = False
    number: int = 0  # of the last delivery of this epoch
    sent: tuple[int, int] = (0, 0)  # batches and bytes that went to the sink
    taken: tuple[int, int] = (0, 0)  # that the client has taken
    base: tuple[int, int] = (0, 0)  # `taken` when this epoch began
    told: tuple[int, int, int] = (0, 0, 0)
    idle: int = 0  # ticks since anything was sent to the merger
    arrived: deque[Arrival] = dataclasses.field(default_factory=deque)  # of what is not yet taken

    def credit(self, batches: int, size: int, ack: int) -> None:
        """Notes that the client took `batches` batches of `size` bytes and acknowledges `ack`."""
        now = time.monotonic()
        for _ in range(min(batches, len(self.arrived))):
            at, key = self.arrived.popleft()
            self.streams.meter.add("deliver", now - at)
            traces = self.streams.meter.traces
            if traces is not None and key is not None:
                traces.part("deliver", key, unix_ns(at), time.time_ns())
        self.taken = (self.taken[0] + batches, self.taken[1] + size)
        self.ack = max(self.ack, ack)
        if 4 * (self.taken[0] - self.told[0]) >= self.window_batches or (
            4 * (self.taken[1] - self.told[1]) >= self.window_bytes
        ):
            with self.streams.edge.lock:
                self.streams.tell(self)

    def again(self, go_on: Callable[[], tuple[int, int]]) -> None:
        """Sends all that is not acknowledged again. `go_on` is called first and returns how many
        batches and bytes the sink dropped."""
        with self.streams.edge.lock:
            batches, size = go_on()
            for _ in range(min(batches, len(self.arrived))):
                self.arrived.pop()
            self.sent = (self.sent[0] - batches, self.sent[1] - size)
            if not self.closed:
                self.streams.anew(self)

    def close(self) -> None:
        """Closes the stream; matches from now on go to the session's backlog."""
        self.streams.drop(self)


class SessionStreams:
    """All streams of one dispatcher. Its methods are called under the edge's lock or take it."""

    def __init__(self, edge: StreamEdge, index: int, mergers: int, meter: StageMeter) -> None:
        self.edge = edge
        self.meter = meter
        self._index = index
        self._mergers = mergers
        self._of: dict[int, SessionStream] = {}  # by session
        self._arrived = [0] * mergers  # bytes of each merger's deliveries
        self._confirmed = [0] * mergers  # and how many of them were confirmed to it

    def __len__(self) -> int:
        return len(self._of)

    @property
    def counters(self) -> dict[str, int]:
        """The present numbers of streams, untaken batches and credits."""
        streams = self._of.values()
        untaken = sum(stream.sent[0] - stream.taken[0] for stream in streams)
        window = sum(stream.window_batches for stream in streams)
        return {"streams": len(streams), "untaken": untaken, "credits": max(window - untaken, 0)}

    def open(self, stream: SessionStream, session: int, epoch: int) -> None:
        """Attaches a stream, which has its session's number and a new epoch."""
        if stream.closed:
            return
        if session <= 0:
            problem = f"the tenant has {-session} sessions, its quota (sessions)"
            over = ResourceExhausted(problem, QUOTA_RETRY_MS) if session else None
            self._finish_opening(stream, over)
            return
        if stream.of not in (0, session):
            self.fail(stream, FailedPrecondition("cursor: it belongs to another session"))
            return
        old = self._of.get(session)
        if old is not None and old is not stream:
            old.closed = True
            old.sink(_TAKEN_OVER)
        self._of[session] = stream
        stream.session, stream.epoch = session, epoch
        stream.attached = False
        stream.number = stream.idle = 0
        stream.base = taken = stream.taken
        stream.told = (*taken, stream.ack)
        self._attach_stream(stream)

    def fail(self, stream: SessionStream, problem: BaseException) -> None:
        """Ends a stream that gets no session number or epoch."""
        self._forget_stream(stream)
        self._finish_opening(stream, problem)

    def on(self, frame: StreamAttached | StreamDelivery) -> None:
        """Handles a message from the session's merger."""
        if isinstance(frame, StreamDelivery):
            merger = frame.session % self._mergers
            self._arrived[merger] += len(frame.data)
            if self._arrived[merger] - self._confirmed[merger] >= ARRIVED_BYTES:
                self._confirm_arrivals(merger)
        stream = self._of.get(frame.session)
        if stream is None:
            self._send_to_merger(StreamDetach(frame.session, frame.epoch))
        elif stream.epoch != frame.epoch:
            return
        elif isinstance(frame, StreamAttached):
            self._finish_attach(stream, frame)
        elif frame.closed:
            self._forget_stream(stream)
            stream.sink(_TAKEN_OVER)
        elif frame.number == stream.number + 1:
            stream.number += 1
            stream.sent = (stream.sent[0] + 1, stream.sent[1] + len(frame.data))
            data, traces = frame.data.tobytes(), self.meter.traces
            key = None if traces is None else traces.of_delivery(data)
            stream.arrived.append((time.monotonic(), key))
            if stream.sink(data):
                self._send_to_merger(StreamDetach(stream.session, stream.epoch))
                stream.epoch = 0  # until `SessionStream.again`
        elif frame.number > stream.number:
            self.anew(stream)

    def tell(self, stream: SessionStream) -> None:
        """Sends the merger what the client took and acknowledged."""
        taken, stream.idle = stream.taken, 0
        stream.told = (*taken, stream.ack)
        batches, size = (a - b for a, b in zip(taken, stream.base, strict=True))
        self._send_to_merger(
            StreamCredit(stream.session, stream.epoch, self._index, batches, size, stream.ack)
        )

    def tick(self) -> None:
        """Sends what was gathered, and repeats what may have been lost."""
        for merger in range(self._mergers):
            if self._arrived[merger] != self._confirmed[merger]:
                self._confirm_arrivals(merger)
        for stream in self._of.values():
            if not stream.epoch:
                continue  # a new one is on its way
            stream.idle += 1
            if (*stream.taken, stream.ack) != stream.told:
                self.tell(stream)
            elif stream.idle >= REPEAT_TICKS:
                self.tell(stream) if stream.attached else self._attach_stream(stream)

    def joined(self, peer: Address) -> None:
        """Attaches the streams of a merger's sessions again when it was replaced."""
        if peer.role == "merger":
            self._arrived[peer.index] = self._confirmed[peer.index] = 0
            for stream in list(self._of.values()):
                if stream.session % self._mergers == peer.index:
                    self.anew(stream)

    def drop(self, stream: SessionStream) -> None:
        """Removes a stream and notifies the merger."""
        with self.edge.lock:
            if self._of.get(stream.session) is stream and not stream.closed:
                self.tell(stream)
                self._send_to_merger(StreamDetach(stream.session, stream.epoch))
            self._forget_stream(stream)

    def anew(self, stream: SessionStream) -> None:
        """Requests a new epoch for a stream, under which all that is not acknowledged is sent
        again."""
        stream.epoch = 0
        self.edge.rename(stream)

    def _confirm_arrivals(self, merger: int) -> None:
        self._confirmed[merger] = self._arrived[merger]
        confirmation = DeliveryArrivals(self._index, self._arrived[merger])
        self.edge.send([Send(Address("merger", merger), confirmation)])

    def _attach_stream(self, stream: SessionStream) -> None:
        stream.idle = 0
        batches = max(stream.window_batches - (stream.sent[0] - stream.base[0]), 0)
        size = max(stream.window_bytes - (stream.sent[1] - stream.base[1]), 0)
        self._send_to_merger(
            StreamAttach(
                stream.session, stream.epoch, self._index, stream.fields, batches, size, stream.ack
            )
        )

    def _finish_attach(self, stream: SessionStream, frame: StreamAttached) -> None:
        if frame.refused:
            self._forget_stream(stream)
            self._finish_opening(
                stream,
                FailedPrecondition(
                    f"cursor: {stream.ack} is above {frame.last}, the last number of this "
                    "session; it belongs to another session or to another data directory"
                ),
            )
            return
        stream.attached = True
        self._finish_opening(stream)
        if frame.sent > stream.number:
            self.anew(stream)

    def _finish_opening(self, stream: SessionStream, problem: BaseException | None = None) -> None:
        opening, stream.opening = stream.opening, None
        if opening is None:
            if isinstance(problem, Exception):
                stream.sink(problem)
        elif not opening.set_running_or_notify_cancel():
            return
        elif problem is None:
            opening.set_result(stream)
        else:
            opening.set_exception(problem)

    def _forget_stream(self, stream: SessionStream) -> None:
        stream.closed = True
        if self._of.get(stream.session) is stream:
            del self._of[stream.session]

    def _send_to_merger(self, frame: Frame) -> None:
        session = frame.session  # type: ignore[attr-defined]
        self.edge.send([Send(Address("merger", session % self._mergers), frame)])
