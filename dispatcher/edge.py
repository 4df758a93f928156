"""The dispatcher's edge: threads on one side, the router machine on the other.

gRPC threads call in, peers' frames come in, and both meet at one lock: the machine
sees one event at a time, and what it sends leaves in that order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import numpy as np

from ps2stream.dispatcher.explaining import meeting
from ps2stream.dispatcher.gateway import Meeting, Price, Publication, Sink
from ps2stream.dispatcher.gateway import Stream as StreamPort
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.hot_cells import report
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.ports import NewIndex
from ps2stream.dispatcher.pricing import priced
from ps2stream.dispatcher.publications import Machine, Publications
from ps2stream.dispatcher.questions import CONTROLLER, SEQUENCER, Questions
from ps2stream.dispatcher.reservoir import ObjectSample, Reservoir
from ps2stream.dispatcher.streams import Stream, Streams
from ps2stream.dispatcher.updates import Updates
from ps2stream.dispatcher.watchers import Watcher, Watchers
from ps2stream.dispatcher.weighing import weighed
from ps2stream.errors import Unavailable
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.observability.meter import Meter
from ps2stream.observability.process import counters_of
from ps2stream.protocol.addresses import ROLES, Address, Reply, Send
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.log_records import Quarantined, Split
from ps2stream.protocol.messages.loads import AdjustReply, AdjustRequest, SampleRequest
from ps2stream.protocol.messages.objects import Completed, Partial
from ps2stream.protocol.messages.plan import Ask, StrategyReply, StrategyRequest
from ps2stream.protocol.messages.sessions import Attached, Delivery, SessionGrant, SessionRequest
from ps2stream.protocol.messages.updates import (
    LookupReply,
    LookupRequest,
    UpdateDecision,
    UpdateRequest,
)
from ps2stream.protocol.messages.watch import Glimpse, Seen
from ps2stream.protocol.rows import Kind, ObjectRows, QueryRows
from ps2stream.protocol.tokens import TokensReply, TokensRequest
from ps2stream.routing.costs import Costs, Weights
from ps2stream.space.grid import Grid

Post = Callable[[list[Send]], None]
REPEAT_TICKS = 20
ANSWERS = (
    UpdateDecision, SessionGrant, LookupReply, TokensReply, StrategyReply, AdjustReply,
)  # fmt: skip
DISPATCHER = ROLES.index("dispatcher")


class Router(Machine, Protocol):
    """What the edge needs of `ps2stream.dispatcher.machine.RouterMachine`."""

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
    """Implements `ps2stream.dispatcher.gateway.Gateway` over one router machine.

    `post` hands messages to their machines, in order and without blocking; it is
    called under the edge's lock. After `wake` somebody must call `sync`, on a thread of
    its own. Once `lapsed` says that another incarnation may have come, nobody is answered.
    """

    def __init__(
        self,
        machine: Router,
        analyzer: Analyzer,
        frequencies: Frequencies,
        post: Post,
        clock_ms: Callable[[], int],
        log: ObjectLog,
        new_index: NewIndex,
        lock: threading.RLock | None = None,
        reservoir: Reservoir | None = None,
        wake: Callable[[], None] = lambda: None,
        lapsed: Callable[[], bool] = lambda: False,
        incarnation: int = 0,
        meter: Meter | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.reservoir = Reservoir(0) if reservoir is None else reservoir
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
        self.meter = Meter() if meter is None else meter
        self._watchers = Watchers(machine.index, machine.mergers, self.send, time.monotonic)
        self._publications = Publications(
            machine, log, self.reservoir, self._watchers, self.lock, self._settle, wake, self.meter
        )
        self._questions = Questions(self.send)
        self._updates = Updates(self._questions, self.lock)
        self._ticks = 0
        self._noted: dict[str, Any] = {}  # what others know, told with our own
        self.endpoints: Sequence[str] = ()  # of all dispatchers, HOST:PORT
        self.streams = Streams(self, machine.index, machine.mergers, self.meter)

    # --- from the service -------------------------------------------------

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        """Inserts and deletes; the future resolves once every dispatcher applied them."""
        name, request = strings_to_column(names), strings_to_column(request_ids)
        encoded = np.frombuffer(rows.encode(), np.uint8)
        update = UpdateRequest(self.machine.index, 0, 0, 0, encoded, *name, *request)
        with self.lock:
            inserts = bool((rows.kind == Kind.INSERT).any())
            future = self._updates.add(update, len(rows), inserts)
            self._ask()
        return cast("Future[UpdateDecision]", future)

    def publish(
        self, rows: ObjectRows, wait_s: float = 0.0, durable: bool = True
    ) -> Future[Publication]:
        """Take a batch in; the future resolves once it is routed and, if `durable`, synced,
        and until it is routed its `cancel()` takes it back. It is ResourceExhausted, with
        nothing accepted, when as many batches as may be under way keep waiting for `wait_s`
        seconds, and Unavailable while the disk is full or the dispatcher catches up."""
        return self._publications.add(rows, wait_s, durable, self._route)

    def lookup(
        self, id: str | None, session: int, after: int, limit: int, tenant: bytes = b""
    ) -> Future[LookupReply]:
        """Live queries: the one named `id`, or a page in handle order."""
        raw = np.frombuffer((id or "").encode("utf-8", "surrogatepass"), np.uint8)
        of = np.frombuffer(tenant, np.uint8)
        rest = (session, after, limit, raw, of)
        with self.lock:
            found = self._questions.ask(lambda seq: LookupRequest(self.machine.index, seq, *rest))
        return cast("Future[LookupReply]", found)

    def session(self, name: str, make: bool = False) -> Future[SessionGrant]:
        """The number of the session of this name, made if new and `make`; else 0."""
        return self._session(name, make)

    def tokens(self, add: bytes = b"", drop: str = "") -> Future[TokensReply]:
        """The tokens, after a change; see TokensRequest."""
        change = [np.frombuffer(part, np.uint8) for part in (add, drop.encode())]
        with self.lock:
            found = self._questions.ask(lambda seq: TokensRequest(self.machine.index, seq, *change))
        return cast("Future[TokensReply]", found)

    def strategy(self, plan: bytes = b"", ask: Ask = Ask.TELL) -> Future[StrategyReply]:
        """The strategy and the moves that ended, after what is asked for; as in
        StrategyRequest."""
        raw = np.frombuffer(plan, np.uint8)
        with self.lock:
            found = self._questions.ask(
                lambda seq: StrategyRequest(DISPATCHER, self.machine.index, seq, ask, raw)
            )
        return cast("Future[StrategyReply]", found)

    def adjustment(self, algorithm: str = "") -> Future[AdjustReply]:
        """The loads, and, if an algorithm is named, what it would move now."""
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
    ) -> Future[StreamPort]:
        """Open the session's Deliver stream here, as Gateway.attach says."""
        opening: Future[StreamPort] = Future()
        window = (credit_batches, credit_bytes)
        stream = Stream(self.streams, session, sink, fields, *window, ack, of, opening)
        self._name(stream, make=True)
        return opening

    def sample(self) -> ObjectSample:
        """Some of the objects that were lately accepted here."""
        with self.lock:
            held = self.reservoir.held()
        return held.joined()

    def watch(self, tenant: str, tell: Callable[[Glimpse], None]) -> Callable[[], None]:
        """Tell some of the objects, and of the matches of this tenant's queries, until what is
        returned is called. Raises ResourceExhausted."""
        watcher = Watcher(tenant, tell)
        with self.lock:
            self._watchers.add(watcher)

        def end() -> None:
            with self.lock:
                self._watchers.drop(watcher)

        return end

    def tell_congestion(self, tell: Callable[[bool], None]) -> None:
        """Call `tell` now and whenever it changes: whether batches that are routed wait; it must
        not block."""
        with self.lock:
            self._publications.tell_congestion(tell)

    @property
    def grid(self) -> Grid:
        """That of every plan of this service."""
        return self.machine.gridt.grid

    def weights(self) -> Weights:
        """Recent objects that each part would be sent now; without any, its queries."""
        with self.lock:
            return weighed(self.machine.gridt, self.reservoir.sample())

    def meeting(self, query: QueryRows, thing: ObjectRows) -> Meeting:
        """How this query, which is live, and this object would meet, were it accepted now."""
        return meeting(self.machine, self.lock, self._new_index, query, thing)

    def price(self, query: QueryRows) -> Price | None:
        """What this query would bring and cost; None while no object was accepted lately."""
        now_ms = self.clock_ms()
        with self.lock:
            recent = self.reservoir.recent(now_ms)
        if not recent.parts:
            return None
        of = (self.machine.gridt, self.lock, self._new_index, self.costs)
        return priced(*of, query, recent.joined(), now_ms)

    def note(self, parts: Mapping[str, Any]) -> None:
        """What else `status` is to tell, until it is noted anew under the same names."""
        with self.lock:
            self._noted |= parts

    def status(self) -> dict[str, Any]:
        """What this dispatcher knows of itself, and what it was told."""
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
        """One message from another machine."""
        with self.lock:
            if isinstance(frame, SampleRequest):
                self._report(frame)
                return
            self._out(self.machine.on(frame))
            if isinstance(frame, Completed):
                self._watchers.completed(frame)
            if isinstance(frame, UpdateDecision):
                self._ask()
            elif isinstance(frame, Completed | Partial):
                if isinstance(frame, Completed):
                    self._publications.completed(frame.batch.tolist())
                self._route()

    def joined(self, peer: Address) -> None:
        """A new incarnation of `peer`."""
        with self.lock:
            self._out(self.machine.joined(peer))
            self.streams.joined(peer)
            if peer in (SEQUENCER, CONTROLLER):
                self._questions.repeat()

    def tick(self) -> None:
        """Periodic work: gathered credits, watermarks of an idle dispatcher, repeats."""
        with self.lock:
            self.streams.tick()
            self._watchers.tick()
            self._out(self.machine.tick())
            self._publications.report_stall(self.machine.stall_report)
            self._route()
            self._ticks += 1
            if self._ticks % REPEAT_TICKS == 0:
                self._questions.repeat()
                self._publications.note_progress()

    def sync(self) -> None:
        """Make durable what was accepted, and answer. Raises Unavailable, for good: this
        incarnation must end."""
        self._publications.sync()

    def send(self, sends: list[Send]) -> None:
        """Hand messages over."""
        if sends:
            self._post(sends)

    def rename(self, stream: Stream) -> None:
        """Get the stream a new epoch, then attach it."""
        self._name(stream, make=False)

    def _name(self, stream: Stream, make: bool) -> None:
        def granted(grant: Future[SessionGrant]) -> None:
            with self.lock:
                if (problem := grant.exception()) is not None:
                    self.streams.fail(stream, problem)
                    return
                found = grant.result()
                self.streams.open(stream, found.session, found.stream)

        # A stream that was open must get its epoch.
        self._session(stream.name, make, bounded=make).add_done_callback(granted)

    def _session(self, name: str, make: bool, bounded: bool = True) -> Future[SessionGrant]:
        rest = (int(make), np.frombuffer(name.encode("utf-8", "surrogatepass"), np.uint8))
        with self.lock:
            found = self._questions.ask(
                lambda seq: SessionRequest(self.machine.index, seq, *rest), bounded
            )
        return cast("Future[SessionGrant]", found)

    def _route(self) -> None:
        self._publications.route(self._out, self.clock_ms())

    def _ask(self) -> None:
        """Pass updates on, unless the sequencer is busy."""
        if not self.machine.undecided:
            updates = self._updates.take()
            self._out([out for update in updates for out in self.machine.update(update)])

    def _out(self, out: Sequence[Send | Reply]) -> None:
        sends: list[Send] = []
        for o in out:
            if isinstance(o, Send):
                sends.append(o)
            elif isinstance(o.frame, Split | Quarantined):
                self._log.note(o.frame)  # before what follows from it
            else:
                self._answer(o.frame)
        self.send(sends)

    def _report(self, ask: SampleRequest) -> None:
        machine = self.machine
        told = report(ask, machine.index, machine.route, self.reservoir, machine.gridt)
        self.send([Send(CONTROLLER, told)])

    def _answer(self, frame: Frame) -> None:
        if isinstance(frame, Delivery | Attached):
            if not self._lapsed():
                self.streams.on(frame)
        elif isinstance(frame, Seen):
            self._watchers.on(frame)
        elif isinstance(frame, ANSWERS):
            future = self._questions.answered(frame.seq)
            if future is not None:
                self._settle(future, frame)

    def _settle(self, future: Future[Any], value: object) -> None:
        if self._lapsed():
            future.set_exception(Unavailable("this dispatcher has been replaced; ask again"))
        else:
            future.set_result(value)
