"""The edge of a dispatcher: the service's calls become events of the dispatcher's machine, and
futures become what its instructions answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.estimates import estimate_query, search_sample
from ps2stream.dispatcher.events import (
    ClientEvent,
    CongestionWatched,
    CreditGranted,
    EstimateRequested,
    ExplanationRequested,
    PublishRequested,
    PublishWithdrawn,
    RequestForwarded,
    SampleRequested,
    StatusRequested,
    StreamClosed,
    StreamRequested,
    StreamResumed,
    UpdateRequested,
    WatchEnded,
    WatchRequested,
    WeightsRequested,
    WithdrawRequested,
)
from ps2stream.dispatcher.explanations import compared_by, explain_meeting, search_objects
from ps2stream.dispatcher.gateway import (
    AcceptedBatch,
    DeliverStream,
    LiteralSource,
    MatchExplanation,
    PublicationIdentity,
    QueryEstimate,
    Sink,
)
from ps2stream.dispatcher.machine import DispatcherMachine
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.language.analyzer import Frequencies
from ps2stream.observability.process import wall_clock_ms
from ps2stream.protocol.addresses import CONTROLLER, ROLES, SEQUENCER, Address
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.messages.handover import (
    DispatchersReply,
    DispatchersRequest,
    MergersReply,
    MergersRequest,
)
from ps2stream.protocol.messages.loads import AdjustReply, AdjustRequest
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply, PlanChangeRequest
from ps2stream.protocol.messages.sessions import SessionGrant, SessionRequest
from ps2stream.protocol.messages.updates import (
    LookupReply,
    LookupRequest,
    UpdateDecision,
    UpdateRequest,
)
from ps2stream.protocol.messages.watch import WatchSample
from ps2stream.protocol.rows import ObjectRows, QueryRows, UpdateKind
from ps2stream.protocol.tokens import TokensReply, TokensRequest
from ps2stream.routing.costs import PartWeights

T = TypeVar("T")
DISPATCHER = ROLES.index("dispatcher")
_DELETE = np.uint8(UpdateKind.DELETE)  # a member of an enumeration compares slowly with a column


def begin_call() -> Future[Any]:
    """Returns the future of a call. It cannot be cancelled, since the machine answers it."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


class EdgeStream:
    """The service's end of a Deliver stream; its methods are those of the gateway's stream, and
    what the driver calls."""

    def __init__(self, put: Callable[[ClientEvent], None], sink: Sink) -> None:
        self.sink = sink
        self.opening: Future[DeliverStream] = begin_call()
        self.session = 0
        self.epoch = 0
        self.acked = 0
        self._put = put
        self._go_on: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def credit(self, batches: int, size: int, ack: int) -> None:
        self._put(CreditGranted(self, batches, size, ack))

    def again(self, go_on: Callable[[], tuple[int, int]]) -> None:
        self._go_on = go_on
        self._put(StreamResumed(self))

    def close(self) -> None:
        self._put(StreamClosed(self))

    def open(self, session: int, epoch: int, acked: int) -> None:
        """Lets the service have the stream."""
        self.session, self.epoch, self.acked = session, epoch, acked
        self.opening.set_result(self)

    def reopen(self) -> tuple[int, int]:
        """Lets the sink take deliveries again; returns what it dropped."""
        return self._go_on()

    def end(self, error: Exception | None) -> None:
        """Ends the stream, or its opening; without an error it has no session."""
        if self.opening.done():
            if error is not None:
                self.sink(error)
        elif error is None:
            self.opening.set_result(self)
        else:
            self.opening.set_exception(error)


