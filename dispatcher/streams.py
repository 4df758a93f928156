"""The Deliver streams of a dispatcher, each with its session's merger (docs/decisions/0006)."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

import numpy as np

from ps2stream.dispatcher.events import CreditGranted, InboxReopened, StreamRequested
from ps2stream.dispatcher.instructions import (
    DeliverBatch,
    EndStream,
    Instruction,
    OpenStream,
    ReopenInbox,
    TraceStage,
)
from ps2stream.dispatcher.open_requests import OpenRequests
from ps2stream.errors import FailedPrecondition, Ps2StreamError, ResourceExhausted
from ps2stream.observability.meter import StageMeter
from ps2stream.observability.traces import Key
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.sessions import (
    DeliveryArrivals,
    SessionGrant,
    SessionRequest,
    StreamAttach,
    StreamAttached,
    StreamCredit,
    StreamDelivery,
    StreamDetach,
)
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.protocol.ticks import REPEAT_TICKS
from ps2stream.security import QUOTA_RETRY_MS

Arrival = tuple[float, Key | None]
"""The time of a delivery's arrival (monotonic seconds), and the sampled batch that it is of."""
ARRIVED_BYTES = 1 << 20
"""The bytes of deliveries after which their arrival is confirmed without waiting for a tick."""
_TAKEN_OVER = "another stream has taken the session over"


@dataclasses.dataclass(eq=False)
class SessionStream:
    """A Deliver stream of a session; a later stream of the same session ends it. `handle` is the
    shell's.

    Credits are totals. They are sent when they have grown by a quarter of the window, and at
    every tick.
    """

    handle: Any
    name: str
    fields: int
    window_batches: int
    window_bytes: int
    ack: int
    of: int  # the session that `ack` is of, if known
    opened: bool = False  # the client knows that it is open
    session: int = 0
    epoch: int = 0
    attached: bool = False
    closed: bool = False
    number: int = 0  # of the last delivery of this epoch
    sent: tuple[int, int] = (0, 0)  # batches and bytes that were delivered
    taken: tuple[int, int] = (0, 0)  # that the client has taken
    base: tuple[int, int] = (0, 0)  # `taken` when this epoch began
    told: tuple[int, int, int] = (0, 0, 0)
    idle: int = 0  # ticks since anything was sent to the merger
    arrived: deque[Arrival] = dataclasses.field(default_factory=deque)  # of what is not yet taken


