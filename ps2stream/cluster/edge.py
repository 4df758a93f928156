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
from ps2stream.cluster.intake import Intake
from ps2stream.cluster.stream import Stream
from ps2stream.dispatcher.reservoir import ObjectSample, Reservoir
from ps2stream.errors import ResourceExhausted
from ps2stream.messages import (
    Address,
    Attach,
    Completed,
    Credit,
    Delivery,
    Detach,
    LookupReply,
    LookupRequest,
    Reply,
    Send,
    SessionGrant,
    SessionRequest,
    UpdateDecision,
    UpdateRequest,
)
from ps2stream.rows import ObjectRows, QueryRows
from ps2stream.security import QUOTA_RETRY_MS
from ps2stream.service.gateway import Publication, Sink
from ps2stream.service.gateway import Stream as StreamPort
from ps2stream.terms import Analyzer, Frequencies
from ps2stream.tokens import TokensReply, TokensRequest

Post = Callable[[list[Send]], None]


class Router(Protocol):
    """What the edge needs of `ps2stream.dispatcher.router.RouterMachine`."""

    index: int
    mergers: int
    max_in_flight: int
    plan_version: int

    @property
    def in_flight(self) -> int: ...
    def publish(self, rows: ObjectRows) -> tuple[int, int, list[Send | Reply]]: ...
    def update(self, request: UpdateRequest) -> list[Send | Reply]: ...
    def on(self, frame: Frame) -> list[Send | Reply]: ...
    def tick(self) -> list[Send | Reply]: ...


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
        reservoir: Reservoir | None = None,
    ) -> None:
        self.reservoir = Reservoir(0) if reservoir is None else reservoir
        self.machine = machine
        self.analyzer = analyzer
        self.frequencies = frequencies
        self.clock_ms = clock_ms
        self._post = post
        self.lock = lock or threading.RLock()
        self._room = threading.Condition(self.lock)
        self._intake = Intake()
        self._updates: list[UpdateRequest] = []  # not yet passed on
        self._undecided = 0
        self._seq = 0
        self._waiting: dict[int, Future[Any]] = {}
        self._streams: dict[int, Stream] = {}
        self._epoch = clock_ms() << 10  # above every epoch of an earlier process

    # --- from the service -------------------------------------------------

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        """Inserts and deletes; the future resolves once every dispatcher applied them."""
        name_off, name = strings_to_column(names)
        request_off, request = strings_to_column(request_ids)
        with self.lock:
            seq, future = self._expect()
            encoded = np.frombuffer(rows.encode(), np.uint8)
            self._updates.append(
                UpdateRequest(
                    self.machine.index, seq, encoded, name_off, name, request_off, request
                )
            )
            self._ask()
        return cast("Future[UpdateDecision]", future)

    def publish(self, rows: ObjectRows, wait_s: float = 0.0) -> Future[Publication]:
        """Take a batch in; the future resolves once it is routed, and until then its
        `cancel()` takes it back. It is ResourceExhausted, with nothing accepted, when as
        many batches as may be under way keep waiting for `wait_s` seconds."""
        with self._room:
            limit = self.machine.max_in_flight
            if not self._room.wait_for(lambda: len(self._intake) < limit, wait_s):
                full: Future[Publication] = Future()
                problem = f"publish: {limit} batches are waiting, the limit (max_in_flight)"
                full.set_exception(ResourceExhausted(problem))
                return full
            future = self._intake.add(rows)
            self._route()
        return future

    def lookup(
        self, id: str | None, session: int, after: int, limit: int, tenant: bytes = b""
    ) -> Future[LookupReply]:
        """Live queries: the one named `id`, or a page in handle order."""
        raw = np.frombuffer((id or "").encode("utf-8", "surrogatepass"), np.uint8)
        with self.lock:
            seq, future = self._expect()
            request = LookupRequest(
                self.machine.index, seq, session, after, limit, raw,
                np.frombuffer(tenant, np.uint8),
            )  # fmt: skip
            self._out([Send(Address("sequencer", 0), request)])
        return cast("Future[LookupReply]", future)

    def session(self, name: str, make: bool = False) -> Future[SessionGrant]:
        """The number of the session of this name, made if new and `make`; else 0."""
        raw = np.frombuffer(name.encode("utf-8", "surrogatepass"), np.uint8)
        with self.lock:
            seq, future = self._expect()
            request = SessionRequest(self.machine.index, seq, int(make), raw)
            self._out([Send(Address("sequencer", 0), request)])
        return cast("Future[SessionGrant]", future)

    def tokens(self, add: bytes = b"", drop: str = "") -> Future[TokensReply]:
        """The tokens, after a change; see TokensRequest."""
        with self.lock:
            seq, future = self._expect()
            added, dropped = (np.frombuffer(part, np.uint8) for part in (add, drop.encode()))
            request = TokensRequest(self.machine.index, seq, added, dropped)
            self._out([Send(Address("sequencer", 0), request)])
        return cast("Future[TokensReply]", future)

    def attach(
        self, session: str, fields: int, credit_batches: int, credit_bytes: int, sink: Sink
    ) -> Future[StreamPort]:
        """Open the session's Deliver stream here. `sink` gets encoded DeliverResponses,
        then None when another stream has taken the session over; it must not block."""
        done: Future[StreamPort] = Future()

        def granted(grant: Future[SessionGrant]) -> None:
            number = grant.result().session
            if number < 0:
                problem = f"{-number} sessions are named, the tenant's quota (sessions)"
                done.set_exception(ResourceExhausted(problem, QUOTA_RETRY_MS))
                return
            with self.lock:
                self._epoch = max(self._epoch + 1, self.clock_ms() << 10)
                epoch = self._epoch
                old = self._streams.get(number)
                stream = Stream(self, number, epoch, sink, credit_batches, credit_bytes)
                self._streams[number] = stream
                if old is not None:
                    old.sink(None)
                done.set_result(stream)
                self.to_merger(
                    Attach(number, epoch, self.machine.index, fields, credit_batches, credit_bytes)
                )

        self.session(session, make=True).add_done_callback(granted)
        return done

    def sample(self) -> ObjectSample:
        """Some of the objects that were lately accepted here."""
        with self.lock:
            return self.reservoir.sample()

    def status(self) -> dict[str, Any]:
        """What this dispatcher knows of itself."""
        with self.lock:
            return {
                "dispatcher": self.machine.index,
                "plan_version": self.machine.plan_version,
                "in_flight": self.machine.in_flight,
                "streams": len(self._streams),
                **counters_of(self.machine),
            }

    # --- from peers and timers ---------------------------------------------

    def on(self, frame: Frame) -> None:
        """One message from another machine."""
        with self.lock:
            self._out(self.machine.on(frame))
            if isinstance(frame, UpdateDecision):
                self._undecided -= 1
                self._ask()
            elif isinstance(frame, Completed):
                self._route()

    def tick(self) -> None:
        """Periodic work: gathered credits, watermarks of an idle dispatcher."""
        with self.lock:
            for stream in self._streams.values():
                stream.flush()
            self._out(self.machine.tick())

    def to_merger(self, frame: Attach | Credit | Detach) -> None:
        """Session control goes to the session's one merger."""
        with self.lock:
            self._post([Send(Address("merger", frame.session % self.machine.mergers), frame)])

    def drop(self, stream: Stream) -> None:
        """Forget a stream and tell the merger."""
        with self.lock:
            if self._streams.get(stream.session) is stream:
                del self._streams[stream.session]
            stream.flush()
            self.to_merger(Detach(stream.session, stream.epoch))

    def _route(self) -> None:
        """Route what waits, as far as it is to leave now."""
        while self.machine.in_flight < self.machine.max_in_flight and (
            taken := self._intake.take(self.machine.in_flight)
        ):
            rows = ObjectRows.concat([waiting.rows for waiting in taken])
            offset, lsn, out = self.machine.publish(rows)
            self._out(out)
            self.reservoir.add(rows, self.clock_ms())
            for waiting in taken:
                waiting.future.set_result(Publication(self.machine.index, offset, lsn))
                offset += len(waiting.rows)
            self._room.notify_all()

    def _ask(self) -> None:
        """Pass updates on; those that come while the sequencer is busy leave together."""
        if self._undecided or not self._updates:
            return
        updates, self._updates = self._updates, []
        self._undecided = len(updates)
        self._out([out for update in updates for out in self.machine.update(update)])

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
            stream = self._streams.get(frame.session)
            if stream is None or stream.epoch != frame.epoch:
                return
            if frame.closed:
                del self._streams[frame.session]
                stream.sink(None)
            else:
                stream.sink(frame.data.tobytes())
        elif isinstance(frame, UpdateDecision | SessionGrant | LookupReply | TokensReply):
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
