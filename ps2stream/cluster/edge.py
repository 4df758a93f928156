"""The dispatcher's edge: threads on one side, the router machine on the other.

gRPC threads call in, peers' frames come in, and both meet at one lock: the machine
sees one event at a time, and what it sends leaves in that order.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import numpy as np

from ps2stream.batch import Frame, strings_to_column
from ps2stream.errors import ResourceExhausted
from ps2stream.messages import (
    Address,
    Attach,
    Credit,
    Delivery,
    Detach,
    LookupReply,
    LookupRequest,
    ObjectRows,
    QueryRows,
    Reply,
    Send,
    SessionGrant,
    SessionRequest,
    UpdateDecision,
    UpdateRequest,
)
from ps2stream.service.gateway import Publication, Sink
from ps2stream.service.gateway import Stream as StreamPort
from ps2stream.terms import Analyzer, Frequencies

Post = Callable[[list[Send]], None]


class Router(Protocol):
    """What the edge needs of `ps2stream.dispatcher.router.RouterMachine`."""

    index: int
    mergers: int
    max_in_flight: int

    @property
    def in_flight(self) -> int: ...
    def publish(self, rows: ObjectRows) -> tuple[int, int, list[Send | Reply]]: ...
    def update(self, request: UpdateRequest) -> list[Send | Reply]: ...
    def on(self, frame: Frame) -> list[Send | Reply]: ...
    def tick(self) -> list[Send | Reply]: ...


@dataclasses.dataclass(frozen=True)
class Stream:
    """One Deliver stream of a session; a later stream of the same session ends it."""

    edge: DispatcherEdge
    session: int
    epoch: int

    def credit(self, batches: int, size: int, ack: int) -> None:
        """The client took `batches` batches of `size` bytes, and acknowledges `ack`."""
        self.edge.to_merger(Credit(self.session, self.epoch, batches, size, ack))

    def close(self) -> None:
        """The stream is gone: what comes now goes to the session's backlog."""
        self.edge.drop(self.session, self.epoch)


