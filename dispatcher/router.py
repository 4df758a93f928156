"""The router machine: one dispatcher's logic, pure (ARCHITECTURE.md, data flow).

Objects: stamp a batch with the applied LSN, route it by gridt, remember it until every
merger has called it complete. Updates: apply the sequencer's stream in LSN order, count
it in H2, and, where this dispatcher owns the ledger batch, send it on.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque

import numpy as np

from ps2stream.batch import U8, Frame
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.errors import ResourceExhausted
from ps2stream.grid import Grid
from ps2stream.h1 import H1
from ps2stream.messages import (
    Address,
    Applied,
    AppliedAck,
    Completed,
    Delivery,
    LookupReply,
    MergerQueries,
    Out,
    Payload,
    Reply,
    RoutedObjects,
    Send,
    SessionGrant,
    UpdateDecision,
    UpdateRequest,
    Visible,
    Watermark,
    WorkerUpdates,
)
from ps2stream.rows import Kind, ObjectRows, QueryRows
from ps2stream.tags import Tags
from ps2stream.tokens import TokensReply

SEQUENCER = Address("sequencer", 0)


@dataclasses.dataclass
class Counters:
    """Totals since the start, and the sizes of the moment (in_flight, units)."""

    objects: int = 0  # accepted
    discarded: int = 0  # objects that no worker wanted
    routed: int = 0  # copies of objects sent to workers
    batches: int = 0
    inserts: int = 0  # applied
    deletes: int = 0
    in_flight: int = 0  # batches that are not complete
    units: int = 0  # (cell, term) with a query in H2


class RouterMachine:
    """A dispatcher. `on`, `publish`, `update` and `tick` return what is to be sent.

    At most `max_in_flight` batches are under way at a time; a batch is known by the offset
    of its first object.
    """

    def __init__(
        self,
        index: int,
        dispatchers: int,
        workers: int,
        mergers: int,
        h1: H1,
        grid: Grid,
        max_in_flight: int,
        plan_version: int = 0,
    ) -> None:
        if h1.workers != workers:
            raise ValueError(f"the plan has {h1.workers} workers, the service {workers}")
        self.index = index
        self.dispatchers = dispatchers
        self.workers = workers
        self.mergers = mergers
        self.max_in_flight = max_in_flight
        self.plan_version = plan_version
        self.gridt = Gridt(h1, grid)
        self.counters = Counters()
        self._applied = 0
        self._visible = 0
        self._offset = 0
        self._told = 0  # the watermark that every worker and merger has been sent
        self._open: dict[int, tuple[int, set[int]]] = {}  # batch -> LSN, mergers to answer
        self._early: dict[int, Applied] = {}  # by lsn_from: those behind a gap
        self._dying: deque[tuple[int, Tags]] = deque()  # delete LSN, tags still in H2
        self._decided: list[tuple[int, int, UpdateDecision]] = []  # heap by max LSN

    @property
    def applied(self) -> int:
        """Every update to this LSN is in the gridt."""
        return self._applied

    @property
    def in_flight(self) -> int:
        """Batches that some merger has not yet called complete."""
        return len(self._open)

    @property
    def watermark(self) -> int:
        """No batch, under way or to come, has an LSN below this."""
        # Stamps never fall, so the oldest open batch has the smallest.
        return next(iter(self._open.values()))[0] if self._open else self._applied

    def publish(self, rows: ObjectRows) -> tuple[int, int, list[Out]]:
        """Accept a batch whole: (offset of its first object, LSN it is matched as of,
        messages). Raises ResourceExhausted, with nothing accepted, at `max_in_flight`."""
        if len(self._open) >= self.max_in_flight:
            raise ResourceExhausted(
                f"publish: {self.max_in_flight} batches are in flight, the limit (max_in_flight)"
            )
        batch, lsn = self._offset, self._applied
        self._offset += len(rows)
        shares, discarded = self.gridt.route(rows.lon, rows.lat, rows.term_off, rows.term)
        self.counters.batches += 1
        self.counters.objects += len(rows)
        self.counters.discarded += discarded
        if not shares:
            return batch, lsn, []
        self._open[batch] = (lsn, set(range(self.mergers)))
        self.counters.in_flight = len(self._open)
        watermark, expected = self.watermark, len(shares)
        payload = Payload(
            dispatcher=self.index,
            batch=batch,
            lsn=lsn,
            watermark=watermark,
            expected=expected,
            id_off=rows.id_off,
            id=rows.id,
            time=rows.time,
            lon=rows.lon,
            lat=rows.lat,
            text_off=rows.text_off,
            text=rows.text,
        )
        out = self._to_mergers(payload)
        for share in shares:
            self.counters.routed += len(share.row)
            columns = (share.row, share.lon, share.lat, share.term_off, share.term)
            routed = RoutedObjects(self.index, batch, lsn, watermark, expected, *columns)
            out.append(Send(Address("worker", share.worker), routed))
        return batch, lsn, out

    def update(self, request: UpdateRequest) -> list[Out]:
        """Pass inserts and deletes to the sequencer; a Reply with the UpdateDecision of
        the same `seq` follows once every dispatcher has applied them."""
        return [Send(SEQUENCER, dataclasses.replace(request, dispatcher=self.index))]

    def on(self, frame: Frame) -> list[Out]:
        """One message from the sequencer or a merger."""
        match frame:
            case Completed():
                return self._complete(frame)
            case Applied():
                return self._receive(frame)
            case Visible():
                self._visible = max(self._visible, frame.lsn)
                return self._release()
            case UpdateDecision():
                lsn = int(frame.lsn.max(initial=0))
                heapq.heappush(self._decided, (lsn, frame.seq, frame))
                return self._release()
            case SessionGrant() | LookupReply() | TokensReply() | Delivery():
                return [Reply(frame)]
        raise TypeError(f"a dispatcher does not take {type(frame).__name__}")

    def tick(self) -> list[Out]:
        """Periodic: tell everyone the watermark if it has risen since they were last told,
        so that an idle dispatcher does not keep deleted queries in memory."""
        if self.watermark <= self._told:
            return []
        self._told = self.watermark
        frame = Watermark(self.index, self._told)
        return self._to_workers(frame) + self._to_mergers(frame)

    # --- objects ------------------------------------------------------------

    def _complete(self, frame: Completed) -> list[Out]:
        for batch in frame.batch.tolist():
            _, waiting = self._open.get(batch, (0, set()))
            waiting.discard(frame.merger)
            if not waiting:
                self._open.pop(batch, None)
        self.counters.in_flight = len(self._open)
        self._retire()
        return []

    # --- updates ------------------------------------------------------------

    def _receive(self, frame: Applied) -> list[Out]:
        if frame.lsn_from > self._applied:
            self._early[frame.lsn_from] = frame
        out: list[Out] = []
        while (ready := self._early.pop(self._applied + 1, None)) is not None:
            out += self._apply(ready)
        if self.dispatchers == 1:
            self._visible = self._applied  # here is everyone
            return out + self._release()
        # A repeat is acknowledged again: its first acknowledgement may be what got lost.
        out.append(Send(SEQUENCER, AppliedAck(self.index, self._applied)))
        return out

    def _apply(self, frame: Applied) -> list[Out]:
        rows = QueryRows.decode(frame.rows.data)
        tags = self.gridt.expand(rows)
        deleted = rows.kind == Kind.DELETE
        dead = int(deleted.sum())
        self.gridt.insert(tags.of(~deleted) if dead else tags)
        if dead:
            self._dying.append((int(rows.lsn[deleted].max()), tags.of(deleted)))
        self._applied = frame.lsn_to
        self.counters.deletes += dead
        self.counters.inserts += len(rows) - dead
        self._retire()
        return self._hand_on(frame, rows, tags) if frame.owner == self.index else []

    def _retire(self) -> None:
        """H2 forgets deleted queries that no batch, present or future, can match."""
        watermark = self.watermark
        while self._dying and self._dying[0][0] <= watermark:
            self.gridt.retire(self._dying.popleft()[1])
        self.counters.units = len(self.gridt)

    def _hand_on(self, frame: Applied, rows: QueryRows, tags: Tags) -> list[Out]:
        """The owner's part: every worker its rows, every merger the names."""
        head = (frame.lsn_from, frame.lsn_to, self.index, self.watermark)
        self._told = max(self._told, self.watermark)
        names = MergerQueries(
            *head, rows.kind, rows.lsn, rows.handle, rows.session, rows.id_off, rows.id
        )
        none, blank = np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.uint8)
        bare = rows.replace(id_off=none, id=blank, source_off=none, source=blank)
        out = self._to_mergers(names)
        for worker, share in enumerate(self.gridt.split(tags)):
            held = _column(bare if len(share.row) == len(rows) else bare.take(share.row))
            update = WorkerUpdates(*head, held, share.off, share.cell, share.term)
            out.append(Send(Address("worker", worker), update))
        return out

    def _release(self) -> list[Out]:
        out: list[Out] = []
        while self._decided and self._decided[0][0] <= self._visible:
            out.append(Reply(heapq.heappop(self._decided)[2]))
        return out

    def _to_workers(self, frame: Frame) -> list[Out]:
        return [Send(Address("worker", i), frame) for i in range(self.workers)]

    def _to_mergers(self, frame: Frame) -> list[Out]:
        return [Send(Address("merger", i), frame) for i in range(self.mergers)]


def _column(rows: QueryRows) -> U8:
    return np.frombuffer(rows.encode(), np.uint8)
