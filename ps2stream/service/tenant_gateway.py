"""A gateway as one tenant sees it: names go in under the tenant's, and only its own are there.

Names come out as they are stored; `standing.describe` and the merger cut the tenant off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ps2stream import tenants
from ps2stream.dispatcher.gateway import (
    AcceptedBatch,
    DeliverStream,
    DispatcherGateway,
    LiteralSource,
    MatchExplanation,
    PublicationIdentity,
    QueryEstimate,
    Sink,
)
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.protocol.messages.handover import DispatchersReply, MergersReply
from ps2stream.protocol.messages.loads import AdjustReply
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply
from ps2stream.protocol.messages.sessions import SessionGrant
from ps2stream.protocol.messages.updates import LookupReply, UpdateDecision
from ps2stream.protocol.messages.watch import WatchSample
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.protocol.tokens import TokensReply
from ps2stream.routing.costs import PartWeights
from ps2stream.space.grid import Grid


class TenantGateway:
    """The Gateway of one tenant, on top of the gateway of all tenants."""

    def __init__(self, gateway: DispatcherGateway, tenant: str) -> None:
        self._gateway = gateway
        self._tenant = tenant

    @property
    def never_blocks(self) -> bool:
        return self._gateway.never_blocks

    @property
    def analyzer(self) -> Analyzer:
        return self._gateway.analyzer

    @property
    def literals(self) -> LiteralSource:
        return self._gateway.literals

    @property
    def frequencies(self) -> Frequencies:
        return self._gateway.frequencies

    @property
    def grid(self) -> Grid:
        return self._gateway.grid

    @property
    def clock_ms(self) -> Callable[[], int]:
        return self._gateway.clock_ms

    @property
    def incarnation(self) -> int:
        return self._gateway.incarnation

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        if self._tenant:
            id_off, id_ = tenants.column_under(self._tenant, (rows.id_off, rows.id))
            rows = rows.replace(id_off=id_off, id=id_)
            kept = {name: tenants.under(self._tenant, name) for name in dict.fromkeys(names)}
            names = list(map(kept.__getitem__, names))
        return self._gateway.update(rows, names, request_ids)

    def publish(
        self,
        rows: ObjectRows,
        wait_s: float = 0.0,
        durable: bool = True,
        identity: PublicationIdentity | None = None,
    ) -> Future[AcceptedBatch]:
        if identity is not None:
            stored = tenants.under(self._tenant, identity.producer)
            identity = identity._replace(producer=stored)
        return self._gateway.publish(rows, wait_s, durable, identity)

    def withdraw(self, routing: Future[AcceptedBatch], waited_s: float) -> None:
        self._gateway.withdraw(routing, waited_s)

    def withdraw_objects(self, ids: Sequence[str]) -> Future[None]:
        return self._gateway.withdraw_objects(ids)  # objects are shared: their ids have no tenant

    def tell_congestion(self, tell: Callable[[bool], None]) -> None:
        self._gateway.tell_congestion(tell)

    def lookup(
        self, id: str | None, session: int, after: int, limit: int, tenant: bytes = b""
    ) -> Future[LookupReply]:
        kept = None if id is None else tenants.under(self._tenant, id)
        return self._gateway.lookup(kept, session, after, limit, tenants.key(self._tenant))

    def session(self, name: str, make: bool = False) -> Future[SessionGrant]:
        return self._gateway.session(tenants.under(self._tenant, name), make)

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
        kept = tenants.under(self._tenant, session)
        return self._gateway.attach(kept, fields, credit_batches, credit_bytes, sink, ack, of)

    def tokens(self, add: bytes = b"", drop: str = "") -> Future[TokensReply]:
        return self._gateway.tokens(add, drop)

    def strategy(
        self, plan: bytes = b"", ask: PlanAction = PlanAction.TELL
    ) -> Future[PlanChangeReply]:
        return self._gateway.strategy(plan, ask)

    def mergers(self, mergers: int = 0) -> Future[MergersReply]:
        return self._gateway.mergers(mergers)

    @property
    def sharers(self) -> int:
        return self._gateway.sharers

    def dispatchers(self, dispatchers: int = 0) -> Future[DispatchersReply]:
        return self._gateway.dispatchers(dispatchers)

    def adjustment(self, algorithm: str = "") -> Future[AdjustReply]:
        return self._gateway.adjustment(algorithm)

    def meeting(self, query: QueryRows, thing: ObjectRows) -> MatchExplanation:
        return self._gateway.meeting(query, thing)

    def price(self, query: QueryRows) -> QueryEstimate | None:
        return self._gateway.price(query)

    def weights(self) -> PartWeights:
        return self._gateway.weights()

    def watch(self, tenant: str, tell: Callable[[WatchSample], None]) -> Callable[[], None]:
        return self._gateway.watch(self._tenant, tell)

    def sample(self) -> ObjectSample:
        return self._gateway.sample()

    def status(self) -> dict[str, Any]:
        return self._gateway.status()
