"""Publications in a dispatcher: they are gathered, logged, routed, synced and answered."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.dispatcher.intake import PublicationIntake, WaitingPublication
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.dispatcher.watchers import StreamWatchers
from ps2stream.errors import Ps2StreamError, ResourceExhausted, Unavailable
from ps2stream.observability.meter import StageMeter
from ps2stream.observability.traces import unix_ns
from ps2stream.protocol.addresses import Reply, Send
from ps2stream.protocol.rows import ObjectRows

log = logging.getLogger("ps2stream.cluster")
OPEN_BYTES = 64 << 20
"""The bytes of columns of routed batches that are not complete, which are kept to be sent again.
From there on large publications wait before they are accepted."""
RESERVED = 8
"""One in this many batches under way is reserved for small publications."""
Settle = Callable[[Future[Any], object], None]


class PublishingMachine(Protocol):
    """The port to the router machine, as publications need it."""

    index: int
    max_in_flight: int

    @property
    def applied(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def oldest(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def ready(self) -> bool: ...
    def publish(self, rows: ObjectRows) -> tuple[int, int, list[Send | Reply]]: ...
    def is_open(self, batch: int) -> bool: ...


class _AcceptedPublication(NamedTuple):
    """A durable publication that is in the log up to `end`, perhaps not yet synced."""

    end: int
    waiting: WaitingPublication
    publication: AcceptedBatch


class _RoutedBatch(NamedTuple):
    """A batch that is routed and not complete; `since` is when its first publication came."""

    since: float
    objects: int
    size_bytes: int


class PublicationPipeline:
    """The publications of one dispatcher. `settle` answers a future; after `wake` a thread of its
    own calls `sync`."""

    def __init__(
        self,
        machine: PublishingMachine,
        log: ObjectLog,
        reservoir: ObjectReservoir,
        watchers: StreamWatchers,
        lock: threading.RLock,
        settle: Settle,
        wake: Callable[[], None],
        meter: StageMeter,
    ) -> None:
        self.intake = PublicationIntake()
        self._machine = machine
        self._log = log
        self._reservoir = reservoir
        self._watchers = watchers
        self._lock = lock
        self._settle = settle
        self._wake = wake
        self._meter = meter
        self._open: dict[int, _RoutedBatch] = {}  # by batch
        self.open_bytes = 0
        self._room = threading.Condition(lock)
        # One publisher at a time requests the lock, so that frames of peers, updates and
        # acknowledgements do not have to queue behind many publishers.
        self._gate = threading.Lock()
        self._unsynced: deque[_AcceptedPublication] = deque()
        self._congested = False
        self._listeners: list[Callable[[bool], None]] = []

    def tell_congestion(self, tell: Callable[[bool], None]) -> None:
        """Calls `tell` now and at every change with whether routed batches wait. Called under the
        lock."""
        self._listeners.append(tell)
        tell(self._congested)

    def add(
        self, rows: ObjectRows, wait_s: float, durable: bool, route: Callable[[], None]
    ) -> Future[AcceptedBatch]:
        """Adds a batch, as Gateway.publish says, and calls `route` under the lock."""
        since = time.monotonic()
        until = since + wait_s
        limit = self._machine.max_in_flight
        if self._gate.acquire(timeout=wait_s):
            try:
                with self._room:
                    left = until - time.monotonic()
                    if self._room.wait_for(lambda: len(self.intake) < limit, left):
                        future = self.intake.add(rows, durable, since)
                        route()
                        return future
            finally:
                self._gate.release()
        full: Future[AcceptedBatch] = Future()
        problem = f"publish: {limit} batches are waiting, the limit (max_in_flight)"
        full.set_exception(ResourceExhausted(problem))
        return full

    def route(self, out: Callable[[Sequence[Send | Reply]], None], now_ms: int) -> None:
        """Routes the publications that should leave now. Called under the lock."""
        machine = self._machine
        while machine.in_flight < machine.max_in_flight and (
            taken := self.intake.take(machine.active)
        ):
            rows = ObjectRows.concat([waiting.rows for waiting in taken])
            begun = time.monotonic()
            try:
                end = self._append_batch(rows, taken)
                offset, lsn, sends = machine.publish(rows)
            except Ps2StreamError as error:
                for waiting in taken:
                    waiting.future.set_exception(error)
                self._room.notify_all()
                continue
            now = time.monotonic()
            if sends:
                opened = self._open[offset] = _RoutedBatch(taken[0].since, len(rows), rows.nbytes)
                self.open_bytes += opened.size_bytes
                self._trace_batch(offset, len(rows), taken[0].since, begun)
            self._watchers.accepted(rows, offset, bool(sends))
            out(sends)
            self._reservoir.add(rows, now_ms)
            for waiting in taken:
                self._meter.add("intake", now - waiting.since, len(waiting.rows))
                publication = AcceptedBatch(machine.index, offset, lsn)
                if waiting.durable:
                    self._unsynced.append(_AcceptedPublication(end, waiting, publication))
                else:
                    self._settle(waiting.future, publication)
                offset += len(waiting.rows)
            if end:
                self._wake()
            self._room.notify_all()
        self._look_for_congestion()

    def completed(self, batches: Sequence[int]) -> None:
        """Notes that a merger, perhaps the last one, has completed batches."""
        now = time.monotonic()
        for batch in batches:
            if batch in self._open and not self._machine.is_open(batch):
                since, objects, size_bytes = self._open.pop(batch)
                self.open_bytes -= size_bytes
                self._meter.add("complete", now - since, objects)
                traces, key = self._meter.traces, (self._machine.index, batch)
                if traces is not None and traces.wanted(key):
                    traces.whole(key, unix_ns(since), time.time_ns(), objects=objects)

    def note_progress(self) -> None:
        """Notes in the log how far objects are complete."""
        for batch in [b for b in self._open if b < self._machine.oldest]:  # quarantined
            self.open_bytes -= self._open.pop(batch).size_bytes
        with contextlib.suppress(Unavailable):  # a full disk; it is noted again
            if self._log.progress(self._machine.oldest):
                self._wake()

    def report_stall(self, report: str) -> None:
        """Logs that objects wait while hardly any are completed, unless `report` is empty."""
        if report:
            log.warning(
                "objects wait and hardly any are completed: %s; batches under way: %d, "
                "publications in the intake: %d",
                report, self._machine.in_flight, len(self.intake),
            )  # fmt: skip

    def sync(self) -> None:
        """Makes durable what was accepted, and answers. Raises Unavailable, for good."""
        with self._meter.time("sync"):
            end = self._log.log.sync()
        with self._lock:
            now = time.monotonic()
            while self._unsynced and self._unsynced[0].end <= end:
                _, waiting, publication = self._unsynced.popleft()
                self._meter.add("durable", now - waiting.since, len(waiting.rows))
                self._settle(waiting.future, publication)
        self._log.synced(end)  # trims the log: nobody waits for that

    def _look_for_congestion(self) -> None:
        most = self._machine.max_in_flight
        congested = (
            self.open_bytes >= OPEN_BYTES or self._machine.in_flight >= most - most // RESERVED
        )
        if congested != self._congested:
            self._congested = congested
            for tell in self._listeners:
                tell(congested)

    def _trace_batch(self, batch: int, objects: int, since: float, begun: float) -> None:
        traces, key = self._meter.traces, (self._machine.index, batch)
        if traces is not None and traces.wanted(key):
            traces.open(key, objects)
            traces.part("publish", key, unix_ns(since), unix_ns(begun))
            traces.part("route", key, unix_ns(begun), time.time_ns())

    def _append_batch(self, rows: ObjectRows, taken: Sequence[WaitingPublication]) -> int:
        """Appends a batch to the log if some of it must be durable. Returns its end there, 0 if it
        was not appended."""
        if not self._machine.ready:
            raise Unavailable("the dispatcher is catching up with the ledger")
        self._log.reserve(self._machine.offset + len(rows))
        if not any(waiting.durable for waiting in taken):
            return 0
        return self._log.append(self._machine.offset, self._machine.applied, rows)
