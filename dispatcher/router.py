"""The router machine: the routing of one dispatcher (ARCHITECTURE.md, data flow).

Objects: the machine stamps a batch with the applied LSN, routes it by gridt, and keeps it open
until all its matches are durable (open_batches.py). Updates: it applies the sequencer's stream
in LSN order, counts it in H2, and forwards the ledger batches that this dispatcher owns.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ps2stream.dispatcher.concerns import ReceiverConcerns
from ps2stream.dispatcher.discards import DiscardMonitor
from ps2stream.dispatcher.gathering import (
    NO_OBJECTS,
    RetroParts,
    RoutingProgress,
    gather_retro,
)
from ps2stream.dispatcher.gridt import Gridt, share_all
from ps2stream.dispatcher.hot_unit_kernels import TERM_BITS
from ps2stream.dispatcher.hot_units import HotUnitCounter, find_names
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.open_batch import OpenBatch
from ps2stream.dispatcher.open_batches import OpenBatches
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.dispatcher.retro_queue import RetroQueue
from ps2stream.dispatcher.shedding import LoadShedding
from ps2stream.dispatcher.shedding_columns import NOTHING_SHED
from ps2stream.dispatcher.throughput import ThroughputMonitor
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literals import WatchedLiterals
from ps2stream.multicast.capping import SheddingRank
from ps2stream.protocol.addresses import CONTROLLER, ROLES, SEQUENCER, Address, Out, Reply, Send
from ps2stream.protocol.follower import LedgerFollower
from ps2stream.protocol.frame import I64, U8, Array, Frame
from ps2stream.protocol.log_records import (
    ObjectRecord,
    QuarantineRecord,
    RetroRecord,
    SplitRecord,
)
from ps2stream.protocol.messages.handover import DispatchersReply, MergersReply
from ps2stream.protocol.messages.loads import AdjustReply, HotUnitsRequest
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    ReleasesKept,
    SessionTable,
    StaleRoute,
    SuspectBegin,
    WatermarkNotice,
)
from ps2stream.protocol.messages.plan import PlanChangeReply, PostingCounts
from ps2stream.protocol.messages.sessions import SessionGrant, StreamAttached, StreamDelivery
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    LedgerBatch,
    LedgerTip,
    LookupReply,
    MergerQueries,
    UpdateDecision,
    UpdateRequest,
    WorkerUpdates,
)
from ps2stream.protocol.messages.watch import SeenMatches
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import NEVER, ObjectRows, QueryRows, UpdateKind
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.protocol.ticks import NOTICE_TICKS, REPEAT_TICKS
from ps2stream.protocol.tokens import TokensReply
from ps2stream.routing.h1 import H1
from ps2stream.routing.plan_follower import CompiledRoutes, PlanFollower
from ps2stream.routing.tags import QueryTags
from ps2stream.space.grid import Grid


@dataclasses.dataclass
class DispatcherCounters:
    """Totals since the start; in_flight, units, literals and
    throughput_stalled are present values."""

    objects: int = 0  # accepted
    discarded: int = 0  # objects that went to no worker
    routed: int = 0  # copies of objects sent to workers
    batches: int = 0
    inserts: int = 0  # applied
    deletes: int = 0
    in_flight: int = 0  # batches that are not complete
    units: int = 0  # units (cell, term) with a query in H2
    literals: int = 0  # watched literals of queries, which objects are searched for
    stale: int = 0  # batches that a worker refused because it has another plan
    quarantined: int = 0  # objects that killed workers
    delayed: int = 0  # objects whose matches took more than 0.1 s to be durable
    stalled: int = 0  # the same for more than 1 s
    collapsed: int = 0  # matches that came from two workers, which the mergers collapsed
    throughput_stalls: int = 0  # how often hardly any object was completed while some waited
    throughput_stalled: int = 0  # 1 during such a stall


class RouterMachine:
    """The logic of a dispatcher, in its incarnation `epoch`. `on`, `publish`, `update`, `joined`
    and `tick` return the messages to send.

    At most `max_in_flight` batches are under way at a time; a batch is identified by the offset
    of its first object. `replay` holds the batches that an earlier incarnation left open, in the
    order of their offsets; they are sent as room permits, before any new batch. `strategist`
    follows changes of the plan. `offset` is the next offset, above all that were used. `analyzer`
    searches objects for the watched literals of queries. The inserts with retro up to `retro_done`
    were matched against the valid objects. `shed`: by what rank load is shed, None for never.
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
        strategist: PlanFollower | None = None,
        analyzer: Analyzer | None = None,
        retro_done: int = 0,
        shed: SheddingRank | None = None,
    ) -> None:
        self.index = index
        self._first_producers = ProducerMap.first(dispatchers)
        self.workers = h1.workers
        self._strategist = strategist
        self.max_in_flight = max_in_flight
        self.epoch = epoch
        self.gridt = Gridt(h1, grid)
        self.literals = LiteralTable()
        self.retro = RetroQueue(retro_done)
        self.retro.follow(self._first_producers, index)
        self._analyzer = analyzer
        self.counters = DispatcherCounters()
        self._stream: LedgerFollower[LedgerBatch] = LedgerFollower("dispatcher", index)
        self._visible = 0
        self._ready_at: int | None = None
        self._state_rows = 0  # of the state that is being received, up to the last frame applied
        self._sent_applied = (0, 0)  # applied and watermark as last sent to the sequencer
        self._offset = offset
        self._workers_concern, self._mergers_concern = ReceiverConcerns(), ReceiverConcerns()
        self._noticed = (0, 0)  # watermark and applied as last sent to every worker and merger
        self._noticed_at = -NOTICE_TICKS
        self._open = OpenBatches(index, h1.workers, mergers, route, epoch)
        self.hot_units = HotUnitCounter()
        self.shedding = LoadShedding(shed, h1.workers, seed=index)
        self._untold: set[int] = set()  # workers that order their pairs by an earlier table
        self._throughput = ThroughputMonitor()
        self._discards = DiscardMonitor()
        self.stall_report = ""  # of the last tick: who waits for whom; empty if there is no stall
        self._replay = deque(replay)
        self._reserved: dict[int, tuple[int, ObjectRows]] = {}  # batch: LSN, rows; not yet routed
        # Deleted queries that H2 still counts: last delete LSN, tags, handles, watched literals.
        self._deleted: deque[tuple[int, QueryTags, I64, WatchedLiterals]] = deque()
        self._ticks = 0
        self._requests: dict[int, UpdateRequest] = {}  # not yet decided, by seq
        self._final_postings: list[Out] = []  # postings due at each worker after the last migration
        self._decided: list[tuple[int, int, UpdateDecision]] = []  # heap by max LSN

    @property
    def applied(self) -> int:
        """The LSN up to which every update is in the gridt; 0 while the state is received."""
        return 0 if self._stream.amid else self._stream.applied

    @property
    def sessions(self) -> SessionMaps:
        """The tables of which merger has a session."""
        return self._open.sessions

    @property
    def producers(self) -> ProducerMap:
        """How many dispatchers there are."""
        return self._open.sessions.producers or self._first_producers

    @property
    def dispatchers(self) -> int:
        """The number of dispatchers, of which this one may be none yet."""
        return self.producers.dispatchers

    @property
    def counted(self) -> int:
        """The number of dispatchers that count, with those that leave."""
        return self.producers.counted

    @property
    def is_current(self) -> bool:
        """Returns whether everything is applied that was in the ledger when this incarnation
        started."""
        return self._ready_at is not None and self.applied >= self._ready_at

    @property
    def plan_version(self) -> int:
        """The version of the plan by which objects are routed; 0 without a strategist."""
        strategist = self._strategist
        return 0 if strategist is None else strategist.strategy.serving.version

    def owned_by(self, handle: int) -> int:
        """Returns the version of the plan that says who owns the query of this handle; 0 without
        a strategist. It is `plan_version`, but while two plans coexist, queries inserted after
        the new plan came belong to the new one."""
        if self._strategist is None:
            return 0
        strategy = self._strategist.strategy
        plan = strategy.following if 0 < strategy.apart < handle else None
        return (plan or strategy.serving).version

    @property
    def term_counts(self) -> Mapping[str, int] | None:
        """The frequencies of the newest plan, by which new queries choose their posting terms; None
        without a strategist."""
        if self._strategist is None:
            return None
        strategy = self._strategist.strategy
        return (strategy.following or strategy.plan).frequencies

    @property
    def route(self) -> int:
        """The number of the plan by which objects are routed."""
        return self._open.route

    @property
    def ready(self) -> bool:
        """Returns whether objects may be accepted: everything that was visible when this
        incarnation started is applied. A new dispatcher also counts by then, and all others know
        that it does."""
        if not self.is_current:
            return False
        producers = self.producers
        if self.index < producers.before:
            return True
        return self.index < producers.dispatchers and self._visible >= producers.lsn

    @property
    def in_flight(self) -> int:
        """The number of batches that are not complete, up to `max_in_flight`. Batches that only
        silent workers keep open count together, by their size."""
        return self._open.in_flight + len(self._reserved)

    @property
    def active(self) -> int:
        """The number of batches in flight that are not kept open by silent workers alone."""
        return self._open.active + len(self._reserved)

    @property
    def offset(self) -> int:
        """The offset of the next object."""
        return self._offset

    @property
    def undecided(self) -> int:
        """The number of update requests that the sequencer has not answered."""
        return len(self._requests)

    @property
    def oldest(self) -> int:
        """The offset below which every batch is complete."""
        first = self._replay[0].batch if self._replay else next(iter(self._reserved), self._offset)
        if not self.retro.is_idle:
            first = self.retro.find_oldest(first)
        return min(first, self._open.oldest(first))

    @property
    def watermark(self) -> int:
        """The LSN below which no batch, under way or to come, is stamped."""
        applied = self.applied
        lowest = self._open.watermark(applied)
        # A higher offset never has a lower LSN.
        if self._replay:
            lowest = min(lowest, self._replay[0].lsn)
        if self._reserved:
            lowest = min(lowest, next(iter(self._reserved.values()))[0])
        if not self.retro.is_idle:
            lowest = self.retro.find_lowest(lowest)
        return min(lowest, applied)

    def publish(
        self, rows: ObjectRows, may_shed: Array | None = None
    ) -> tuple[int, int, list[Send]]:
        """Accepts a whole batch, of which those objects may be shed for which bool[n] is true.
        Returns (the offset of its first object, the LSN as of which it
        is matched, the messages to send, which are none if it goes to no worker). Raises
        ResourceExhausted at `max_in_flight` and Unavailable before `ready`; nothing is accepted
        then."""
        if not self.ready:
            raise Unavailable("the dispatcher is catching up with the ledger")
        if self.in_flight >= self.max_in_flight:
            raise ResourceExhausted(
                f"publish: {self.max_in_flight} batches are in flight, the limit (max_in_flight)"
            )
        batch, lsn = self._accept_batch(rows)
        return batch, lsn, self._route_batch(batch, lsn, rows, may_shed=may_shed)

    def reserve(self, rows: ObjectRows) -> tuple[int, int]:
        """Accepts a whole batch, which is under way from now on but routed only by
        `route_reserved`, so that it can be durable before anybody sees it. Returns (the offset of
        its first object, the LSN as of which it is matched)."""
        batch, lsn = self._accept_batch(rows)
        self._reserved[batch] = lsn, rows
        return batch, lsn

    def route_reserved(self, batch: int) -> list[Send]:
        """Routes a batch that was reserved. Returns the messages to send."""
        return self._route_batch(batch, *self._reserved.pop(batch))

    @property
    def reserved_from(self) -> int:
        """The LSN from which on batches are reserved; NEVER if none is."""
        return next(iter(self._reserved.values()))[0] if self._reserved else NEVER

    def reserve_found(self, batch: int, size: int, lsn: int) -> None:
        """Uses the next `size` offsets, from `batch` on, for matches of new queries with valid
        objects, of which the first query has this LSN."""
        assert batch == self._offset
        self._offset += size
        self.retro.open_batch(batch, lsn)

    def release_found(self, record: RetroRecord, rows: ObjectRows) -> list[Send]:
        """Returns the releases of matches that are durable in the log."""
        parts = gather_retro(
            record.pair_row, record.handle, record.session, self.sessions.at(record.lsn),
            record.offset, record.missed,
        )  # fmt: skip
        progress = self._describe_progress()
        return self._open.add_found(record.batch, record.lsn, rows, parts, progress)

    def update(self, request: UpdateRequest) -> list[Out]:
        """Sends inserts and deletes to the sequencer; a Reply with the UpdateDecision of the same
        `seq` follows once every dispatcher has applied them."""
        settled = min(self._requests, default=request.seq)
        request = dataclasses.replace(
            request, dispatcher=self.index, epoch=self.epoch, settled=settled
        )
        self._requests[request.seq] = request
        return [Send(SEQUENCER, request)]

    def on(self, frame: Frame) -> list[Out]:
        """Handles a message from the sequencer, a worker or a merger."""
        match frame:
            case ReleasesKept():
                self._open.note_kept(frame)
                return self._note_closed()
            case LedgerBatch():
                return self._receive_updates(frame)
            case LedgerTip():
                return self._receive_tip(frame)
            case UpdateDecision():
                if self._requests.pop(frame.seq, None) is not None:
                    lsn = int(frame.lsn.max(initial=0))
                    heapq.heappush(self._decided, (lsn, frame.seq, frame))
                return self._release_decisions()
            case SuspectBegin():
                self._open.note_begun(frame)
                return []
            case StaleRoute():
                self.counters.stale += 1
                self._open.note_refusal(frame)
                return []
            case SessionGrant() | LookupReply() | TokensReply() | PlanChangeReply() | AdjustReply():
                return [Reply(frame)]
            case StreamDelivery() | StreamAttached() | SeenMatches():
                return [Reply(frame)]
            case MergersReply() | DispatchersReply():
                return [Reply(frame)]
        raise TypeError(f"a dispatcher does not accept {type(frame).__name__}")

    def announce_shedding(self, now_ms: int) -> list[Send]:
        """Returns the messages by which all sessions are sent the notice that is due; it takes an
        offset."""
        notice = self.shedding.take_notice(now_ms, self._offset, self.oldest)
        progress = self._describe_progress()
        batch, lsn = self._offset, self.applied
        self._offset += 1
        return self._open.add_found(batch, lsn, NO_OBJECTS, RetroParts(shed=notice), progress)

    def take_answer(self, frame: MatchBatch, now: float) -> list[Out]:
        """Handles a worker's answer to a batch, which came at `now`, monotonic seconds."""
        if self.shedding.is_on:
            self.shedding.take_answer(frame)
        if frame.since != self.sessions.now.lsn:
            self._untold.add(frame.worker)
        sends = self._open.take_answer(frame, now, self._describe_progress())
        return [*sends, *self._note_closed()]

    def release_late(self, now: float) -> list[Out]:
        """Sends what workers have found in batches in which others have not answered for a
        while."""
        if now < self._open.answers_due:
            return []
        return [*self._open.release_late(now, self._describe_progress())]

    def report_hot_units(
        self, request: HotUnitsRequest, find_texts: Callable[[], ObjectSample]
    ) -> Send:
        """Answers the controller's request; find_texts: returns recent objects."""
        found = self.hot_units.report(
            request, self.index, self.route, self.workers, find_texts, self._analyzer, self.gridt,
            self._open.waits.take_busy(), self.literals,
        )  # fmt: skip
        found = dataclasses.replace(found, dispatchers=self.dispatchers)
        return Send(CONTROLLER, found)

    def list_lost_terms(self, find_texts: Callable[[], ObjectSample]) -> dict[str, int]:
        """Returns the objects that some worker was not sent, by the terms under which it would have
        been, those with the most; find_texts: returns recent objects. A term that none of them
        has is named by its hash."""
        lost = self.shedding.lost_terms
        if not len(lost.term):
            return {}
        words = find_names(lost.term & TERM_BITS, find_texts(), self._analyzer, self.literals)
        named = zip(words, lost.term.tolist(), lost.objects.tolist(), strict=True)
        return {f"capped_objects_term_{word or hex(term)}": n for word, term, n in named}

    def _describe_progress(self) -> RoutingProgress:
        concern, counted = self._mergers_concern.of, self._open.counted
        return RoutingProgress(self.watermark, self.oldest, concern, counted)

    @property
    def answers_due(self) -> float:
        """When `release_late` has something to send; infinite if nothing waits."""
        return self._open.answers_due

    def take_closed(self) -> list[int]:
        """Returns the batches that were completed since the last call."""
        closed = self._open.closed
        if closed:
            self._open.closed = []
            self.retro.close(closed)
            self.shedding.close(closed)
        return closed

    def lost(self, peer: Address) -> list[Out]:
        """Handles the death of a peer, which may be a false alarm: that does no harm."""
        if peer.role == "worker":
            self._open.note_lost(peer.index)
        return self._send_replay()

    def joined(self, peer: Address) -> list[Out]:
        """Sends a new incarnation of `peer` again what the old one may not have handled."""
        if peer.role == "sequencer":
            return [*map(_send_to_sequencer, self._requests.values()), *self._send_applied()]
        if peer.role == "merger":
            self._noticed = (0, 0)  # it must learn the watermark before it gives sessions away
        return [*self._open.resend_to(peer), *self._split_fatal_batches()]

    def tick(self) -> list[Out]:
        """Does the periodic work, ten times a second: requests what was lost, repeats what was
        not answered, and sends the watermark to all workers and mergers if it has risen, so that
        an idle dispatcher does not keep deleted queries in their memory."""
        out: list[Out] = []
        out += self._stream.tick()
        if self.ready:  # until then nobody waits for memory, but for the dispatcher
            self.gridt.trim()
        self._ticks += 1
        again = self._ticks % REPEAT_TICKS == 0
        if again:
            out += [*map(_send_to_sequencer, self._requests.values()), *self._final_postings]
        unseen = again and self._visible < self.applied  # an acknowledgement may be lost
        if unseen or (self.applied, self.watermark) != self._sent_applied:
            out += self._send_applied()
        out += self._open.tick()
        self.hot_units.tick(len(self._open) > 0)
        reports = self._throughput.tick(self._open.completed, self._open.oldest_age)
        self.stall_report = self._open.describe_oldest() if reports else ""
        self.counters.throughput_stalls = self._throughput.stalls
        self.counters.throughput_stalled = int(self._throughput.stalled)
        table = SessionTable(*self.sessions.now)
        out += [Send(Address("worker", worker), table) for worker in self._untold]
        self._untold.clear()
        return out + self._send_notices()

    def _send_notices(self) -> list[Out]:
        """Informs every worker and merger of what has changed, now and then."""
        in_part = self._open.last_in_part  # mergers keep its pairs until they hear that it is done
        changed = (self.watermark, self.applied) != self._noticed or 0 <= in_part < self.oldest
        # Mergers between which sessions move wait for the watermark.
        pause = NOTICE_TICKS if self.sessions.before is None else 0
        if not changed or self._ticks < self._noticed_at + pause:
            return []
        self._noticed, self._noticed_at = (self.watermark, self.applied), self._ticks
        self._open.last_in_part = in_part if in_part >= self.oldest else -1
        head, lsn = (self.index, self.watermark, self.oldest), self.applied
        counted = self._open.counted
        out: list[Out] = []
        for i in range(self.workers):
            notice = WatermarkNotice(*head, self._workers_concern.of(i), lsn, counted)
            out.append(Send(Address("worker", i), notice))
        for i in range(self.sessions.mergers):
            notice = WatermarkNotice(*head, self._mergers_concern.of(i), lsn, counted)
            out.append(Send(Address("merger", i), notice))
        return out

    # --- objects ------------------------------------------------------------

    def _accept_batch(self, rows: ObjectRows) -> tuple[int, int]:
        """Gives a batch its offset and its LSN."""
        batch, lsn = self._offset, self.applied
        self._offset += len(rows)
        self.counters.batches += 1
        self.counters.objects += len(rows)
        return batch, lsn

    def _route_batch(
        self, batch: int, lsn: int, rows: ObjectRows, part_of: OpenBatch | None = None,
        may_shed: Array | None = None,
    ) -> list[Send]:  # fmt: skip
        rows = self.literals.search(rows, self._analyzer)
        if self.workers == 1 and self._discards.may_skip():
            shares = [share_all(rows)]
        else:
            shedding = NOTHING_SHED
            if may_shed is not None:
                shedding = self.shedding.prepare(rows, may_shed)
            shares, discarded = self.gridt.route(
                rows.lon, rows.lat, rows.term_off, rows.term, self._open.waits, shedding
            )
            if may_shed is not None:
                self.shedding.note_routed(batch, rows, shedding)
            self.counters.discarded += discarded
            self._discards.note(len(rows), discarded)
            if self.hot_units.active:
                self.hot_units.count(self.gridt, rows, shares)
        if not shares:
            return []
        self.counters.routed += sum(len(share.row) for share in shares)
        needs = [min(self._workers_concern.of(share.worker), lsn) for share in shares]
        watermark = min(self.watermark, lsn)
        values = self.literals.list_compared(rows, self._analyzer)
        if len(values.off):
            columns = (values.take(share.row) for share in shares)
            shares = [
                share._replace(value_off=off, value=word)
                for share, (off, word) in zip(shares, columns, strict=True)
            ]
        sends = self._open.add(batch, lsn, rows, shares, needs, watermark, part_of)
        self.counters.in_flight = len(self._open)
        return sends

    def _note_closed(self) -> list[Out]:
        """Counts what was completed, and goes on with the replay if there is room now."""
        if not self._open.closed:
            return []
        for name in ("delayed", "stalled", "collapsed"):
            setattr(self.counters, name, getattr(self._open, name))
        return self._send_replay()

    def _send_replay(self) -> list[Out]:
        """Sends as many batches of the replay as there is room for, and removes deleted queries
        from H2. One that is older than all that are open needs no room: mergers between which
        sessions move may hold the others until it is complete."""
        out: list[Out] = []
        if self.ready:
            while self._replay and (
                self.in_flight < self.max_in_flight or self._open.is_below_all(self._replay[0].lsn)
            ):
                record = self._replay.popleft()
                out += self._route_batch(
                    record.batch, record.lsn, ObjectRows.decode(record.rows.data)
                )
        self.counters.in_flight = len(self._open)
        if self._deleted:
            self._retire_deleted()
        return out

    def _split_fatal_batches(self) -> list[Out]:
        """Sends each batch that killed workers again as two halves, or quarantines it if it is a
        single object. A Reply with the record comes before the messages that follow from it."""
        out: list[Out] = []
        for batch, suspect in self._open.take_fatal():
            rows = suspect.rows
            half = len(rows) // 2
            record = SplitRecord(batch + half) if half else QuarantineRecord(batch)
            out.append(Reply(record))
            self.counters.quarantined += not half
            for start, stop in ((0, half), (half, len(rows))) if half else ():
                part = rows.take(np.arange(start, stop))
                out += self._route_batch(batch + start, suspect.lsn, part, part_of=suspect)
        return out

    # --- updates ------------------------------------------------------------

    def _receive_tip(self, tip: LedgerTip) -> list[Out]:
        """Notes how far the ledger goes and how far it is visible."""
        out: list[Out] = [*self._stream.hear(tip.lsn)]
        if self._ready_at is None:
            self._ready_at = tip.lsn
        self._visible = max(self._visible, tip.visible)
        return out + self._send_replay() + self._release_decisions()

    def _send_applied(self) -> list[Out]:
        self._sent_applied = (self.applied, self.watermark)
        c = self.counters
        totals = (c.objects, c.delayed, c.stalled, c.collapsed)
        return [Send(SEQUENCER, AppliedReport(self.index, *self._sent_applied, *totals))]

    def _receive_updates(self, frame: LedgerBatch) -> list[Out]:
        if frame.owner >= 0:
            self._stream.add(frame.lsn_from, frame.lsn_to, frame)
        elif self._stream.fetched(frame):
            self.gridt.clear()
            self.literals.clear()
            self._deleted.clear()
            if self._strategist is not None:
                self._use_routes(self._strategist.reset())
        out: list[Out] = []
        while (ready := self._stream.next()) is not None:
            out += self._apply_updates(ready)
        # A repeat is acknowledged again: its first acknowledgement may be what got lost.
        out += self._send_applied()
        if frame.owner < 0:
            out += self._stream.ask()
        if self.counted == 1 and not self.index and not self._stream.amid:
            self._visible = self.applied  # there is no other dispatcher
        return out + self._send_replay() + self._release_decisions()

    def _follow_plan_change(self, frame: LedgerBatch) -> list[Out]:
        if self._strategist is None:
            raise TypeError("this dispatcher does not support plan changes")
        migrates = self._strategist.strategy.following is not None
        self._use_routes(self._strategist.take(frame.strategy, frame.lsn_to))
        self._final_postings = []
        # In a state, deletes may be later than the change of plan: then the count would be wrong.
        early = any(last > frame.lsn_to for last, *_ in self._deleted)
        if migrates and self._strategist.strategy.following is None and not early:
            wanted = self.gridt.postings(tags for _, tags, *_ in self._deleted)
            me = ROLES.index("dispatcher"), self.index
            self._final_postings = [_send_to_sequencer(PostingCounts(*me, frame.lsn_to, wanted))]
        return self._final_postings

    def _use_routes(self, routes: CompiledRoutes) -> None:
        """Routes objects and updates by `routes` from now on."""
        self.gridt.follow(routes)
        self._open.route = routes.route
        self._open.waits.resize(routes.workers)
        self.shedding.resize(routes.workers)
        self.workers = routes.workers

    def _apply_updates(self, frame: LedgerBatch) -> list[Out]:
        out = self._follow_plan_change(frame) if len(frame.strategy) else []
        if len(frame.sessions):
            self._open.follow_sessions(SessionMaps.of_record(frame.sessions))
            self.retro.follow(self.producers, self.index)
            while self._replay and self._open.is_known_complete(self._replay[0].lsn):
                self._replay.popleft()
        rows = QueryRows.decode(frame.rows.data)
        if frame.total:
            self._state_rows = len(rows) + (self._state_rows if frame.lsn_from > 1 else 0)
            self.gridt.expect(max(self._state_rows, 1) / frame.total)
        whole = frame.lsn_from == self._stream.before + 1
        if not whole:  # the batch repeats updates that are already applied
            rows = rows.take(np.flatnonzero(rows.lsn > self._stream.before))
        tags = self.gridt.expand(rows)
        self.hot_units.note_updates(len(tags.cell))
        deleted = rows.kind == _DELETE
        dead = int(np.count_nonzero(deleted))
        if not dead:
            self._count_inserts(rows, tags)
        elif dead == len(rows):
            self._note_deletes(rows, tags)
        else:
            self._count_inserts(rows.take(np.flatnonzero(~deleted)), tags.of(~deleted))
            self._note_deletes(rows.take(np.flatnonzero(deleted)), tags.of(deleted))
        self.counters.deletes += dead
        self.counters.inserts += len(rows) - dead
        self._retire_deleted()
        out += self._forward_updates(frame, rows, tags, frame.owner == self.index and whole)
        return out

    def _count_inserts(self, rows: QueryRows, tags: QueryTags) -> None:
        self.gridt.insert(tags, rows.handle)
        if len(rows.prog):
            self.literals.add(WatchedLiterals.of(rows))
            self.retro.note(rows, tags)

    def _note_deletes(self, rows: QueryRows, tags: QueryTags) -> None:
        last, watched = int(rows.lsn.max()), WatchedLiterals.of(rows)
        self._deleted.append((last, tags, rows.handle, watched))

    def _retire_deleted(self) -> None:
        """Removes from H2 the deleted queries that no batch, present or future, can match."""
        watermark = self.watermark
        while self._deleted and self._deleted[0][0] <= watermark:
            _, tags, handles, watched = self._deleted.popleft()
            self.gridt.retire(tags, handles)
            self.literals.retire(watched)
        self.counters.units = len(self.gridt)
        self.counters.literals = len(self.literals)

    def _forward_updates(
        self, frame: LedgerBatch, rows: QueryRows, tags: QueryTags, mine: bool
    ) -> list[Out]:
        """Notes whom a ledger batch concerns. If this dispatcher owns it, forwards it to them: to
        workers their rows, to mergers the names of the queries of their sessions."""
        workers, mergers = self._workers_concern, self._mergers_concern
        n = len(rows)
        table, running = self.sessions.now, self.sessions.mergers
        of_merger = None if running == 1 else table.mergers_of(rows.session).astype(np.uint16)
        is_plan_change = len(frame.strategy) > 0
        out: list[Out] = []
        if mine:
            to, watermark, counted = frame.lsn_to, self.watermark, self._open.counted
            none, blank = np.zeros(n + 1, np.int64), np.zeros(0, np.uint8)
            bare = rows.replace(id_off=none, id=blank, source_off=none, source=blank)
            for i, share in enumerate(self.gridt.split(tags)):
                if len(share.row) or is_plan_change:
                    held = bare if len(share.row) == n else bare.take(share.row)
                    update = WorkerUpdates(
                        workers.of(i) + 1, to, self.index, watermark,
                        _encode_rows(held), share.off, share.cell, share.term, frame.strategy,
                        counted,
                    )  # fmt: skip
                    out.append(Send(Address("worker", i), update))
            concerned = (
                [0] if of_merger is None else np.flatnonzero(np.bincount(of_merger)).tolist()
            )
            for i in range(running) if len(frame.sessions) else concerned:
                own = rows if of_merger is None else rows.take(np.flatnonzero(of_merger == i))
                named = MergerQueries(
                    mergers.of(i) + 1, to, self.index, watermark,
                    own.kind, own.lsn, own.handle, own.session, own.id_off, own.id, frame.sessions,
                    counted,
                )  # fmt: skip
                out.append(Send(Address("merger", i), named))
        if frame.state:
            workers.note_all(frame.lsn_to)
            mergers.note_all(frame.lsn_to)
        else:
            holders = self.gridt.list_holders(tags)
            workers.note(holders.off, holders.worker, rows.lsn)
            if of_merger is None:
                mergers.note_one(0, int(rows.lsn.max(initial=0)))
            else:
                mergers.note(np.arange(n + 1), of_merger, rows.lsn)
        if is_plan_change:
            workers.note_all(frame.lsn_to)
        if len(frame.sessions):
            mergers.note_all(frame.lsn_to)
        return out

    def _release_decisions(self) -> list[Out]:
        """Returns the decisions on updates that every dispatcher has applied."""
        out: list[Out] = []
        while self._decided and self._decided[0][0] <= self._visible:
            out.append(Reply(heapq.heappop(self._decided)[2]))
        return out


_DELETE = np.uint8(UpdateKind.DELETE)  # a member of an enumeration compares slowly with a column


def _send_to_sequencer(frame: Frame) -> Send:
    return Send(SEQUENCER, frame)


def _encode_rows(rows: QueryRows) -> U8:
    return np.frombuffer(rows.encode(), np.uint8)
