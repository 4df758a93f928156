"""The port between the gRPC service and a dispatcher.

The in-process runtime and the dispatcher's Ray actor implement it. All methods may be called
from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.errors import FailedPrecondition
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.language.literals import LiteralView
from ps2stream.protocol.frame import F64, I64, U32, U64
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

Sink = Callable[[bytes | Exception], bool | None]
"""Takes deliveries, and the error with which the stream ends. It returns True if it dropped the
delivery: then none follows until `DeliverStream.again`."""


class AcceptedBatch(NamedTuple):
    """The place of an accepted batch: object i has offset `offset + i` in `partition` and is
    matched as of `lsn`."""

    partition: int
    offset: int
    lsn: int


class UnknownPublication(FailedPrecondition):
    """A publication that may only be a repeat is none that is remembered."""


class PublicationIdentity(NamedTuple):
    """What makes a repeat the same publication: the stored name of its producer, and the producer's
    number for it, from 1 to 2**64 - 1. The digest of its content, 16 bytes, shows a mistake.
    repeats: it can only be a repeat, and is refused with UnknownPublication if it is none."""

    producer: str
    seq: int
    digest: bytes
    repeats: bool = False


class MatchExplanation(NamedTuple):
    """An account of how a query and an object would meet.

    matches: whether the worker's index finds the pair. The query is posted in `cells` (tag cells,
    ascending) under each of `terms` (ascending), with `postings` in all. plan_version: of the plan
    that says who owns them. here: the tag cell of the object on the level of the query. owners:
    the workers that own (here, each term), more than one where the unit is replicated; none if
    the query is not posted here. shards: the workers among which the queries of each of these units
    are divided, none where it is not sharded. sent_to: the workers to which the object would be
    sent for this query in any case; sent_to_one_of: groups without any of these, of each of which
    one worker would be sent it."""

    matches: bool
    plan_version: int
    cells: U32
    terms: U64
    postings: int
    here: int
    owners: tuple[tuple[int, ...], ...]
    sent_to: tuple[int, ...]
    sent_to_one_of: tuple[tuple[int, ...], ...] = ()
    shards: tuple[tuple[int, ...], ...] = ()


class QueryEstimate(NamedTuple):
    """The estimated matches and costs of a query, by a sample of recent objects.

    matched: rows of the sample that match. sampled: rows of the sample. effective: the number of
    objects of equal weights that would be as informative. window_s: the time that the sample
    covers. cells: tag cells, ascending; tags: postings, each counted once. For each worker:
    postings that it would hold (count), checks and copies (per second) and load (microseconds per
    second), as if there were no other query. Objects that meet a replicated unit are divided
    among its workers. Copies to workers of a sharded unit that hold nothing of the query are not
    counted."""

    matched: I64
    sampled: int
    effective: float
    objects_per_second: float
    matches_per_second: float
    window_s: float
    cells: U32
    tags: int
    postings: I64
    checks: F64
    copies: F64
    load: F64


class DeliverStream(Protocol):
    """An open Deliver stream of a session."""

    @property
    def session(self) -> int:
        """The session's number."""

    @property
    def epoch(self) -> int:
        """The number of this stream's epoch, which grows with every stream of the session."""

    @property
    def acked(self) -> int:
        """The number of the last pair that was acknowledged when the stream was opened."""

    def credit(self, batches: int, size: int, ack: int) -> None:
        """Notes that the client took `batches` batches of `size` bytes and acknowledges `ack`."""

    def again(self, go_on: Callable[[], tuple[int, int]]) -> None:
        """Sends all that is not acknowledged again. `go_on` is called before, on any thread, lets
        the sink take deliveries, and returns how many batches and bytes it dropped."""

    def close(self) -> None:
        """Closes the stream."""


class LiteralSource(Protocol):
    """Has the literals that objects are searched for, as they are now."""

    @property
    def view(self) -> LiteralView:
        """The literals, for any thread and for later too."""