class DispatcherEdge:
    """Implements `ps2stream.service.gateway.Gateway` over one router machine.

    `post` hands messages to their machines, in order and without blocking; it is
    called under the edge's lock.
    """

    def __init__(
        self,
        machine: Router,
        analyzer: Analyzer,
        frequencies: Frequencies,
        post: Post,
        clock_ms: Callable[[], int],
        lock: threading.RLock | None = None,
    ) -> None:
        self.machine = machine
        self.analyzer = analyzer
        self.frequencies = frequencies
        self.clock_ms = clock_ms
        self._post = post
        self._lock = lock or threading.RLock()
        self._room = threading.Condition(self._lock)
        self._seq = 0
        self._waiting: dict[int, Future[Any]] = {}
        self._sinks: dict[int, tuple[int, Sink]] = {}
        self._epoch = clock_ms() << 10  # above every epoch of an earlier process

    # --- from the service -------------------------------------------------

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        """Inserts and deletes; the future resolves once every dispatcher applied them."""
        name_off, name = strings_to_column(names)
        request_off, request = strings_to_column(request_ids)
        with self._lock:
            seq, future = self._expect()
            encoded = np.frombuffer(rows.encode(), np.uint8)
            self._out(
                self.machine.update(
                    UpdateRequest(
                        self.machine.index, seq, encoded, name_off, name, request_off, request
                    )
                )
            )
        return cast("Future[UpdateDecision]", future)

    def publish(self, rows: ObjectRows, wait_s: float = 0.0) -> Publication:
        """Stamp and route a batch. Raises ResourceExhausted, with nothing accepted,
        when the batches in flight stay at the limit for `wait_s` seconds."""
        with self._room:
            limit = self.machine.max_in_flight
            if self.machine.in_flight >= limit and not self._room.wait_for(
                lambda: self.machine.in_flight < limit, wait_s
            ):
                raise ResourceExhausted(
                    f"publish: {limit} batches are in flight, the limit (max_in_flight)"
                )
            offset, lsn, out = self.machine.publish(rows)
            self._out(out)
        return Publication(self.machine.index, offset, lsn)

    def lookup(self, id: str | None, session: int, after: int, limit: int) -> Future[LookupReply]:
        """Live queries: the one named `id`, or a page in handle order."""
        raw = np.frombuffer((id or "").encode("utf-8", "surrogatepass"), np.uint8)
        with self._lock:
            seq, future = self._expect()
            request = LookupRequest(self.machine.index, seq, session, after, limit, raw)
            self._out([Send(Address("sequencer", 0), request)])
        return cast("Future[LookupReply]", future)

    def session(self, name: str) -> Future[SessionGrant]:
        """The number of the session of this name, made if new."""
        raw = np.frombuffer(name.encode("utf-8", "surrogatepass"), np.uint8)
        with self._lock:
            seq, future = self._expect()
            request = SessionRequest(self.machine.index, seq, raw)
            self._out([Send(Address("sequencer", 0), request)])
        return cast("Future[SessionGrant]", future)

    def attach(
        self, session: str, fields: int, credit_batches: int, credit_bytes: int, sink: Sink
    ) -> Future[StreamPort]:
        """Open the session's Deliver stream here. `sink` gets encoded DeliverResponses,
        then None when another stream has taken the session over; it must not block."""
        done: Future[StreamPort] = Future()

        def granted(grant: Future[SessionGrant]) -> None:
            if error := grant.exception():
                done.set_exception(error)
                return
            number = grant.result().session
            with self._lock:
                self._epoch = max(self._epoch + 1, self.clock_ms() << 10)
                epoch = self._epoch
                old = self._sinks.get(number)
                self._sinks[number] = (epoch, sink)
                if old is not None:
                    old[1](None)
                done.set_result(Stream(self, number, epoch))
                self.to_merger(
                    Attach(number, epoch, self.machine.index, fields, credit_batches, credit_bytes)
                )

        self.session(session).add_done_callback(granted)
        return done

    def status(self) -> dict[str, Any]:
        """What this dispatcher knows of itself."""
        with self._lock:
            return {
                "in_flight": self.machine.in_flight,
                "streams": len(self._sinks),
                **counters_of(self.machine),
            }

    # --- from peers and timers ---------------------------------------------

    def on(self, frame: Frame) -> None:
        """One message from another machine."""
        with self._room:
            self._out(self.machine.on(frame))
            if self.machine.in_flight < self.machine.max_in_flight:
                self._room.notify_all()

    def tick(self) -> None:
        """Periodic work of the machine (watermarks of an idle dispatcher)."""
        with self._lock:
            self._out(self.machine.tick())

    def to_merger(self, frame: Attach | Credit | Detach) -> None:
        """Session control goes to the session's one merger."""
        with self._lock:
            self._post([Send(Address("merger", frame.session % self.machine.mergers), frame)])

    def drop(self, session: int, epoch: int) -> None:
        """Forget a stream and tell the merger."""
        with self._lock:
            if self._sinks.get(session, (0, None))[0] == epoch:
                del self._sinks[session]
            self.to_merger(Detach(session, epoch))

    def _expect(self) -> tuple[int, Future[Any]]:
        self._seq += 1
        future: Future[Any] = Future()
        self._waiting[self._seq] = future
        return self._seq, future

    def _out(self, out: Sequence[Send | Reply]) -> None:
        self._post([o for o in out if isinstance(o, Send)])
        for o in out:
            if isinstance(o, Reply):
                self._answer(o.frame)

    def _answer(self, frame: Frame) -> None:
        if isinstance(frame, Delivery):
            held = self._sinks.get(frame.session)
            if held is None or held[0] != frame.epoch:
                return
            if frame.closed:
                del self._sinks[frame.session]
                held[1](None)
            else:
                held[1](frame.data.tobytes())
        elif isinstance(frame, UpdateDecision | SessionGrant | LookupReply):
            future = self._waiting.pop(frame.seq, None)
            if future is not None:
                future.set_result(frame)


def counters_of(machine: object) -> dict[str, Any]:
    """A machine's `counters`, as a plain dict."""
    counters = getattr(machine, "counters", None)
    if counters is None:
        return {}
    if dataclasses.is_dataclass(counters) and not isinstance(counters, type):
        return dataclasses.asdict(counters)
    return dict(counters)


def wall_clock_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