class SessionStreams:
    """All streams of dispatcher `index`; instructions go to `out`."""

    def __init__(
        self,
        index: int,
        maps: SessionMaps,
        requests: OpenRequests,
        meter: StageMeter,
        out: list[Instruction],
    ) -> None:
        self._index = index
        self.maps = maps
        self._requests = requests
        self._meter = meter
        self._out = out
        self._of: dict[int, SessionStream] = {}  # by session
        self._by_handle: dict[Any, SessionStream] = {}  # those that are not closed
        self._arrived = [0] * maps.mergers  # bytes of each merger's deliveries
        self._confirmed = [0] * maps.mergers  # and how many of them were confirmed to it

    def __len__(self) -> int:
        return len(self._of)

    @property
    def counters(self) -> dict[str, int]:
        """The present numbers of streams, untaken batches and credits."""
        streams = self._of.values()
        untaken = sum(stream.sent[0] - stream.taken[0] for stream in streams)
        window = sum(stream.window_batches for stream in streams)
        return {"streams": len(streams), "untaken": untaken, "credits": max(window - untaken, 0)}

    # --- from clients ---------------------------------------------------------

    def add(self, event: StreamRequested) -> None:
        """Requests a number and an epoch for a stream's session, which is made if it is new."""
        stream = self._by_handle[event.stream] = SessionStream(*event)
        try:
            self._request_epoch(stream, make=True)
        except Ps2StreamError as error:
            self._end_stream(stream, error)

    def credit(self, event: CreditGranted, now: float) -> None:
        """Notes what the client took and acknowledges."""
        stream = self._by_handle.get(event.stream)
        if stream is None:
            return
        for _ in range(min(event.batches, len(stream.arrived))):
            at, key = stream.arrived.popleft()
            self._meter.add("deliver", now - at)
            if key is not None:
                self._out.append(TraceStage("deliver", key, at, now))
        stream.taken = (stream.taken[0] + event.batches, stream.taken[1] + event.size)
        stream.ack = max(stream.ack, event.ack)
        if 4 * (stream.taken[0] - stream.told[0]) >= stream.window_batches or (
            4 * (stream.taken[1] - stream.told[1]) >= stream.window_bytes
        ):
            self._send_credit(stream)

    def pause(self, handle: Any) -> None:
        """Lets the merger send nothing more to a stream whose inbox drops deliveries."""
        stream = self._by_handle.get(handle)
        if stream is not None and stream.epoch:
            self._send_to_merger(StreamDetach(stream.session, stream.epoch))
            stream.epoch = 0
            if not stream.opened:  # its client does not know of it, and so never resumes it
                self._renew_stream(stream)

    def resume(self, handle: Any) -> None:
        """Reopens the inbox of a stream. Deliveries of its epoch are ignored from now on, since
        some were dropped."""
        if (stream := self._by_handle.get(handle)) is not None:
            stream.epoch = 0
        self._out.append(ReopenInbox(handle))

    def restart(self, event: InboxReopened) -> None:
        """Sends a stream all that is not acknowledged again; the dropped batches count no more."""
        stream = self._by_handle.get(event.stream)
        if stream is None:
            return
        for _ in range(min(event.batches, len(stream.arrived))):
            stream.arrived.pop()
        stream.sent = (stream.sent[0] - event.batches, stream.sent[1] - event.size)
        self._renew_stream(stream)

    def close(self, handle: Any) -> None:
        """Removes a stream and notifies the merger; matches from now on go to the session's
        backlog."""
        stream = self._by_handle.get(handle)
        if stream is None:
            return
        if self._of.get(stream.session) is stream:
            self._send_credit(stream)
            self._send_to_merger(StreamDetach(stream.session, stream.epoch))
        self._forget_stream(stream)

    def end_all(self, error: Exception) -> None:
        """Ends all streams; their clients open others elsewhere."""
        for stream in list(self._by_handle.values()):
            if self._of.get(stream.session) is stream and stream.epoch:
                self._send_credit(stream)
                self._send_to_merger(StreamDetach(stream.session, stream.epoch))
            self._end_stream(stream, error)

    # --- from peers -----------------------------------------------------------

    def granted(self, stream: SessionStream, grant: SessionGrant) -> None:
        """Attaches a stream, which has its session's number and a new epoch."""
        session = grant.session
        if stream.closed:
            return
        if session <= 0:
            problem = f"the tenant has {-session} sessions, its quota (sessions)"
            over = ResourceExhausted(problem, QUOTA_RETRY_MS) if session else None
            self._end_stream(stream, over)
            return
        if stream.of not in (0, session):
            self._end_stream(stream, FailedPrecondition("cursor: it belongs to another session"))
            return
        old = self._of.get(session)
        if old is not None and old is not stream:
            self._end_stream(old, FailedPrecondition(_TAKEN_OVER))
        self._of[session] = stream
        stream.session, stream.epoch = session, grant.stream
        stream.attached = False
        stream.number = stream.idle = 0
        stream.base = taken = stream.taken
        stream.told = (*taken, stream.ack)
        self._attach_stream(stream)

    def on(self, frame: StreamAttached | StreamDelivery, now: float) -> None:
        """Handles a message from the session's merger."""
        if isinstance(frame, StreamDelivery):
            merger = self.maps.now.merger_of(frame.session)
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
            self._end_stream(stream, FailedPrecondition(_TAKEN_OVER))
        elif frame.number == stream.number + 1:
            stream.number += 1
            stream.sent = (stream.sent[0] + 1, stream.sent[1] + len(frame.data))
            data, traces = frame.data.tobytes(), self._meter.traces
            stream.arrived.append((now, None if traces is None else traces.of_delivery(data)))
            self._out.append(DeliverBatch(stream.handle, data))
        elif frame.number > stream.number:
            self._renew_stream(stream)

    def follow(self, maps: SessionMaps) -> None:
        """Follows a change of the tables of sessions: streams of sessions that move are attached
        again, to the merger that they go to. One without an epoch waits for it, or for its client
        to read on, and then is."""
        before, self.maps = self.maps, maps
        more = max(maps.mergers - len(self._arrived), 0)
        self._arrived += [0] * more
        self._confirmed += [0] * more
        for session, stream in list(self._of.items()):
            if stream.epoch and before.now.merger_of(session) != maps.now.merger_of(session):
                self._renew_stream(stream)

    def joined(self, peer: Address) -> None:
        """Attaches the streams of a merger's sessions again when it was replaced."""
        if peer.role == "merger" and peer.index < len(self._arrived):
            self._arrived[peer.index] = self._confirmed[peer.index] = 0
            for stream in list(self._of.values()):
                if stream.epoch and self.maps.now.merger_of(stream.session) == peer.index:
                    self._renew_stream(stream)

    def tick(self) -> None:
        """Sends what was gathered, and repeats what may have been lost."""
        for merger in range(len(self._arrived)):
            if self._arrived[merger] != self._confirmed[merger]:
                self._confirm_arrivals(merger)
        for stream in self._of.values():
            if not stream.epoch:
                continue  # a new one is on its way
            stream.idle += 1
            if (*stream.taken, stream.ack) != stream.told:
                self._send_credit(stream)
            elif stream.idle >= REPEAT_TICKS:
                self._send_credit(stream) if stream.attached else self._attach_stream(stream)

    # --- one stream -----------------------------------------------------------

    def _request_epoch(self, stream: SessionStream, make: bool) -> None:
        name = np.frombuffer(stream.name.encode("utf-8", "surrogatepass"), np.uint8)
        request = SessionRequest(self._index, 0, int(make), name)
        # A stream that was open must get its epoch.
        self._requests.ask(stream, request, bounded=make)

    def _renew_stream(self, stream: SessionStream) -> None:
        """Requests a new epoch for a stream, under which all that is not acknowledged is sent
        again."""
        stream.epoch = 0
        self._request_epoch(stream, make=False)

    def _send_credit(self, stream: SessionStream) -> None:
        """Sends the merger what the client took and acknowledged."""
        taken, stream.idle = stream.taken, 0
        stream.told = (*taken, stream.ack)
        batches, size = (a - b for a, b in zip(taken, stream.base, strict=True))
        self._send_to_merger(
            StreamCredit(
                stream.session, stream.epoch, self._index, batches, size, stream.ack,
                self.maps.now.lsn,
            )
        )  # fmt: skip

    def _confirm_arrivals(self, merger: int) -> None:
        self._confirmed[merger] = self._arrived[merger]
        confirmation = DeliveryArrivals(self._index, self._arrived[merger])
        self._out.append(Send(Address("merger", merger), confirmation))

    def _attach_stream(self, stream: SessionStream) -> None:
        stream.idle = 0
        batches = max(stream.window_batches - (stream.sent[0] - stream.base[0]), 0)
        size = max(stream.window_bytes - (stream.sent[1] - stream.base[1]), 0)
        self._send_to_merger(
            StreamAttach(
                stream.session, stream.epoch, self._index, stream.fields, batches, size, stream.ack,
                self.maps.now.lsn,
            )
        )  # fmt: skip

    def _finish_attach(self, stream: SessionStream, frame: StreamAttached) -> None:
        if frame.refused:
            problem = (
                f"cursor: {stream.ack} is above {frame.last}, the last number of this "
                "session; it belongs to another session or to another data directory"
            )
            self._end_stream(stream, FailedPrecondition(problem))
            return
        if not stream.attached and stream.taken != stream.base:
            self._send_credit(stream)  # one that came to the merger before the session was ignored
        stream.attached = True
        if not stream.opened:
            stream.opened = True
            self._out.append(OpenStream(stream.handle, stream.session, stream.epoch, frame.acked))
        if frame.sent > stream.number:
            self._renew_stream(stream)

    def _end_stream(self, stream: SessionStream, error: Exception | None) -> None:
        self._forget_stream(stream)
        self._out.append(EndStream(stream.handle, error))

    def _forget_stream(self, stream: SessionStream) -> None:
        stream.closed = True
        self._by_handle.pop(stream.handle, None)
        if self._of.get(stream.session) is stream:
            del self._of[stream.session]

    def _send_to_merger(self, frame: Frame) -> None:
        session = frame.session  # type: ignore[attr-defined]
        self._out.append(Send(Address("merger", self.maps.now.merger_of(session)), frame))
