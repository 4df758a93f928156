"""The router machine: one dispatcher's logic, pure (ARCHITECTURE.md, data flow).

Objects: stamp a batch with the applied LSN, route it by gridt, keep it open until every
merger has called it complete (open_batches.py). Updates: apply the sequencer's stream in
LSN order, count it in H2, and, where this dispatcher owns the ledger batch, send it on.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.open_batches import Open, OpenBatches
from ps2stream.dispatcher.throughput import Throughput
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.protocol.addresses import ROLES, Address, Out, Reply, Send
from ps2stream.protocol.follower import Follower
from ps2stream.protocol.frame import I64, U8, Frame
from ps2stream.protocol.log_records import ObjectRecord, Quarantined, Split
from ps2stream.protocol.messages.loads import AdjustReply
from ps2stream.protocol.messages.objects import (
    Begin,
    Completed,
    Partial,
    Stale,
    Watermark,
    Withdraw,
)
from ps2stream.protocol.messages.plan import Postings, StrategyReply
from ps2stream.protocol.messages.sessions import Attached, Delivery, SessionGrant
from ps2stream.protocol.messages.updates import (
    Applied,
    AppliedAck,
    LookupReply,
    MergerQueries,
    Tip,
    UpdateDecision,
    UpdateRequest,
    WorkerUpdates,
)
from ps2stream.protocol.messages.watch import Seen
from ps2stream.protocol.rows import Kind, ObjectRows, QueryRows
from ps2stream.protocol.tokens import TokensReply
from ps2stream.routing.h1 import H1
from ps2stream.routing.plan_changes import Routes, Strategist
from ps2stream.routing.tags import Tags
from ps2stream.space.grid import Grid

RESEND_TICKS = 20
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
    stale: int = 0  # batches that a worker refused, its plan being another
    quarantined: int = 0  # objects that killed workers
    delayed: int = 0  # objects whose matches took more than 0.1 s to be durable
    stalled: int = 0  # ... more than 1 s
    collapsed: int = 0  # pairs that came from two workers; the mergers collapsed them
    throughput_stalls: int = 0  # how often hardly any object was completed while some waited
    throughput_stalled: int = 0  # 1 while that is so


class RouterMachine:
    """A dispatcher, in its incarnation `epoch`. `on`, `publish`, `update`, `joined` and `tick`
    return what is to be sent.

    At most `max_in_flight` batches are under way at a time; a batch is known by the offset
    of its first object. `replay` is what an earlier incarnation left open, in the order of
    the offsets; it is sent as room comes, before anything new. `strategist` follows changes
    of the plan. `offset` is the next, above all that were used.
    """

    def __init__(
        self,
        index: int,
        dispatchers: int,
        mergers: int,
        h1: H1,
        grid: Grid,
        max_in_flight: int,
        route: int = 0,
        epoch: int = 0,
        replay: Sequence[ObjectRecord] = (),
        offset: int = 0,
        strategist: Strategist | None = None,
    ) -> None:
        self.index = index
        self.dispatchers = dispatchers
        self.workers = h1.workers
        self._strategist = strategist
        self.mergers = mergers
        self.max_in_flight = max_in_flight
        self.epoch = epoch
        self.gridt = Gridt(h1, grid)
        self.counters = Counters()
        self._stream: Follower[Applied] = Follower("dispatcher", index)
        self._visible = 0
        self._ready_at: int | None = None
        self._acked = (0, 0)  # what the sequencer was last told: applied, watermark
        self._offset = offset
        self._told = 0  # the watermark that every worker and merger has been sent
        self._open = OpenBatches(index, mergers, route, epoch)
        self._throughput = Throughput()
        self.stall_report = ""  # of the last tick: who waits for whom; empty: nothing to report
        self._replay = deque(replay)
        # delete LSN, tags still in H2, handles
        self._dying: deque[tuple[int, Tags, I64]] = deque()
        self._ticks = 0
        self._asked: dict[int, UpdateRequest] = {}  # by seq: not yet decided
        self._ended: list[Out] = []  # what workers were to hold at the end of the last move
        self._decided: list[tuple[int, int, UpdateDecision]] = []  # heap by max LSN

    @property
    def applied(self) -> int:
        """Every update to this LSN is in the gridt; while the state is received, 0."""
        return 0 if self._stream.amid else self._stream.applied

    @property
    def plan_version(self) -> int:
        """Of the plan that objects are routed by; 0 where it has none."""
        strategist = self._strategist
        return 0 if strategist is None else strategist.strategy.serving.version

    def owned_by(self, handle: int) -> int:
        """Version of the plan that says who owns the query of this handle; 0 where it has none.
        It is `plan_version`, or, while two plans coexist, of a young query the new one's."""
        if self._strategist is None:
            return 0
        strategy = self._strategist.strategy
        plan = strategy.following if 0 < strategy.apart < handle else None
        return (plan or strategy.serving).version

    @property
    def route(self) -> int:
        """Names the plan that objects are routed by."""
        return self._open.route

    @property
    def ready(self) -> bool:
        """Whether objects may be accepted: what was visible when this incarnation came is
        applied."""
        return self._ready_at is not None and self.applied >= self._ready_at

    @property
    def in_flight(self) -> int:
        """Batches that some merger has not yet called complete, up to `max_in_flight`; those
        that only silent workers keep open count together, by their size."""
        return self._open.in_flight

    def is_open(self, batch: int) -> bool:
        """Whether it is not complete."""
        return batch in self._open

    @property
    def active(self) -> int:
        """Those in flight that are not kept open by silent workers alone."""
        return self._open.active

    @property
    def offset(self) -> int:
        """Of the next object."""
        return self._offset

    @property
    def undecided(self) -> int:
        """Update requests that the sequencer has not answered."""
        return len(self._asked)

    @property
    def oldest(self) -> int:
        """Every batch of a lower offset is complete."""
        first = self._replay[0].batch if self._replay else self._offset
        return min(first, self._open.oldest(first))

    @property
    def watermark(self) -> int:
        """No batch, under way or to come, has an LSN below this."""
        # Stamps never fall with the offset.
        replay = self._replay[0].lsn if self._replay else self.applied
        return min(replay, self._open.watermark(self.applied), self.applied)

    def publish(self, rows: ObjectRows) -> tuple[int, int, list[Out]]:
        """Accept a batch whole: (offset of its first object, LSN it is matched as of,
        messages; none where nobody wants any of it). Raises ResourceExhausted at
        `max_in_flight` and Unavailable before `ready`, with nothing accepted."""
        if not self.ready:
            raise Unavailable("the dispatcher is catching up with the ledger")
        if self.in_flight >= self.max_in_flight:
            raise ResourceExhausted(
                f"publish: {self.max_in_flight} batches are in flight, the limit (max_in_flight)"
            )
        batch, lsn = self._offset, self.applied
        self._offset += len(rows)
        self.counters.batches += 1
        self.counters.objects += len(rows)
        return batch, lsn, self._route(batch, lsn, rows)

    def update(self, request: UpdateRequest) -> list[Out]:
        """Pass inserts and deletes to the sequencer; a Reply with the UpdateDecision of
        the same `seq` follows once every dispatcher has applied them."""
        settled = min(self._asked, default=request.seq)
        request = dataclasses.replace(
            request, dispatcher=self.index, epoch=self.epoch, settled=settled
        )
        self._asked[request.seq] = request
        return [Send(SEQUENCER, request)]

    def on(self, frame: Frame) -> list[Out]:
        """One message from the sequencer, a worker or a merger."""
        match frame:
            case Completed():
                return self._complete(frame)
            case Applied():
                return self._receive(frame)
            case Tip():
                return self._hear(frame)
            case UpdateDecision():
                if self._asked.pop(frame.seq, None) is not None:
                    lsn = int(frame.lsn.max(initial=0))
                    heapq.heappush(self._decided, (lsn, frame.seq, frame))
                return self._release()
            case Partial():
                self._open.hold_up(frame)
                return self._go_on()
            case Begin():
                self._open.begin(frame)
                return []
            case Stale():
                self.counters.stale += 1
                self._open.refuse(frame)
                return []
            case SessionGrant() | LookupReply() | TokensReply() | StrategyReply() | AdjustReply():
                return [Reply(frame)]
            case Delivery() | Attached() | Seen():
                return [Reply(frame)]
        raise TypeError(f"a dispatcher does not take {type(frame).__name__}")

    def joined(self, peer: Address) -> list[Out]:
        """A new incarnation of `peer`: it is sent again what the old one may not have dealt
        with."""
        if peer.role == "sequencer":
            return [*map(_to_sequencer, self._asked.values()), *self._acknowledge()]
        return [*self._open.replaced(peer), *self._divide()]

    def tick(self) -> list[Out]:
        """Ten times a second: ask for what was lost, repeat what was not answered, tell
        everyone the watermark if it has risen since they were last told, so that an idle
        dispatcher does not keep deleted queries in memory."""
        out: list[Out] = []
        out += self._stream.tick()
        self._ticks += 1
        again = self._ticks % RESEND_TICKS == 0
        if again:
            out += [*map(_to_sequencer, self._asked.values()), *self._ended]
        unseen = again and self._visible < self.applied  # an acknowledgement may be lost
        if unseen or (self.applied, self.watermark) != self._acked:
            out += self._acknowledge()
        out += self._open.tick()
        reports = self._throughput.tick(self._open.completed, self._open.oldest_age)
        self.stall_report = self._open.describe_oldest() if reports else ""
        self.counters.throughput_stalls = self._throughput.stalls
        self.counters.throughput_stalled = int(self._throughput.stalled)
        if self.watermark > self._told:
            self._told = self.watermark
            frame = Watermark(self.index, self._told)
            out += self._to_workers(frame) + self._to_mergers(frame)
        return out

    # --- objects ------------------------------------------------------------

    def _route(
        self, batch: int, lsn: int, rows: ObjectRows, part_of: Open | None = None
    ) -> list[Out]:
        shares, discarded = self.gridt.route(rows.lon, rows.lat, rows.term_off, rows.term)
        self.counters.discarded += discarded
        if not shares:
            return []
        self.counters.routed += sum(len(share.row) for share in shares)
        watermark, oldest = min(self.watermark, lsn), min(self.oldest, batch)
        sends = self._open.add(batch, lsn, rows, shares, watermark, oldest, part_of)
        self.counters.in_flight = len(self._open)
        return list(sends)

    def _complete(self, frame: Completed) -> list[Out]:
        self._open.complete(frame)
        for name in ("delayed", "stalled", "collapsed"):
            setattr(self.counters, name, getattr(self._open, name))
        return self._go_on()

    def _go_on(self) -> list[Out]:
        """Send what there is room for of what was left open, and forget the dead."""
        out: list[Out] = []
        if self.ready:
            while self._replay and self.in_flight < self.max_in_flight:
                record = self._replay.popleft()
                out += self._route(record.batch, record.lsn, ObjectRows.decode(record.rows.data))
        self.counters.in_flight = len(self._open)
        self._retire()
        return out

    def _divide(self) -> list[Out]:
        """What killed goes again as two halves; one object alone is quarantined. A Reply with
        the record comes before what follows from it."""
        out: list[Out] = []
        for batch, suspect in self._open.guilty():
            rows = suspect.rows
            half = len(rows) // 2
            record = Split(batch + half) if half else Quarantined(batch)
            withdraw = Withdraw(self.index, batch, suspect.payload.attempt)
            out += [Reply(record), *self._to_mergers(withdraw)]
            self.counters.quarantined += not half
            for start, stop in ((0, half), (half, len(rows))) if half else ():
                part = rows.take(np.arange(start, stop))
                out += self._route(batch + start, suspect.lsn, part, part_of=suspect)
        return out

    # --- updates ------------------------------------------------------------

    def _hear(self, tip: Tip) -> list[Out]:
        out: list[Out] = [*self._stream.hear(tip.lsn)]
        if self._ready_at is None:
            self._ready_at = tip.lsn
        self._visible = max(self._visible, tip.visible)
        return out + self._go_on() + self._release()

    def _acknowledge(self) -> list[Out]:
        self._acked = (self.applied, self.watermark)
        c = self.counters
        told = (c.objects, c.delayed, c.stalled, c.collapsed)
        return [Send(SEQUENCER, AppliedAck(self.index, *self._acked, *told))]

    def _receive(self, frame: Applied) -> list[Out]:
        if frame.owner >= 0:
            self._stream.add(frame.lsn_from, frame.lsn_to, frame)
        elif self._stream.fetched(frame):
            self.gridt.clear()
            self._dying.clear()
            if self._strategist is not None:
                self._turn(self._strategist.reset())
        out: list[Out] = []
        while (ready := self._stream.next()) is not None:
            out += self._apply(ready)
        # A repeat is acknowledged again: its first acknowledgement may be what got lost.
        out += self._acknowledge()
        if frame.owner < 0:
            out += self._stream.ask()
        if self.dispatchers == 1 and not self._stream.amid:
            self._visible = self.applied  # here is everyone
        return out + self._go_on() + self._release()

    def _follow(self, frame: Applied) -> list[Out]:
        if self._strategist is None:
            raise TypeError("this dispatcher follows no change of strategy")
        moving = self._strategist.strategy.following is not None
        self._turn(self._strategist.take(frame.strategy, frame.lsn_to))
        self._ended = []
        early = any(last > frame.lsn_to for last, _, _ in self._dying)  # of a state
        if moving and self._strategist.strategy.following is None and not early:
            wanted = self.gridt.postings(tags for _, tags, _ in self._dying)
            me = ROLES.index("dispatcher"), self.index
            self._ended = [_to_sequencer(Postings(*me, frame.lsn_to, wanted))]
        return self._ended

    def _turn(self, routes: Routes) -> None:
        """Go by these from now on."""
        self.gridt.follow(routes)
        self._open.route = routes.route
        self.workers = routes.workers

    def _apply(self, frame: Applied) -> list[Out]:
        out = self._follow(frame) if len(frame.strategy) else []
        rows = QueryRows.decode(frame.rows.data)
        whole = frame.lsn_from == self._stream.before + 1
        if not whole:  # the batch repeats some of what was before
            rows = rows.take(np.flatnonzero(rows.lsn > self._stream.before))
        tags = self.gridt.expand(rows)
        deleted = rows.kind == Kind.DELETE
        dead = int(deleted.sum())
        self.gridt.insert(tags.of(~deleted) if dead else tags, rows.handle[~deleted])
        if dead:
            last = int(rows.lsn[deleted].max())
            self._dying.append((last, tags.of(deleted), rows.handle[deleted]))
        self.counters.deletes += dead
        self.counters.inserts += len(rows) - dead
        self._retire()
        mine = frame.owner == self.index and whole
        return [*out, *(self._hand_on(frame, rows, tags) if mine else [])]

    def _retire(self) -> None:
        """H2 forgets deleted queries that no batch, present or future, can match."""
        watermark = self.watermark
        while self._dying and self._dying[0][0] <= watermark:
            self.gridt.retire(*self._dying.popleft()[1:])
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
            update = WorkerUpdates(
                *head, held, share.off, share.cell, share.term, strategy=frame.strategy
            )
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


def _to_sequencer(frame: Frame) -> Send:
    return Send(SEQUENCER, frame)


def _column(rows: QueryRows) -> U8:
    return np.frombuffer(rows.encode(), np.uint8)
