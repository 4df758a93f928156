"""The calls Publish and PublishStream."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from ps2stream.dispatcher.gateway import AcceptedBatch, DispatcherGateway, PublicationIdentity
from ps2stream.errors import (
    AlreadyExists,
    Cancelled,
    FailedPrecondition,
    InvalidArgument,
    OverQuota,
    ResourceExhausted,
    Unavailable,
    Violation,
    invalid,
)
from ps2stream.limits import BATCH_BYTES, VIOLATIONS
from ps2stream.protocol.wire import encode_message
from ps2stream.service.admission import AdmissionTicket, PublishRates
from ps2stream.service.calls import (
    OBJECT_ROWS,
    BegunAnswer,
    HeldBack,
    JoinedAnswer,
    LargeAnswer,
    check_batch,
    check_deadline,
    name_problem,
    parse,
)
from ps2stream.service.gate import PublishGate
from ps2stream.service.objects import RowRefusal, read_objects
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.peek import read_level_and_rows
from ps2stream.service.quick import QuickReading, QuickTime
from ps2stream.service.service_loop import service_loop
from ps2stream.v1 import object_pb2, pubsub_pb2

STREAM_WAIT_S = 5.0
"""The time that a full service holds a PublishStream back before it refuses the batch."""
UNARY_WAIT_S = 1.0
"""The same for a call: longer than its lane takes, so that what was analysed is rarely refused."""

QUICK_BYTES = 192 << 10
"""The size up to which a publication is handled on the loop, if nothing there has to wait."""

REASONS = ("invalid", "quota", "full", "unavailable", "shed")
"""The reasons to refuse objects. Shed are those of level NONE, because the service was full."""

Request = TypeVar("Request", pubsub_pb2.PublishRequest, pubsub_pb2.PublishStreamRequest)
Answer = TypeVar("Answer", pubsub_pb2.PublishResponse, pubsub_pb2.PublishStreamResponse)
Level: TypeAlias = object_pb2.PublishLevel.ValueType
_FOLLOWING = pubsub_pb2.PublishStreamResponse.FOLLOWING_FIELD_NUMBER
_LEVELS = frozenset(object_pb2.PublishLevel.values())


class RetryAdvice(NamedTuple):
    """The reason why a batch was not accepted now. It is no exception, whose frames would hold the
    message until the next garbage collection."""

    problem: str
    retry_after_ms: int


class PublishOutcome(NamedTuple):
    """The outcome of a batch. `at` is None where nothing of it was accepted; `error` is the reason
    when a full service or a quota refused it."""

    level: Level
    at: AcceptedBatch | None = None
    accepted: int = 0
    refused: Sequence[RowRefusal] = ()
    error: RetryAdvice | None = None


class BegunPublication(NamedTuple):
    """A publication under way. `finish` waits for `routing` and returns the outcome.
    `joins_answers`: its answer may be written together with others. `is_large`: many rows were
    refused."""

    routing: Future[AcceptedBatch]
    finish: Callable[[], Awaitable[PublishOutcome]]
    joins_answers: bool
    is_large: bool


class TenantPublications:
    """The publications of one tenant. Batches go into the gateway through the tenant's `rates` and
    the `gate` of all callers."""

    def __init__(self, gateway: DispatcherGateway, gate: PublishGate, rates: PublishRates) -> None:
        self._gateway = gateway
        self._gate = gate
        self._rates = rates
        self._rates_lock = threading.Lock()
        self._refusing = threading.Lock()
        self._reading = QuickReading(QUICK_BYTES)
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        """The number of objects that were not accepted, by reason."""

    def publish(self, data: bytes, call: OpenCall) -> BegunAnswer:
        """Begins the batch of a Publish."""
        check_deadline(call)
        kind = pubsub_pb2.PublishRequest
        return self._begin_batch(kind, data, call, UNARY_WAIT_S, self._answer_call)

    def publish_at_once(self, data: bytes, call: OpenCall) -> BegunAnswer | None:
        """Begins the batch of a Publish on the loop; returns None if that has to be on a thread."""
        kind = pubsub_pb2.PublishRequest
        return self._begin_at_once(kind, data, call, UNARY_WAIT_S, self._answer_call)

    def _answer_call(self, outcome: PublishOutcome) -> bytes:
        if outcome.error is not None:
            raise ResourceExhausted(outcome.error.problem, outcome.error.retry_after_ms)
        if outcome.refused and outcome.at is None:
            raise InvalidArgument(
                [
                    Violation(f"batch.objects[{r.row}].{r.field}", r.description)
                    for r in outcome.refused
                ]
            )
        return _fill_answer(pubsub_pb2.PublishResponse(), outcome).SerializeToString()

    def begin(self, data: bytes, call: OpenCall) -> BegunAnswer:
        """Begins one batch of a PublishStream, for `pipelined`."""
        kind = pubsub_pb2.PublishStreamRequest
        return self._begin_batch(kind, data, call, STREAM_WAIT_S, self._answer_in_stream)

    def begin_at_once(self, data: bytes, call: OpenCall) -> BegunAnswer | None:
        """Begins one batch of a PublishStream on the loop; returns None if that has to be on a
        thread."""
        kind = pubsub_pb2.PublishStreamRequest
        return self._begin_at_once(kind, data, call, STREAM_WAIT_S, self._answer_in_stream)

    def _begin_at_once(
        self,
        kind: type[Request],
        data: bytes,
        call: OpenCall,
        wait_s: float,
        answer: Callable[[PublishOutcome], bytes],
    ) -> BegunAnswer | None:
        """Begins a batch on the loop, if it should be quick and need not wait; returns None if it
        is not and does."""
        if (ticket := self._enter_at_once(data, call)) is None:
            return None
        try:
            return self._begin_batch(kind, data, call, wait_s, answer, ticket)
        except Cancelled:  # it took too long
            return None

    def _enter_at_once(self, data: bytes, call: OpenCall) -> AdmissionTicket | None:
        if not self._gateway.never_blocks or not self._reading.expects(len(data)):
            return None
        try:
            with self._rates_lock:
                self._rates.check(self._gateway.clock_ms())
        except ResourceExhausted:
            return None  # reading what is refused may have to wait
        return self._gate.try_to_enter(call.peer(), len(data))

    def _answer_in_stream(self, outcome: PublishOutcome) -> bytes:
        answer = _fill_answer(pubsub_pb2.PublishStreamResponse(), outcome)
        if outcome.error is not None:
            answer.retry_after_ms = outcome.error.retry_after_ms
        return answer.SerializeToString()

    def _begin_batch(
        self,
        kind: type[Request],
        data: bytes,
        call: OpenCall,
        wait_s: float,
        answer: Callable[[PublishOutcome], bytes],
        ticket: AdmissionTicket | None = None,
    ) -> BegunAnswer:
        """Begins a batch and returns what waits for its answer. An answer that nothing was accepted
        is held back, whatever the reason: finding out what is wrong with a large batch takes as
        long as a full service's refusal."""
        try:
            taking = self._accept_batch(kind, data, call, wait_s, ticket)
        except (InvalidArgument, FailedPrecondition) as error:
            return self._hold_back_answer(len(data), _make_raiser(error), call)
        if isinstance(taking, PublishOutcome):
            return self._hold_back_answer(len(data), partial(answer, taking), call)
        del data, call  # the answer may take long

        async def answer_later() -> bytes:
            return answer(await taking.finish())

        if taking.is_large:
            return LargeAnswer(answer_later)
        if taking.joins_answers:
            return JoinedAnswer(answer_later, taking.routing.done, join_answers)
        return answer_later

    def _hold_back_answer(
        self, size_bytes: int, answer: Callable[[], bytes], call: OpenCall
    ) -> HeldBack:
        """Holds an answer back for at most half of the time left until the deadline, so that it
        arrives in time."""

        def end() -> bytes:
            self._gate.end_refusal()
            return answer()

        seconds, left = self._gate.begin_refusal(size_bytes), call.time_remaining()
        return HeldBack(seconds if left is None else min(seconds, left / 2), end)

    def _accept_batch(
        self,
        kind: type[Request],
        data: bytes,
        call: OpenCall,
        wait_s: float,
        ticket: AdmissionTicket | None,
    ) -> BegunPublication | PublishOutcome:
        """Hands the good rows to the gateway. Returns what waits until they are routed, or the
        outcome when nothing was accepted. Rows, rate and share are checked before anything
        is built for the batch; `ticket` if it has entered already."""
        try:
            rows = check_batch(kind, data, OBJECT_ROWS)
            try:
                with self._rates_lock:
                    self._rates.check(self._gateway.clock_ms())
                if ticket is None:
                    ticket = self._gate.enter(call.peer(), len(data), wait_s)
            except ResourceExhausted as error:
                self._leave(ticket)
                return self._refuse_unread(kind, data, rows, error)
            return self._publish_admitted(ticket, kind, data, call, wait_s)
        except BaseException:
            self._leave(ticket)
            raise

    def _leave(self, ticket: AdmissionTicket | None) -> None:
        if ticket is not None:
            self._gate.leave(ticket)

    def _publish_admitted(
        self,
        ticket: AdmissionTicket,
        kind: type[Request],
        data: bytes,
        call: OpenCall,
        wait_s: float,
    ) -> BegunPublication | PublishOutcome:
        check_deadline(call)
        on_loop = service_loop().is_here
        time = QuickTime(is_limited=on_loop)
        is_wanted = time.is_left if on_loop else call.is_active
        request = parse(kind, data, BATCH_BYTES, "batch_bytes")
        level = resolve_level(request.level)
        identity = identify_publication(request)
        try:
            objects = read_objects(request.batch, self._gateway.clock_ms(), is_wanted)
        except Cancelled:
            self._reading.note(len(data), time.taken_s)
            raise
        refused = objects.refusals(None if request.allow_partial else VIOLATIONS, is_wanted)
        if refused:
            good = np.ones(len(objects), np.bool_)
            good[[r.row for r in refused]] = False
            if not (request.allow_partial and good.any()):
                self.refused["invalid"] += len(objects)
                self._gate.leave(ticket)
                return PublishOutcome(level, refused=refused)
            objects = objects.take(np.flatnonzero(good))
        try:
            rows = objects.analyse(self._gateway.analyzer, is_wanted, self._gateway.literals.view)
        finally:
            self._reading.note(len(data), time.taken_s)
        # Nothing counts before: what takes too long on the loop begins anew on a thread.
        self.refused["invalid"] += len(refused)
        try:
            with self._rates_lock:
                size = len(rows.text) + len(rows.id) + len(rows.opaque)
                self._rates.take(len(rows), size, self._gateway.clock_ms())
        except OverQuota as error:
            self._gate.leave(ticket)
            return self._refuse_batch(level, len(rows), error)
        self._gate.end_turn(ticket)
        durable = level == object_pb2.PUBLISH_LEVEL_DURABLE
        routing = self._gateway.publish(rows, wait_s, durable, identity)
        routing.add_done_callback(lambda _: self._gate.leave(ticket))
        count = len(rows)

        async def finish() -> PublishOutcome:
            try:
                at = await self._await_routing(routing, wait_s)
                return PublishOutcome(level, at, count, refused)
            except ResourceExhausted as error:
                return self._refuse_batch(level, count, error)._replace(refused=refused)
            except Unavailable:
                self.refused["unavailable"] += count
                raise
            except (AlreadyExists, FailedPrecondition):  # it repeats what it does not equal
                self.refused["invalid"] += count
                raise

        joins = isinstance(request, pubsub_pb2.PublishStreamRequest) and request.join_answers
        return BegunPublication(routing, finish, joins, len(refused) > VIOLATIONS)

    async def _await_routing(self, routing: Future[AcceptedBatch], wait_s: float) -> AcceptedBatch:
        """Returns the place where the batch was accepted. Raises ResourceExhausted, with nothing
        accepted, when the batch still waits after `wait_s` seconds."""
        if routing.done():
            return routing.result()
        loop = service_loop()
        try:
            async with asyncio.timeout(wait_s):
                return await loop.follow(routing)
        except TimeoutError:
            await asyncio.to_thread(self._gateway.withdraw, routing, wait_s)
            return await loop.follow(routing)

    def _refuse_unread(
        self, kind: type[Request], data: bytes, rows: int, error: ResourceExhausted
    ) -> PublishOutcome:
        """Refuses a batch of `rows` objects as messages that was not admitted. The rest of it is
        read for the counters alone, so only one batch at a time."""
        with self._refusing:
            level, rows = read_level_and_rows(kind, data, rows)
            return self._refuse_batch(resolve_level(level), rows, error)

    def _refuse_batch(self, level: Level, rows: int, error: ResourceExhausted) -> PublishOutcome:
        shed = level == object_pb2.PUBLISH_LEVEL_NONE
        reason = "quota" if isinstance(error, OverQuota) else "full"
        self.refused["shed" if shed else reason] += rows
        return PublishOutcome(
            level, error=None if shed else RetryAdvice(str(error), error.retry_after_ms)
        )


