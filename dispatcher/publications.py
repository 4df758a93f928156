"""Publications in a dispatcher: they are gathered, logged, routed, synced and answered."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.dispatcher.events import LogFailed, LogSynced, PublishRequested, PublishWithdrawn
from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.dispatcher.identified import IdentifiedPublications
from ps2stream.dispatcher.instructions import (
    AnnounceCongestion,
    AnswerCall,
    Instruction,
    RefuseCall,
    ReportStall,
    SyncLog,
    TraceStage,
    TrimLog,
)
from ps2stream.dispatcher.intake import PublicationIntake, WaitingPublication
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.ports import PublishingRouter
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.dispatcher.retro import RetroMatching
from ps2stream.dispatcher.watchers import StreamWatchers
from ps2stream.errors import Ps2StreamError, ResourceExhausted, Unavailable
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import Array
from ps2stream.protocol.rows import ObjectRows

OPEN_BYTES = 64 << 20
"""The bytes of columns of routed batches that are not complete, which are kept to be sent again.
From there on large publications wait before they are accepted."""
RESERVED = 8
"""One in this many batches under way is reserved for small publications."""


class _AcceptedPublication(NamedTuple):
    """A durable publication that is in the log up to `end`, perhaps not yet synced."""

    end: int
    waiting: WaitingPublication
    publication: AcceptedBatch


class _ReservedBatch(NamedTuple):
    """A batch of publications with identities that is in the log up to `end`, and is routed once
    that is synced."""

    end: int
    batch: AcceptedBatch
    rows: ObjectRows
    taken: Sequence[WaitingPublication]


class _RoutedBatch(NamedTuple):
    """A batch that is routed and not complete; `since` is when its first publication came."""

    since: float
    objects: int
    size_bytes: int


class PublicationPipeline:
    """The publications of one dispatcher; instructions go to `out`."""

    def __init__(
        self,
        router: PublishingRouter,
        log: ObjectLog,
        reservoir: ObjectReservoir,
        watchers: StreamWatchers,
        meter: StageMeter,
        out: list[Instruction],
        retro: RetroMatching | None = None,
    ) -> None:
        self.intake = PublicationIntake(router.max_in_flight)
        self.identified = IdentifiedPublications(router, log, self.intake, out)
        self._router = router
        self._log = log
        self._reservoir = reservoir
        self._watchers = watchers
        self._meter = meter
        self._out = out
        self._retro = retro
        self._open: dict[int, _RoutedBatch] = {}  # by batch
        self.open_bytes = 0
        self._unsynced: deque[_AcceptedPublication] = deque()
        self._reserved: deque[_ReservedBatch] = deque()
        self._synced = 0
        self._congested = False
        self._listeners: list[Any] = []

    @property
    def has_work(self) -> bool:
        """Returns whether a publication waits to be routed."""
        return len(self.intake) > 0 or self._is_reserved_durable

    @property
    def is_idle(self) -> bool:
        """Returns whether no publication waits, and all are answered."""
        is_answered = not (self._unsynced or self._reserved or len(self.identified))
        return is_answered and self.intake.is_idle

    @property
    def _is_reserved_durable(self) -> bool:
        return len(self._reserved) > 0 and self._reserved[0].end <= self._synced

    def add_listener(self, listener: Any) -> None:
        """Informs a listener, now and at every change, whether routed batches wait."""
        self._listeners.append(listener)
        self._out.append(AnnounceCongestion([listener], self._congested))

    def add(self, event: PublishRequested) -> None:
        """Takes a publication in, or refuses it."""
        call, rows, durable, since, wait_s, identity = event
        if identity is not None:
            self.identified.add(event, identity)
        elif not self.intake.add(WaitingPublication(call, rows, durable, since, since + wait_s)):
            self._out.append(RefuseCall(call, self.intake.make_refusal()))

    def withdraw(self, event: PublishWithdrawn) -> None:
        """Refuses a publication that has waited too long, unless it is routed."""
        if self.intake.withdraw(event.call):
            problem = f"publish: not routed within {event.waited_s:g} s"
            self._out.append(RefuseCall(event.call, ResourceExhausted(problem)))
        else:
            self.identified.withdraw(event.call, event.waited_s)

    def route_batch(self, now: float, now_ms: int) -> bool:
        """Routes or reserves one batch of publications, if one should leave now; returns whether it
        did."""
        for waiting in self.intake.take_expired(now):
            self._refuse_one(waiting, self.intake.make_refusal())
        router, taken = self._router, list[WaitingPublication]()
        if self._is_reserved_durable:
            self._route_reserved(now, now_ms)
            return True
        if router.in_flight < router.max_in_flight:
            taken = self.intake.take(router.active)
        if taken:
            rows = ObjectRows.concat([waiting.rows for waiting in taken])
            try:
                if taken[0].identity is not None:
                    self._reserve_batch(rows, taken, now)
                else:
                    end = self._append_batch(rows, taken)
                    offset, lsn, sends = router.publish(rows, self._find_sheddable(taken))
                    self._keep_valid(rows, offset, lsn)
                    self._note_batch(offset, rows, taken, sends, now)
                    self._reservoir.add(rows, now_ms)
                    self._note_accepted(AcceptedBatch(router.index, offset, lsn), end, taken, now)
            except Ps2StreamError as error:
                for waiting in taken:
                    self._refuse_one(waiting, error)
        self.look_for_congestion()
        return bool(taken)

    def completed(self, batches: Sequence[int], now: float) -> None:
        """Notes that all matches of batches are durable."""
        for batch in batches:
            if batch in self._open:
                since, objects, size_bytes = self._open.pop(batch)
                self.open_bytes -= size_bytes
                self._meter.add("complete", now - since, objects)
                if (traces := self._meter.traces) is not None:
                    key = self._router.index, batch
                    if traces.wanted(key):
                        self._out.append(TraceStage("batch", key, since, now, objects))

    def note_progress(self) -> None:
        """Notes in the log how far objects are complete."""
        for batch in [b for b in self._open if b < self._router.oldest]:  # quarantined
            self.open_bytes -= self._open.pop(batch).size_bytes
        with contextlib.suppress(Unavailable):  # a full disk; it is noted again
            if self._log.progress(self._router.oldest):
                self._out.append(SyncLog())

    def report_stall(self, report: str) -> None:
        """Reports that objects wait while hardly any are completed, unless `report` is empty."""
        if report:
            self._out.append(ReportStall(report, self._router.in_flight, len(self.intake)))

    def synced(self, event: LogSynced, now: float) -> None:
        """Answers what has become durable."""
        self._synced = event.end
        while self._unsynced and self._unsynced[0].end <= event.end:
            _, waiting, publication = self._unsynced.popleft()
            self._meter.add("durable", now - waiting.since, len(waiting.rows))
            self._out.append(AnswerCall(waiting.call, publication))
        if (position := self._log.find_spare(event.end)) is not None:
            self._out.append(TrimLog(position))

    def failed(self, event: LogFailed) -> None:
        """Refuses what will not become durable."""
        self.identified.fail(event.error)
        while self._reserved:
            for waiting in self._reserved.popleft().taken:
                self._refuse_one(waiting, event.error)
        while self._unsynced:
            self._out.append(RefuseCall(self._unsynced.popleft().waiting.call, event.error))

    @property
    def fullness(self) -> float:
        """How full the buffer of batches under way is; from about 1 on publications wait."""
        return max(
            self._router.in_flight / self._router.max_in_flight, self.open_bytes / OPEN_BYTES
        )

    def _find_sheddable(self, taken: Sequence[WaitingPublication]) -> Array | None:
        """Returns which objects may be shed now, bool[n]; None for none. Those that must be durable
        never are."""
        if not self._router.shedding.level or all(waiting.durable for waiting in taken):
            return None
        return np.repeat([not waiting.durable for waiting in taken], [len(w.rows) for w in taken])

    def _refuse_one(self, waiting: WaitingPublication, error: Exception) -> None:
        if waiting.identity is None:
            self._out.append(RefuseCall(waiting.call, error))
        else:
            self.identified.refuse(waiting.call, error)

    def _reserve_batch(
        self, rows: ObjectRows, taken: Sequence[WaitingPublication], now: float
    ) -> None:
        """Logs a batch of publications with identities, which nobody sees before it is durable: if
        it were lost after a match of it was delivered, a repeat would be matched again."""
        self._check_ready(len(rows))
        router = self._router
        self._out.append(SyncLog())  # also if appending fails: see _check_ready
        parts = [(w.identity, len(w.rows)) for w in taken if w.identity is not None]
        end = self._log.append_identified(router.offset, router.applied, rows, parts, now)
        batch = AcceptedBatch(router.index, *router.reserve(rows))
        self._keep_valid(rows, batch.offset, batch.lsn)
        self._reserved.append(_ReservedBatch(end, batch, rows, taken))

    def _route_reserved(self, now: float, now_ms: int) -> None:
        """Routes a batch of publications with identities that is durable, and answers them."""
        _, batch, rows, taken = self._reserved.popleft()
        sends = self._router.route_reserved(batch.offset)
        self._note_batch(batch.offset, rows, taken, sends, now)
        self._reservoir.add(rows, now_ms)
        for waiting in taken:
            for stage in ("intake", "durable"):
                self._meter.add(stage, now - waiting.since, len(waiting.rows))
            self.identified.answer(waiting.call, batch)
            batch = batch._replace(offset=batch.offset + len(waiting.rows))

    def _keep_valid(self, rows: ObjectRows, offset: int, lsn: int) -> None:
        if len(rows.until) and self._retro is not None:
            self._retro.note_batch(rows, offset, lsn)

    def look_for_congestion(self) -> None:
        """Announces a change of whether routed batches wait."""
        most = self._router.max_in_flight
        congested = (
            self.open_bytes >= OPEN_BYTES or self._router.in_flight >= most - most // RESERVED
        )
        if congested != self._congested:
            self._congested = congested
            self._out.append(AnnounceCongestion(tuple(self._listeners), congested))

    def _note_batch(
        self,
        offset: int,
        rows: ObjectRows,
        taken: Sequence[WaitingPublication],
        sends: Sequence[Send],
        now: float,
    ) -> None:
        """Notes a batch that is routed now, and sends it to its workers."""
        since = taken[0].since
        self._watchers.accepted(rows, offset, bool(sends), now)
        if not sends:
            return
        self._out += sends
        opened = self._open[offset] = _RoutedBatch(since, len(rows), rows.nbytes)
        self.open_bytes += opened.size_bytes
        if (traces := self._meter.traces) is not None:
            key = self._router.index, offset
            if traces.wanted(key):
                traces.open(key, len(rows))
                self._out.append(TraceStage("publish", key, since, now))
                self._out.append(TraceStage("route", key, now, None))

    def _note_accepted(
        self, batch: AcceptedBatch, end: int, taken: Sequence[WaitingPublication], now: float
    ) -> None:
        """Answers the publications of a batch, now or when the log is durable up to `end`."""
        for waiting in taken:
            self._meter.add("intake", now - waiting.since, len(waiting.rows))
            if waiting.durable:
                self._unsynced.append(_AcceptedPublication(end, waiting, batch))
            else:
                self._out.append(AnswerCall(waiting.call, batch))
            batch = batch._replace(offset=batch.offset + len(waiting.rows))

    def _append_batch(self, rows: ObjectRows, taken: Sequence[WaitingPublication]) -> int:
        """Appends a batch to the log if some of it must be durable or has an end. Returns the end
        of the log from which on it is durable, 0 if it was not appended."""
        self._check_ready(len(rows))
        if not any(waiting.durable for waiting in taken) and not len(rows.until):
            return 0
        self._out.append(SyncLog())
        return self._log.append(self._router.offset, self._router.applied, rows)

    def _check_ready(self, rows: int) -> None:
        """Reserves the offsets of so many rows. Raises Unavailable if none can be accepted now."""
        if not self._router.ready:
            raise Unavailable("the dispatcher is catching up with the ledger")
        try:
            self._log.reserve(self._router.offset + rows)
        except Unavailable:
            self._out.append(SyncLog())  # if the log has failed for good, this incarnation ends
            raise