class DispatcherEdge:
    """Implements `ps2stream.dispatcher.gateway.DispatcherGateway`; `put` takes the events."""

    never_blocks = False

    def __init__(
        self,
        machine: DispatcherMachine,
        topology: Topology,
        incarnation: int,
        put: Callable[[ClientEvent], None],
    ) -> None:
        self.machine = machine
        self.analyzer = topology.analyzer()
        self._counts = topology.plan.frequencies
        self._frequencies = topology.frequencies(self.analyzer)
        self.literals: LiteralSource = machine.router.literals
        self.grid = topology.plan.grid
        self.clock_ms = wall_clock_ms
        self.incarnation = incarnation
        self.endpoints: Sequence[str] = ()  # of all dispatchers, HOST:PORT
        self._index = machine.router.index
        self._new_index = topology.index_factory()
        self._costs = topology.policy.rules.costs
        self._put = put
        self._noted: dict[str, Any] = {}  # figures of other parts, which `status` includes

    @property
    def frequencies(self) -> Frequencies:
        """The statistics of the newest plan. Hashed anew on any thread where a change of the plan
        brings others, which is rare."""
        counts = self.machine.router.term_counts
        if counts is not None and counts is not self._counts:
            if counts != self._counts:
                self._frequencies = Frequencies.of(counts, self.analyzer)
            self._counts = counts
        return self._frequencies

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        name, request = strings_to_column(names), strings_to_column(request_ids)
        encoded = np.frombuffer(rows.encode(), np.uint8)
        update = UpdateRequest(self._index, 0, 0, 0, encoded, *name, *request)
        inserts = bool((rows.kind != _DELETE).any())
        call = begin_call()
        self._put(UpdateRequested(call, update, len(rows), inserts))
        return call

    def publish(
        self,
        rows: ObjectRows,
        wait_s: float = 0.0,
        durable: bool = True,
        identity: PublicationIdentity | None = None,
    ) -> Future[AcceptedBatch]:
        call = begin_call()
        self._put(PublishRequested(call, rows, durable, time.monotonic(), wait_s, identity))
        return call

    def withdraw(self, routing: Future[AcceptedBatch], waited_s: float) -> None:
        self._put(PublishWithdrawn(routing, waited_s))

    def withdraw_objects(self, ids: Sequence[str]) -> Future[None]:
        call = begin_call()
        self._put(WithdrawRequested(call, *strings_to_column(ids)))
        return call

    def tell_congestion(self, tell: Callable[[bool], None]) -> None:
        self._put(CongestionWatched(tell))

    def lookup(
        self, id: str | None, session: int, after: int, limit: int, tenant: bytes = b""
    ) -> Future[LookupReply]:
        raw = _encode_text(id or "")
        of = np.frombuffer(tenant, np.uint8)
        return self._forward(LookupRequest(self._index, 0, session, after, limit, raw, of))

    def session(self, name: str, make: bool = False) -> Future[SessionGrant]:
        return self._forward(SessionRequest(self._index, 0, int(make), _encode_text(name)))

    def tokens(self, add: bytes = b"", drop: str = "") -> Future[TokensReply]:
        change = np.frombuffer(add, np.uint8), _encode_text(drop)
        return self._forward(TokensRequest(self._index, 0, *change))

    def strategy(
        self, plan: bytes = b"", ask: PlanAction = PlanAction.TELL
    ) -> Future[PlanChangeReply]:
        raw = np.frombuffer(plan, np.uint8)
        return self._forward(PlanChangeRequest(DISPATCHER, self._index, 0, ask, raw))

    def mergers(self, mergers: int = 0) -> Future[MergersReply]:
        return self._forward(MergersRequest(self._index, 0, mergers))

    @property
    def sharers(self) -> int:
        return self.machine.router.dispatchers

    def dispatchers(self, dispatchers: int = 0) -> Future[DispatchersReply]:
        return self._forward(DispatchersRequest(self._index, 0, dispatchers))

    def adjustment(self, algorithm: str = "") -> Future[AdjustReply]:
        return self._forward(AdjustRequest(self._index, 0, _encode_text(algorithm)), CONTROLLER)

    def meeting(self, query: QueryRows, thing: ObjectRows) -> MatchExplanation:
        expanded = self._inquire(lambda call: ExplanationRequested(call, query))
        searched = search_objects(thing, query, self.analyzer)
        values = compared_by(query, (thing.opaque_off, thing.opaque), self.analyzer)
        return explain_meeting(expanded, self._new_index, searched, values)

    def price(self, query: QueryRows) -> QueryEstimate | None:
        expanded, recent, now_ms = self._inquire(lambda call: EstimateRequested(call, query))
        if not recent.parts:
            return None
        sample = search_sample(recent.joined(), query, self.analyzer)
        values = compared_by(query, (sample.opaque_off, sample.opaque), self.analyzer)
        return estimate_query(expanded, self._new_index, self._costs, sample, now_ms, values)

    def weights(self) -> PartWeights:
        found: PartWeights = self._inquire(WeightsRequested)
        return found

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
        stream = EdgeStream(self._put, sink)
        self._put(StreamRequested(stream, session, fields, credit_batches, credit_bytes, ack, of))
        return stream.opening

    def watch(self, tenant: str, tell: Callable[[WatchSample], None]) -> Callable[[], None]:
        self._inquire(lambda call: WatchRequested(call, tell, tenant))
        return lambda: self._put(WatchEnded(tell))

    def sample(self) -> ObjectSample:
        found: ObjectSample = self._inquire(SampleRequested).joined()
        return found

    def note(self, parts: Mapping[str, Any]) -> None:
        """Notes figures by name, which `status` includes until they are noted again."""
        self._noted = {**self._noted, **parts}

    def status(self) -> dict[str, Any]:
        figures: dict[str, Any] = self._inquire(StatusRequested)
        return figures | {"endpoints": self.endpoints} | self._noted

    def _forward(self, request: Frame, to: Address = SEQUENCER) -> Future[Any]:
        call = begin_call()
        self._put(RequestForwarded(call, request, to))
        return call

    def _inquire(self, make: Callable[[Future[Any]], ClientEvent]) -> Any:
        """Waits for what the machine knows itself, which it answers at once."""
        call = begin_call()
        self._put(make(call))
        return call.result()


def _encode_text(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
