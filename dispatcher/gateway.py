"""The port between the gRPC edge and a dispatcher.

Implemented by the in-process runtime and by the dispatcher's Ray actor. All methods
may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.protocol.frame import F64, I64, U32, U64
from ps2stream.protocol.messages.loads import AdjustReply
from ps2stream.protocol.messages.plan import Ask, StrategyReply
from ps2stream.protocol.messages.sessions import SessionGrant
from ps2stream.protocol.messages.updates import LookupReply, UpdateDecision
from ps2stream.protocol.messages.watch import Glimpse
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.protocol.tokens import TokensReply
from ps2stream.routing.costs import Weights
from ps2stream.routing.unit_kernels import U16
from ps2stream.space.grid import Grid

Sink = Callable[[bytes | Exception], bool | None]
"""Takes deliveries, and what the stream ends with. True says that it let go of the delivery:
none is to follow until `Stream.again`."""


class Publication(NamedTuple):
    """Where a batch was accepted: object i has offset `offset + i` in `partition`, and is
    matched as of `lsn`."""

    partition: int
    offset: int
    lsn: int


class Meeting(NamedTuple):
    """How a query and an object would meet. The query is posted in `cells` (tag cells,
    ascending) under each of `terms` (ascending), `postings` in all; plan_version: of the plan
    that says who owns them; here: the tag cell of the object on their level; owners: of (here,
    each term), none where the query is not posted here; sent_to: the workers that would be sent
    the object for this query. matches: what the worker's index says."""

    matches: bool
    plan_version: int
    cells: U32
    terms: U64
    postings: int
    here: int
    owners: U16
    sent_to: tuple[int, ...]


class Price(NamedTuple):
    """What a query would bring and cost, by a sample of recent objects. matched: rows of the
    sample; effective: so many objects of equal weights would tell as much; window_s: the time
    it stands for; cells: tag cells, ascending. Of each worker postings (count), checks and
    copies (a second) and load (microseconds a second), as if there were no other query."""

    matched: I64
    sampled: int
    effective: float
    objects_per_second: float
    matches_per_second: float
    window_s: float
    cells: U32
    postings: I64
    checks: F64
    copies: F64
    load: F64


class Stream(Protocol):
    """An open Deliver stream of a session."""

    @property
    def session(self) -> int:
        """The session's number."""

    @property
    def epoch(self) -> int:
        """Grows with every stream of the session."""

    def credit(self, batches: int, size: int, ack: int) -> None:
        """The client took `batches` batches of `size` bytes, and acknowledges `ack`. Called by
        one thread at a time."""

    def again(self, go_on: Callable[[], tuple[int, int]]) -> None:
        """What is not acknowledged comes again. `go_on`, called before, tells how many batches
        and bytes the sink let go of."""

    def close(self) -> None:
        """The stream is gone."""


class Gateway(Protocol):
    """What the service needs of a dispatcher."""

    @property
    def analyzer(self) -> Analyzer:
        """Text analysis as the plan records it."""

    @property
    def frequencies(self) -> Frequencies:
        """Term statistics that posting terms are chosen by."""

    @property
    def grid(self) -> Grid:
        """That of every plan of this service."""

    @property
    def clock_ms(self) -> Callable[[], int]:
        """Unix time in milliseconds."""

    @property
    def incarnation(self) -> int:
        """The number of the data directory: while it stays, pairs keep their numbers."""

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        """Inserts and deletes, with the session's name and the request_id of each row.
        Resolved once every dispatcher has applied them."""

    def publish(
        self, rows: ObjectRows, wait_s: float = 0.0, durable: bool = True
    ) -> Future[Publication]:
        """Take a batch in; the future resolves once it is routed and, if `durable`, synced,
        and until it is routed its `cancel()` takes it back. It is ResourceExhausted, with
        nothing accepted, when as many batches as may be under way keep waiting for `wait_s`
        seconds, and Unavailable while the disk is full or the dispatcher catches up."""

    def tell_congestion(self, tell: Callable[[bool], None]) -> None:
        """Call `tell` now and whenever it changes: whether batches that are routed wait for
        workers or mergers; it must not block."""

    def lookup(
        self, id: str | None, session: int, after: int, limit: int, tenant: bytes = b""
    ) -> Future[LookupReply]:
        """Live queries: the one named `id`, or at most `limit` with handle > `after`, of
        `session` (0: of all), of the tenant of this key (empty: of all)."""

    def session(self, name: str, make: bool = False) -> Future[SessionGrant]:
        """The number of the session of this name; 0 when there is none. With `make` a new
        name gets one, and 0 says that it could not be made durable."""

    def tokens(self, add: bytes = b"", drop: str = "") -> Future[TokensReply]:
        """The tokens, after keeping those of `add` (see tokens.encode), and the one of the id
        `drop` no longer."""

    def strategy(self, plan: bytes = b"", ask: Ask = Ask.TELL) -> Future[StrategyReply]:
        """The strategy and the moves that ended, after what is asked for; as in
        StrategyRequest."""

    def adjustment(self, algorithm: str = "") -> Future[AdjustReply]:
        """The loads, and, if an algorithm is named, what it would move now."""
        ...

    def meeting(self, query: QueryRows, thing: ObjectRows) -> Meeting:
        """How this query, which is live, and this object would meet, were it accepted now."""
        ...

    def price(self, query: QueryRows) -> Price | None:
        """What this query would bring and cost; None while no object was accepted lately."""

    def weights(self) -> Weights:
        """What the parts of the plan have to do, by what the dispatcher knows."""

    def attach(
        self,
        session: str,
        fields: int,
        credit_batches: int,
        credit_bytes: int,
        sink: Sink,
        ack: int = 0,
        of: int = 0,
    ) -> Future[Stream]:
        """Open the session's Deliver stream here. fields: bit 0 text, 1 position, 2 time.
        `sink` gets encoded DeliverResponses, then FailedPrecondition when another stream has
        taken the session over; it must not block. `ack`: the client has dealt with the pairs
        to this number, of the session of the number `of`, unless 0. The future is
        FailedPrecondition when this is another session or has not so many, and so ends a
        stream that has acknowledged more and is attached anew."""

    def watch(self, tenant: str, tell: Callable[[Glimpse], None]) -> Callable[[], None]:
        """Tell some of the objects, and of the matches of this tenant's queries, until what is
        returned is called; `tell` must not block. Raises ResourceExhausted."""

    def sample(self) -> ObjectSample:
        """Some of the objects that were lately accepted."""

    def status(self) -> dict[str, Any]:
        """What the dispatcher knows of itself: numbers by name."""