class DispatcherGateway(Protocol):
    """A dispatcher, as the service needs it."""

    @property
    def never_blocks(self) -> bool:
        """Whether what returns a future, and the methods of streams, may be called on the service's
        loop. Otherwise the caller may have to do the work of the whole service."""

    @property
    def analyzer(self) -> Analyzer:
        """The text analysis, as the plan records it."""

    @property
    def literals(self) -> LiteralSource:
        """The phrases, prefixes and predicates that objects are searched for."""

    @property
    def frequencies(self) -> Frequencies:
        """The term statistics by which posting terms are chosen."""

    @property
    def grid(self) -> Grid:
        """The grid of every plan of this service."""

    @property
    def clock_ms(self) -> Callable[[], int]:
        """The clock: Unix time in milliseconds."""

    @property
    def incarnation(self) -> int:
        """The number of the data directory; while it stays the same, matches keep their
        numbers."""

    def update(
        self, rows: QueryRows, names: Sequence[str], request_ids: Sequence[str]
    ) -> Future[UpdateDecision]:
        """Sends inserts and deletes to the sequencer, with the session's name and the request_id
        of each row. The future resolves once every dispatcher has applied them."""

    def publish(
        self,
        rows: ObjectRows,
        wait_s: float = 0.0,
        durable: bool = True,
        identity: PublicationIdentity | None = None,
    ) -> Future[AcceptedBatch]:
        """Publishes a batch. The future resolves once the batch is routed and, if `durable`,
        synced. The future fails, with nothing
        accepted, with ResourceExhausted if as many batches as may be under way keep waiting for
        `wait_s` seconds, and with Unavailable while the disk is full or the dispatcher catches
        up.

        With an identity the batch is always synced, and a repeat resolves to the first answer. The
        future fails with AlreadyExists if the first had another content, with FailedPrecondition if
        it is older than what is remembered, and with Unavailable, perhaps accepted, if the
        dispatcher that remembers the producer does not answer."""

    def withdraw(self, routing: Future[AcceptedBatch], waited_s: float) -> None:
        """Withdraws a publication that was not routed within `waited_s`, as its future then says;
        does nothing if it is routed."""

    def withdraw_objects(self, ids: Sequence[str]) -> Future[None]:
        """Withdraws the objects with these ids that any dispatcher has accepted. The future
        resolves once every dispatcher has noted it durably, and fails with Unavailable, perhaps
        noted by some, if one does not answer."""

    def tell_congestion(self, tell: Callable[[bool], None]) -> None:
        """Calls `tell` now and at every change with whether routed batches wait for workers or
        mergers. `tell` must not block."""

    def lookup(
        self, id: str | None, session: int, after: int, limit: int, tenant: bytes = b""
    ) -> Future[LookupReply]:
        """Looks up live queries: the one with the name `id`, or at most `limit` with a handle
        above `after`, of `session` (0: of all), of the tenant of this key (empty: of all)."""

    def session(self, name: str, make: bool = False) -> Future[SessionGrant]:
        """Requests the number of the session of this name, 0 if there is none. With `make` a new
        name gets a number, and 0 means that it could not be made durable."""

    def tokens(self, add: bytes = b"", drop: str = "") -> Future[TokensReply]:
        """Requests the tokens, after those of `add` (see tokens.encode) are added and the one with
        the id `drop` is dropped."""

    def strategy(
        self, plan: bytes = b"", ask: PlanAction = PlanAction.TELL
    ) -> Future[PlanChangeReply]:
        """Requests the strategy and the migrations that ended, after the change that `ask` names
        (see PlanChangeRequest)."""

    def mergers(self, mergers: int = 0) -> Future[MergersReply]:
        """Requests another number of mergers, or, if it is 0, only how many there are."""

    @property
    def sharers(self) -> int:
        """The number of dispatchers, among which quotas are shared out."""
        ...

    def dispatchers(self, dispatchers: int = 0) -> Future[DispatchersReply]:
        """Requests so many dispatchers, or, if it is 0, only how many there are."""

    def adjustment(self, algorithm: str = "") -> Future[AdjustReply]:
        """Requests the loads and, if an algorithm is named, what it would migrate now."""
        ...

    def meeting(self, query: QueryRows, thing: ObjectRows) -> MatchExplanation:
        """Explains how a live query and an object would meet if the object were accepted now."""
        ...

    def price(self, query: QueryRows) -> QueryEstimate | None:
        """Estimates the matches and costs of a query; None if no object was accepted lately."""

    def weights(self) -> PartWeights:
        """Returns the load of the parts of the plan, as far as this dispatcher knows."""

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
        """Opens the session's Deliver stream here.

        fields: bit 0 text, 1 position, 2 time. `sink` gets encoded DeliverResponses, and
        FailedPrecondition when another stream has taken the session over; it must not block.
        `ack`: the client acknowledges the matches up to this number, of the session with the
        number `of` unless that is 0. The future fails with FailedPrecondition if this is another
        session or has fewer matches; a stream that has acknowledged more than there are and is
        attached again ends in the same way."""

    def watch(self, tenant: str, tell: Callable[[WatchSample], None]) -> Callable[[], None]:
        """Calls `tell` with some of the objects and some matches of this tenant's queries, until
        the returned function is called. `tell` must not block. Raises ResourceExhausted."""

    def sample(self) -> ObjectSample:
        """Returns a sample of the objects that were lately accepted."""

    def status(self) -> dict[str, Any]:
        """Returns the figures of this dispatcher by name."""
