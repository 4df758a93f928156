"""The dispatcher's edge: threads on one side, the router machine on the other.

gRPC threads call its methods, frames of peers arrive, and both take one lock: the machine handles
one event at a time, and its messages leave in that order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import numpy as np

from ps2stream.dispatcher.estimates import priced
from ps2stream.dispatcher.explanations import explain_meeting
from ps2stream.dispatcher.gateway import (
    AcceptedBatch,
    DeliverStream,
    MatchExplanation,
    QueryEstimate,
    Sink,
)
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.hot_cells import report
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.open_requests import CONTROLLER, SEQUENCER, OpenRequests
from ps2stream.dispatcher.part_weights import weigh_parts
from ps2stream.dispatcher.ports import NewIndex
from ps2stream.dispatcher.publications import PublicationPipeline, PublishingMachine
from ps2stream.dispatcher.reservoir import ObjectReservoir, ObjectSample
from ps2stream.dispatcher.streams import SessionStream, SessionStreams
from ps2stream.dispatcher.updates import UpdateQueue
from ps2stream.dispatcher.watchers import StreamWatcher, StreamWatchers
from ps2stream.errors import Unavailable
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.observability.meter import StageMeter
from ps2stream.observability.process import counters_of
from ps2stream.protocol.addresses import ROLES, Address, Reply, Send
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.log_records import QuarantineRecord, SplitRecord
from ps2stream.protocol.messages.loads import AdjustReply, AdjustRequest, SampleRequest
from ps2stream.protocol.messages.objects import BatchesCompleted, BatchesPartial
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply, PlanChangeRequest
from ps2stream.protocol.messages.sessions import (
    SessionGrant,
    SessionRequest,
    StreamAttached,
    StreamDelivery,
)
from ps2stream.protocol.messages.updates import (
    LookupReply,
    LookupRequest,
    UpdateDecision,
    UpdateRequest,
)
from ps2stream.protocol.messages.watch import SeenMatches, WatchSample
from ps2stream.protocol.rows import ObjectRows, QueryRows, UpdateKind
from ps2stream.protocol.tokens import TokensReply, TokensRequest
from ps2stream.routing.costs import Costs, PartWeights
from ps2stream.space.grid import Grid

Post = Callable[[list[Send]], None]
REPEAT_TICKS = 20
ANSWERS = (
    UpdateDecision, SessionGrant, LookupReply, TokensReply, PlanChangeReply, AdjustReply,
)  # fmt: skip
DISPATCHER = ROLES.index("dispatcher")


class RouterPort(PublishingMachine, Protocol):
    """The port to `ps2stream.dispatcher.machine.RouterMachine`, as the edge needs it."""

    mergers: int
    gridt: Gridt
    stall_report: str

    @property
    def plan_version(self) -> int: ...
    @property
    def route(self) -> int: ...
    def owned_by(self, handle: int) -> int: ...
    @property
    def undecided(self) -> int: ...
    def update(self, request: UpdateRequest) -> list[Send | Reply]: ...
    def on(self, frame: Frame) -> list[Send | Reply]: ...
    def joined(self, peer: Address) -> list[Send | Reply]: ...
    def tick(self) -> list[Send | Reply]: ...


class DispatcherEdge:
    """Implements `ps2stream.dispatcher.gateway.DispatcherGateway` over one router machine.

    `post` hands messages to their machines, in order and without blocking; it is
    called under the edge's lock. After `wake` a thread of its own must call `sync`. Once
    `lapsed` returns that another incarnation may have come, no caller gets an answer.
    """

    def __init__(
        self,
        machine: RouterPort,
        analyzer: Analyzer,
        frequencies: Frequencies,
        post: Post,
        clock_ms: Callable[[], int],
        log: ObjectLog,
        new_index: NewIndex,
        lock: threading.RLock | None = None,
        reservoir: ObjectReservoir | None = None,
        wake: Callable[[], None] = lambda: None,
        lapsed: Callable[[], bool] = lambda: False,
        incarnation: int = 0,
        meter: StageMeter | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.reservoir = ObjectReservoir(0) if reservoir is None else reservoir
        self.machine = machine
        self.analyzer = analyzer
        self.frequencies = frequencies
        self.clock_ms = clock_ms
        self.incarnation = incarnation
        self.costs = costs or Costs()
        self.lock = lock or threading.RLock()
        self._post = post
        self._log = log
        self._new_index = new_index
        self._lapsed = lapsed
        self.meter = StageMeter() if meter is None else meter
        self._watchers = StreamWatchers(machine.index, machine.mergers, self.send, time.monotonic)
        self._publications = PublicationPipeline(
            machine, log, self.reservoir, self._watchers, self.lock, self._settle_future, wake,
            self.meter,
        )  # fmt: skip
        self._questions = OpenRequests(self.send)
        self._updates = UpdateQueue(self._questions, self.lock)
        self._ticks = 0
        self._noted: dict[str, Any] = {}  # figures of other parts, which `status` includes
        self.endpoints: Sequence[str] = ()  # of all dispatchers, HOST:PORT
        self.streams = SessionStreams(self, machine.index, machine.mergers, self.meter)

    # --- from the service -------------------------------------------------

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        """Sends inserts and deletes to the sequencer; the future resolves once every dispatcher
        has applied them."""
        name, request = strings_to_column(names), strings_to_column(request_ids)
        encoded = np.frombuffer(rows.encode(), np.uint8)
        update = UpdateRequest(self.machine.index, 0, 0, 0, encoded, *name, *request)
        with self.lock:
            inserts = bool((rows.kind == UpdateKind.INSERT).any())
            future = self._updates.add(update, len(rows), inserts)
            self._send_updates()
        return cast("Future[UpdateDecision]", future)

    def publish(
        self, rows: ObjectRows, wait_s: float = 0.0, durable: bool = True
    ) -> Future[AcceptedBatch]:
        """Publishes a batch, as Gateway.publish says."""
        return self._publications.add(rows, wait_s, durable, self._route_publications)

    def lookup(
        self, id: str | None, session: int, after: int, limit: int, tenant: bytes = b""
    ) -> Future[LookupReply]:
        """Looks up live queries: the one with the name `id`, or a page in the order of handles."""
        raw = np.frombuffer((id or "").encode("utf-8", "surrogatepass"), np.uint8)
        of = np.frombuffer(tenant, np.uint8)
        rest = (session, after, limit, raw, of)
        with self.lock:
            found = self._questions.ask(lambda seq: LookupRequest(self.machine.index, seq, *rest))
        return cast("Future[LookupReply]", found)

    def session(self, name: str, make: bool = False) -> Future[SessionGrant]:
        """Requests the number of the session of this name, which is made if it is new and `make`;
        else 0."""
        return self._request_session(name, make)

    def tokens(self, add: bytes = b"", drop: str = "") -> Future[TokensReply]:
        """Requests the tokens, after a change; see TokensRequest."""
        change = [np.frombuffer(part, np.uint8) for part in (add, drop.encode())]
        with self.lock:
            found = self._questions.ask(lambda seq: TokensRequest(self.machine.index, seq, *change))
        return cast("Future[TokensReply]", found)

    def strategy(
        self, plan: bytes = b"", ask: PlanAction = PlanAction.TELL
    ) -> Future[PlanChangeReply]:
        """Requests the strategy and the migrations that ended, after the change that `ask` names
        (see PlanChangeRequest)."""
        raw = np.frombuffer(plan, np.uint8)
        with self.lock:
            found = self._questions.ask(
                lambda seq: PlanChangeRequest(DISPATCHER, self.machine.index, seq, ask, raw)
            )
        return cast("Future[PlanChangeReply]", found)

    def adjustment(self, algorithm: str = "") -> Future[AdjustReply]:
        """Requests the loads and, if an algorithm is named, what it would migrate now."""
        name = np.frombuffer(algorithm.encode(), np.uint8)
        with self.lock:
            found = self._questions.ask(
                lambda seq: AdjustRequest(self.machine.index, seq, name), to=CONTROLLER
            )
        return cast("Future[AdjustReply]", found)

    def attach(
        self,
        session: str,
        fields: int,
        credit_batches: int,
        credit_bytes: int,
        sink: Sink,
        ack: int = 0,
        of: int = 0,
    ) -> Future[DeliverStream]:
        """Opens the session's Deliver stream here, as Gateway.attach says."""
        opening: Future[DeliverStream] = Future()
        window = (credit_batches, credit_bytes)
        stream = SessionStream(self.streams, session, sink, fields, *window, ack, of, opening)
        self._request_epoch(stream, make=True)
        return opening

    def sample(self) -> ObjectSample:
        """Returns a sample of the objects that were lately accepted here."""
        with self.lock:
            held = self.reservoir.held()
        return held.joined()

    def watch(self, tenant: str, tell: Callable[[WatchSample], None]) -> Callable[[], None]:
        """Calls `tell` with some objects and matches, as Gateway.watch says."""
        watcher = StreamWatcher(tenant, tell)
        with self.lock:
            self._watchers.add(watcher)

        def end() -> None:
            with self.lock:
                self._watchers.drop(watcher)

        return end

    def tell_congestion(self, tell: Callable[[bool], None]) -> None:
        """Calls `tell` now and at every change with whether routed batches wait. `tell` must not
        block."""
        with self.lock:
            self._publications.tell_congestion(tell)

    @property
    def grid(self) -> Grid:
        """The grid of every plan of this service."""
        return self.machine.gridt.grid

    def weights(self) -> PartWeights:
        """Returns the recent objects that each part would be sent now; if there are none, its
        queries."""
        with self.lock:
            return weigh_parts(self.machine.gridt, self.reservoir.sample())

    def meeting(self, query: QueryRows, thing: ObjectRows) -> MatchExplanation:
        """Explains how a live query and an object would meet if the object were accepted now."""
        return explain_meeting(self.machine, self.lock, self._new_index, query, thing)

    def price(self, query: QueryRows) -> QueryEstimate | None:
        """Estimates the matches and costs of a query; None if no object was accepted lately."""
        now_ms = self.clock_ms()
        with self.lock:
            recent = self.reservoir.recent(now_ms)
        if not recent.parts:
            return None
        of = (self.machine.gridt, self.lock, self._new_index, self.costs)
        return priced(*of, query, recent.joined(), now_ms)

    def note(self, parts: Mapping[str, Any]) -> None:
        """Notes figures by name, which `status` includes until they are noted again."""
        with self.lock:
            self._noted |= parts

    def status(self) -> dict[str, Any]:
        """Returns the figures of this dispatcher and those that were noted."""
        with self.lock:
            return {
                "dispatcher": self.machine.index,
                "plan_version": self.machine.plan_version,
                "in_flight": self.machine.in_flight,
                "watchers": len(self._watchers),
                "applied": self.machine.applied,
                "intake": len(self._publications.intake),
                "undecided": self.machine.undecided,
                **self.streams.counters,
                "log_bytes": self._log.log.bytes,
                **counters_of(self.machine),
                "stages": self.meter.stages,
                "endpoints": self.endpoints,
                **self._noted,
            }

    # --- from peers and timers ---------------------------------------------

    def on(self, frame: Frame) -> None:
        """Handles a message from another machine."""
        with self.lock:
            if isinstance(frame, SampleRequest):
                self._report_cells(frame)
                return
            self._carry_out(self.machine.on(frame))
            if isinstance(frame, BatchesCompleted):
                self._watchers.completed(frame)
            if isinstance(frame, UpdateDecision):
                self._send_updates()
            elif isinstance(frame, BatchesCompleted | BatchesPartial):
                if isinstance(frame, BatchesCompleted):
                    self._publications.completed(frame.batch.tolist())
                self._route_publications()

    def joined(self, peer: Address) -> None:
        """Handles a new incarnation of `peer`."""
        with self.lock:
            self._carry_out(self.machine.joined(peer))
            self.streams.joined(peer)
            if peer in (SEQUENCER, CONTROLLER):
                self._questions.repeat()

    def tick(self) -> None:
        """Does the periodic work: gathered credits, watermarks of an idle dispatcher, repeats."""
        with self.lock:
            self.streams.tick()
            self._watchers.tick()
            self._carry_out(self.machine.tick())
            self._publications.report_stall(self.machine.stall_report)
            self._route_publications()
            self._ticks += 1
            if self._ticks % REPEAT_TICKS == 0:
                self._questions.repeat()
                self._publications.note_progress()

    def sync(self) -> None:
        """Makes durable what was accepted, and answers. Raises Unavailable, for good: this
        incarnation must end."""
        self._publications.sync()

    def send(self, sends: list[Send]) -> None:
        """Hands messages over."""
        if sends:
            self._post(sends)

    def rename(self, stream: SessionStream) -> None:
        """Requests a new epoch for a stream, then attaches it."""
        self._request_epoch(stream, make=False)

    def _request_epoch(self, stream: SessionStream, make: bool) -> None:
        def granted(grant: Future[SessionGrant]) -> None:
            with self.lock:
                if (problem := grant.exception()) is not None:
                    self.streams.fail(stream, problem)
                    return
                found = grant.result()
                self.streams.open(stream, found.session, found.stream)

        # A stream that was open must get its epoch.
        self._request_session(stream.name, make, bounded=make).add_done_callback(granted)

    def _request_session(self, name: str, make: bool, bounded: bool = True) -> Future[SessionGrant]:
        rest = (int(make), np.frombuffer(name.encode("utf-8", "surrogatepass"), np.uint8))
        with self.lock:
            found = self._questions.ask(
                lambda seq: SessionRequest(self.machine.index, seq, *rest), bounded
            )
        return cast("Future[SessionGrant]", found)

    def _route_publications(self) -> None:
        self._publications.route(self._carry_out, self.clock_ms())

    def _send_updates(self) -> None:
        """Sends updates to the sequencer, unless it is busy."""
        if not self.machine.undecided:
            updates = self._updates.take()
            self._carry_out([out for update in updates for out in self.machine.update(update)])

    def _carry_out(self, out: Sequence[Send | Reply]) -> None:
        sends: list[Send] = []
        for o in out:
            if isinstance(o, Send):
                sends.append(o)
            elif isinstance(o.frame, SplitRecord | QuarantineRecord):
                self._log.note(o.frame)  # before the messages that follow from it
            else:
                self._handle_reply(o.frame)
        self.send(sends)

    def _report_cells(self, ask: SampleRequest) -> None:
        machine = self.machine
        found = report(ask, machine.index, machine.route, self.reservoir, machine.gridt)
        self.send([Send(CONTROLLER, found)])

    def _handle_reply(self, frame: Frame) -> None:
        if isinstance(frame, StreamDelivery | StreamAttached):
            if not self._lapsed():
                self.streams.on(frame)
        elif isinstance(frame, SeenMatches):
            self._watchers.on(frame)
        elif isinstance(frame, ANSWERS):
            future = self._questions.answered(frame.seq)
            if future is not None:
                self._settle_future(future, frame)

    def _settle_future(self, future: Future[Any], value: object) -> None:
        if self._lapsed():
            future.set_exception(Unavailable("this dispatcher has been replaced; try again"))
        else:
            future.set_result(value)
