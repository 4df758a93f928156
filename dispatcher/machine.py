"""The machine of a dispatcher: clients' requests, messages of peers, and time are its events
(events.py), and what is to be done its instructions (instructions.py).

It has no thread, lock, clock or future. It appends to its object log itself, as the merger does to
its match log (docs/decisions/0013).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ps2stream.dispatcher.departure import DispatcherDeparture
from ps2stream.dispatcher.events import (
    AnswersDue,
    CongestionWatched,
    CreditGranted,
    DeliveryDropped,
    EstimateRequested,
    Event,
    ExplanationRequested,
    InboxReopened,
    LogFailed,
    LogSynced,
    PeerJoined,
    PeerLost,
    PublishRequested,
    PublishWithdrawn,
    RequestForwarded,
    SampleRequested,
    StatusRequested,
    StopBegun,
    StreamClosed,
    StreamRequested,
    StreamResumed,
    TickPassed,
    UpdateRequested,
    WatchEnded,
    WatchRequested,
    WeightsRequested,
    WithdrawRequested,
)
from ps2stream.dispatcher.explanations import expand_query
from ps2stream.dispatcher.hot_cells import BATCHES, LOOKED_AT, report
from ps2stream.dispatcher.instructions import (
    AnswerCall,
    EndStream,
    Instruction,
    RefuseCall,
    SyncLog,
)
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.open_requests import OpenRequests
from ps2stream.dispatcher.part_weights import weigh_parts
from ps2stream.dispatcher.ports import RouterPort
from ps2stream.dispatcher.publications import PublicationPipeline
from ps2stream.dispatcher.reservoir import ObjectReservoir, ObjectSample
from ps2stream.dispatcher.retro import RetroMatching, RetroMeans
from ps2stream.dispatcher.streams import SessionStream, SessionStreams
from ps2stream.dispatcher.updates import UpdateQueue
from ps2stream.dispatcher.watchers import StreamWatcher, StreamWatchers
from ps2stream.dispatcher.withdrawals import ObjectWithdrawals
from ps2stream.errors import NothingDone, Ps2StreamError, Unavailable
from ps2stream.observability.meter import StageMeter
from ps2stream.observability.process import counters_of, log_figures
from ps2stream.protocol.addresses import CONTROLLER, SEQUENCER, Reply, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.log_records import QuarantineRecord, SplitRecord
from ps2stream.protocol.messages.handover import DispatchersReply, MergersReply
from ps2stream.protocol.messages.loads import AdjustReply, HotUnitsRequest, SampleRequest
from ps2stream.protocol.messages.objects import MatchBatch
from ps2stream.protocol.messages.plan import PlanChangeReply
from ps2stream.protocol.messages.publications import (
    PublishForward,
    PublishReply,
    WindowsReply,
    WindowsRequest,
)
from ps2stream.protocol.messages.sessions import SessionGrant, StreamAttached, StreamDelivery
from ps2stream.protocol.messages.updates import LookupReply, UpdateDecision
from ps2stream.protocol.messages.watch import SeenMatches
from ps2stream.protocol.messages.withdrawals import WithdrawForward, WithdrawReply
from ps2stream.protocol.ticks import REPEAT_TICKS, TICKS_PER_S
from ps2stream.protocol.tokens import TokensReply

ANSWERS = (
    UpdateDecision, SessionGrant, LookupReply, TokensReply, PlanChangeReply, AdjustReply,
    MergersReply, DispatchersReply,
)  # fmt: skip
PATIENCE = 8
"""The turns for which new queries with retro wait while there is something to send. Under a
constant load there always is, and what waits keeps deleted queries in memory everywhere."""


class DispatcherMachine:
    """The machine of one dispatcher, around its router machine. `busy` says whether `handle`
    without events does more: it routes one batch at a time, so that the messages of one leave
    before the next is routed. `answers_due` is the monotonic time at which it does more, too."""

    def __init__(
        self,
        router: RouterPort,
        log: ObjectLog,
        reservoir: ObjectReservoir,
        meter: StageMeter,
        retro: RetroMeans | None = None,
    ) -> None:
        self.router = router
        self.reservoir = reservoir
        self.meter = meter
        self._log = log
        self._now = 0.0
        self._now_ms = 0
        self._ticks = 0
        self._passed_over = 0  # turns since new queries were last matched against valid objects
        self.busy = False
        self.answers_due = math.inf
        self._out: list[Instruction] = []
        out = self._out
        self._requests = OpenRequests(out)
        self._updates = UpdateQueue(self._requests)
        self._watchers = StreamWatchers(router.index, router.sessions.mergers, out)
        self.streams = SessionStreams(router.index, router.sessions, self._requests, meter, out)
        self._retro = None if retro is None else RetroMatching(router, log, retro, out)
        self.publications = PublicationPipeline(
            router, log, reservoir, self._watchers, meter, out, self._retro
        )
        self._withdrawals = ObjectWithdrawals(router, log, self._retro, self._watchers, out)
        moves = self.publications.identified.moves
        self._departure = DispatcherDeparture(
            router, log, lambda: self._is_idle, self.streams.end_all, out
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            PublishRequested: self._unless_leaving(self.publications.add),
            PublishWithdrawn: self.publications.withdraw,
            WithdrawRequested: self._unless_leaving(self._withdrawals.add),
            WithdrawForward: self._withdrawals.receive,
            WithdrawReply: self._withdrawals.settle,
            UpdateRequested: self._unless_leaving(self._add_update),
            RequestForwarded: self._forward_request,
            StreamRequested: self._unless_leaving(self.streams.add),
            CreditGranted: lambda event: self.streams.credit(event, self._now),
            DeliveryDropped: lambda event: self.streams.pause(event.stream),
            StreamResumed: lambda event: self.streams.resume(event.stream),
            InboxReopened: self.streams.restart,
            StreamClosed: lambda event: self.streams.close(event.stream),
            WatchRequested: self._add_watcher,
            WatchEnded: lambda event: self._watchers.drop(event.watcher),
            CongestionWatched: lambda event: self.publications.add_listener(event.listener),
            SampleRequested: self._answer_inquiry,
            WeightsRequested: self._answer_inquiry,
            EstimateRequested: self._answer_inquiry,
            ExplanationRequested: self._answer_inquiry,
            StatusRequested: self._answer_inquiry,
            PeerJoined: self._handle_join,
            PeerLost: lambda event: self._take_out(self.router.lost(event.peer)),
            AnswersDue: lambda _: None,  # what is due is released at the end of every turn
            TickPassed: self._handle_tick,
            StopBegun: lambda _: self.publications.note_progress(),
            LogSynced: self._note_synced,
            LogFailed: self._note_failed,
            SampleRequest: self._report_cells,
            HotUnitsRequest: self._report_hot_units,
            MatchBatch: self._take_answer,
            PublishForward: lambda frame: self.publications.identified.receive(frame, self._now),
            PublishReply: self.publications.identified.settle,
            WindowsRequest: moves.answer,
            WindowsReply: lambda frame: moves.receive(frame, self._now),
        }

    def handle(self, events: Iterable[Event], now: float, now_ms: int) -> list[Instruction]:
        """Handles events that have come by `now`, monotonic seconds, and `now_ms`, Unix time."""
        self._now, self._now_ms = now, now_ms
        for event in events:
            self._handlers.get(type(event), self._handle_frame)(event)
        self._take_out(self.router.release_late(now))
        self.answers_due = self.router.answers_due
        self._note_closed()
        if not self.router.undecided:  # otherwise updates gather while the sequencer is busy
            for update in self._updates.take():
                self._take_out(self.router.update(update))
        publications, retro, self.busy = self.publications, self._retro, False
        if not publications.has_work:
            publications.look_for_congestion()
        elif self._out:
            self.busy = True  # what the events have caused leaves before a batch is routed
        else:
            self.busy = publications.route_batch(now, now_ms) and publications.has_work
        if retro is not None and retro.has_work:
            self._passed_over = self._passed_over + 1 if self._out else 0
            if not self._passed_over % PATIENCE:
                retro.work()
            self.busy |= retro.has_work
        out = self._out[:]
        self._out.clear()
        return out

    @property
    def _is_idle(self) -> bool:
        """Returns whether nothing is under way for which others may need this dispatcher."""
        router, retro = self.router, self._retro
        if router.in_flight or router.undecided or router.oldest != router.offset:
            return False
        if len(self._updates) or router.shedding.has_notice or not self._withdrawals.is_idle:
            return False
        return self.publications.is_idle and (retro is None or retro.is_idle)

    # --- from clients -------------------------------------------------------

    def _unless_leaving(self, handle: Callable[[Any], None]) -> Callable[[Any], None]:
        """Returns a handler of a client's call, which is refused if this dispatcher leaves."""

        def checked(event: Any) -> None:
            if (problem := self._departure.find_problem()) is None:
                handle(event)
            elif isinstance(event, StreamRequested):
                self._out.append(EndStream(event.stream, problem))
            else:
                self._out.append(RefuseCall(event.call, NothingDone(str(problem))))

        return checked

    def _add_update(self, event: UpdateRequested) -> None:
        try:
            self._updates.add(event)
        except Ps2StreamError as error:
            self._out.append(RefuseCall(event.call, error))

    def _forward_request(self, event: RequestForwarded) -> None:
        try:
            self._requests.ask(event.call, event.request, event.to)
        except Ps2StreamError as error:
            self._out.append(RefuseCall(event.call, error))

    def _add_watcher(self, event: WatchRequested) -> None:
        try:
            self._watchers.add(StreamWatcher(event.tenant, event.watcher))
        except Ps2StreamError as error:
            self._out.append(RefuseCall(event.call, error))
        else:
            self._out.append(AnswerCall(event.call, None))

    def _answer_inquiry(self, event: Any) -> None:
        """Answers a request that changes nothing, so that an error in it concerns nobody else."""
        try:
            answer = self._find_answer(event)
        except Exception as error:  # noqa: BLE001
            self._out.append(RefuseCall(event.call, error))
        else:
            self._out.append(AnswerCall(event.call, answer))

    def _find_answer(self, event: object) -> object:
        match event:
            case EstimateRequested(_, query):
                recent = self.reservoir.recent(self._now_ms)
                return expand_query(self.router, query), recent, self._now_ms
            case ExplanationRequested(_, query):
                return expand_query(self.router, query)
            case SampleRequested():
                return self.reservoir.held()
            case WeightsRequested():
                return weigh_parts(self.router.gridt, self.reservoir.sample())
            case _:
                return self._list_figures()

    def _list_figures(self) -> dict[str, Any]:
        router = self.router
        return {
            "dispatcher": router.index,
            "plan_version": router.plan_version,
            "in_flight": router.in_flight,
            "watchers": len(self._watchers),
            "applied": router.applied,
            "intake": len(self.publications.intake),
            "undecided": router.undecided,
            **self.streams.counters,
            **log_figures(self._log.log.problem, self._log.log.bytes),
            **({} if self._retro is None else self._retro.counters),
            **counters_of(router),
            **router.shedding.counters,
            **self.router.list_lost_terms(self._find_texts),
            "stages": self.meter.stages,
        }

    def _find_texts(self) -> ObjectSample:
        """Returns recent objects, in which words are found of which only hashes were counted."""
        return self.reservoir.newest(LOOKED_AT, BATCHES)

    # --- from peers and timers ----------------------------------------------

    def _handle_frame(self, frame: Frame) -> None:
        self._take_out(self.router.on(frame))
        self.publications.identified.moves.follow()
        self._departure.follow()
        if (maps := self.router.sessions) is not self.streams.maps:
            self.streams.follow(maps)
            self._watchers.mergers = maps.mergers

    def _take_answer(self, frame: MatchBatch) -> None:
        self._take_out(self.router.take_answer(frame, self._now))

    def _note_synced(self, event: LogSynced) -> None:
        self.publications.synced(event, self._now)
        self.publications.identified.moves.synced(event.end)
        self._withdrawals.synced(event.end)
        self._departure.synced(event.end)
        if self._retro is not None:
            self._retro.synced(event.end)

    def _note_failed(self, event: LogFailed) -> None:
        self.publications.failed(event)
        self._withdrawals.failed(event)

    def _note_closed(self) -> None:
        """Informs those who wait for batches that were completed."""
        if closed := self.router.take_closed():
            self._watchers.completed(closed, self._now)
            self.publications.completed(closed, self._now)

    def _report_cells(self, request: SampleRequest) -> None:
        router = self.router
        at = self.reservoir, router.gridt, router.literals
        found = report(request, router.index, router.route, *at)
        found = dataclasses.replace(found, dispatchers=router.dispatchers)
        self._out.append(Send(CONTROLLER, found))

    def _report_hot_units(self, request: HotUnitsRequest) -> None:
        self._out.append(self.router.report_hot_units(request, self._find_texts))

    def _handle_join(self, event: PeerJoined) -> None:
        self._take_out(self.router.joined(event.peer))
        self.streams.joined(event.peer)
        self.publications.identified.joined(event.peer)
        if event.peer in (SEQUENCER, CONTROLLER):
            self._requests.repeat()

    def _handle_tick(self, _: TickPassed) -> None:
        """Does the periodic work: gathered credits, watermarks of an idle dispatcher, repeats."""
        self.streams.tick()
        self.publications.identified.tick()
        self._withdrawals.tick()
        self._watchers.tick()
        self._take_out(self.router.tick())
        self._departure.tick()
        self.publications.report_stall(self.router.stall_report)
        self._ticks += 1
        if self._ticks % TICKS_PER_S == 0 and self.router.shedding.is_on:
            self._step_shedding()
        if self._ticks % REPEAT_TICKS == 0:
            if self._retro is not None:
                self._retro.tick(self._now_ms)
            self._requests.repeat()
            self.publications.note_progress()

    def _step_shedding(self) -> None:
        """Sets the shedding level, and informs the sessions of what was shed."""
        shedding = self.router.shedding
        shedding.step(self.publications.fullness, self._now_ms)
        if not (shedding.has_notice and self.router.ready):
            return
        try:
            self._log.reserve(self.router.offset + 1)
        except Unavailable:
            self._out.append(SyncLog())  # a full disk; the notice is for a later second
        else:
            self._out += self.router.announce_shedding(self._now_ms)

    def _take_out(self, out: Sequence[Send | Reply]) -> None:
        """Passes on what the router machine returned."""
        for each in out:
            if isinstance(each, Send):
                self._out.append(each)
            else:
                self._handle_reply(each.frame)

    def _handle_reply(self, frame: Frame) -> None:
        match frame:
            case SplitRecord() | QuarantineRecord():
                self._log.note(frame)  # before the messages that follow from it
                if isinstance(frame, QuarantineRecord) and self._retro is not None:
                    self._retro.objects.drop(frame.offset)
            case StreamDelivery() | StreamAttached():
                self.streams.on(frame, self._now)
            case SeenMatches():
                self._watchers.on(frame)
            case _ if isinstance(frame, ANSWERS):
                self._handle_answer(frame)

    def _handle_answer(self, frame: Any) -> None:
        caller = self._requests.take(frame.seq)
        if isinstance(frame, UpdateDecision):
            self._updates.answered(frame.seq)
        if isinstance(caller, SessionStream):
            self.streams.granted(caller, frame)
        elif caller is not None:
            self._out.append(AnswerCall(caller, frame))