def _make_raiser(error: Exception) -> Callable[[], bytes]:
    """Returns a function that raises the error; the error's frames, which hold the message, are
    released."""
    error.__traceback__ = error.__context__ = None

    def raise_error() -> bytes:
        raise error

    return raise_error


def resolve_level(level: Level) -> Level:
    """Returns the level that takes effect for the requested one. Raises InvalidArgument for an
    unknown level."""
    if level == object_pb2.PUBLISH_LEVEL_UNSPECIFIED:
        return object_pb2.PUBLISH_LEVEL_DURABLE
    if level not in _LEVELS:
        raise invalid("level", f"unknown level {level}")
    return level


def identify_publication(
    request: pubsub_pb2.PublishRequest | pubsub_pb2.PublishStreamRequest,
) -> PublicationIdentity | None:
    """Returns what makes a repeat of the request the same publication; None if it has no producer.
    Raises InvalidArgument."""
    if not request.producer and not request.seq:
        return None
    if problem := name_problem(request.producer, "id"):
        raise invalid("producer", problem)
    if not request.seq:
        raise invalid("seq", "is missing; a producer numbers its publications from 1")
    content = request.batch.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return PublicationIdentity(request.producer, request.seq, digest)


def _fill_answer(answer: Answer, outcome: PublishOutcome) -> Answer:
    answer.level = outcome.level
    answer.accepted = outcome.accepted
    if outcome.at is not None:
        answer.partition, answer.first_offset, answer.lsn = outcome.at
    answer.refused.extend(r.to_proto() for r in outcome.refused)
    return answer


def join_answers(answers: Sequence[bytes]) -> bytes:
    """Returns the response of PublishStream to several batches, of their encoded responses."""
    following = (encode_message(_FOLLOWING, answer) for answer in answers[1:])
    return b"".join((answers[0], *following))
