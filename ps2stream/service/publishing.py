"""The calls Publish and PublishStream."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from ps2stream.dispatcher.gateway import (
    AcceptedBatch,
    DispatcherGateway,
    PublicationIdentity,
    UnknownPublication,
)
from ps2stream.errors import (
    AlreadyExists,
    Cancelled,
    FailedPrecondition,
    InvalidArgument,
    OverQuota,
    Ps2StreamError,
    ResourceExhausted,
    Unavailable,
    Violation,
)
from ps2stream.limits import BATCH_BYTES, BATCH_ROWS, VIOLATIONS
from ps2stream.protocol.rows import ObjectRows
from ps2stream.service.admission import AdmissionTicket, PublishRates
from ps2stream.service.calls import (
    OBJECT_ROWS,
    BegunAnswer,
    HeldBack,
    JoinedAnswer,
    LargeAnswer,
    check_batch,
    check_deadline,
    parse,
)
from ps2stream.service.gate import PublishGate
from ps2stream.service.objects import RowRefusal, join_columns, read_objects
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.peek import read_level_and_rows
from ps2stream.service.publication_messages import (
    fill_answer,
    identify_publication,
    join_answers,
    resolve_level,
)
from ps2stream.service.publication_outcomes import (
    BegunPublication,
    Level,
    PublishOutcome,
    RetryAdvice,
    answer_later,
    await_routing,
    make_raiser,
)
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
        return fill_answer(pubsub_pb2.PublishResponse(), outcome).SerializeToString()

    def begin(self, data: bytes, call: OpenCall) -> BegunAnswer:
        """Begins one batch of a PublishStream, for `pipelined`."""
        kind = pubsub_pb2.PublishStreamRequest
        return self._begin_batch(kind, data, call, STREAM_WAIT_S, self._answer_in_stream)

    def begin_at_once(self, data: bytes, call: OpenCall) -> BegunAnswer | None:
        """Begins one batch of a PublishStream on the loop; returns None if that has to be on a
        thread."""
        kind = pubsub_pb2.PublishStreamRequest
        return self._begin_at_once(kind, data, call, STREAM_WAIT_S, self._answer_in_stream)

    def begin_together(self, parts: deque[bytes], call: OpenCall) -> Sequence[BegunAnswer]:
        """Begins the first batches of a PublishStream as one, on the loop, as many as should be
        quick together, and removes them from `parts`; none if they have to be begun one by one."""
        many = size_bytes = 0
        for part in parts:
            if not self._reading.expects(size_bytes + len(part)):
                break
            many, size_bytes = many + 1, size_bytes + len(part)
        if many < 2 or (ticket := self._enter_at_once(size_bytes, call)) is None:
            return ()
        kind, begun = pubsub_pb2.PublishStreamRequest, list[BegunAnswer]()
        try:
            check_deadline(call)
            chosen = [parts[i] for i in range(many)]
            if sum(check_batch(kind, part, OBJECT_ROWS) for part in chosen) <= BATCH_ROWS:
                requests = [parse(kind, part, BATCH_BYTES, "batch_bytes") for part in chosen]
                begun = self._begin_read_batches(ticket, requests)
        except (Ps2StreamError, TimeoutError):
            pass  # whoever begins them one by one finds which is bad
        finally:
            if not begun:
                self._gate.leave(ticket)
        for _ in begun:
            parts.popleft()
        return begun

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
        if (ticket := self._enter_at_once(len(data), call)) is None:
            return None
        try:
            return self._begin_batch(kind, data, call, wait_s, answer, ticket)
        except Cancelled:  # it took too long
            return None

    def _enter_at_once(self, size_bytes: int, call: OpenCall) -> AdmissionTicket | None:
        if not self._gateway.never_blocks or not self._reading.expects(size_bytes):
            return None
        try:
            with self._rates_lock:
                self._rates.check(self._gateway.clock_ms())
        except ResourceExhausted:
            return None  # reading what is refused may have to wait
        return self._gate.try_to_enter(call.peer(), size_bytes)

    def _answer_in_stream(self, outcome: PublishOutcome) -> bytes:
        answer = fill_answer(pubsub_pb2.PublishStreamResponse(takes_following=True), outcome)
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
            return self._hold_back_answer(len(data), make_raiser(error), call)
        if isinstance(taking, PublishOutcome):
            return self._hold_back_answer(len(data), partial(answer, taking), call)
        if taking.joins_answers and not taking.is_large:
            return self._join_answer(taking.routing, taking.finish, answer)
        later = partial(answer_later, taking.finish, answer)
        return LargeAnswer(later) if taking.is_large else later

    def _join_answer(
        self,
        routing: Future[AcceptedBatch],
        finish: Callable[[], Awaitable[PublishOutcome]],
        answer: Callable[[PublishOutcome], bytes],
    ) -> JoinedAnswer:
        return JoinedAnswer(partial(answer_later, finish, answer), routing.done, join_answers)

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
        count, over = len(objects), list[RowRefusal]()
        if refused:
            good = objects.list_good(refused)
            if request.allow_partial and len(good):
                count = len(good)
            elif identity is not None and objects.are_over(objects.refusals(None, is_wanted)):
                identity, over, refused = identity._replace(repeats=True), refused, []
            else:
                self.refused["invalid"] += len(objects)
                self._gate.leave(ticket)
                return PublishOutcome(level, refused=refused)
            objects = objects.take(good)
        try:
            rows = objects.analyse(self._gateway.analyzer, is_wanted, self._gateway.literals.view)
        finally:
            self._reading.note(len(data), time.taken_s)
        # Nothing counts before: what takes too long on the loop begins anew on a thread.
        self.refused["invalid"] += len(refused)
        try:
            self._take_rates(rows)
        except OverQuota as error:
            self._gate.leave(ticket)
            return self._refuse_batch(level, len(rows), error)
        routing = self._route_rows(ticket, rows, wait_s, level, identity)
        finish = partial(self._finish_batch, routing, wait_s, level, 0, count, refused, over)
        joins = isinstance(request, pubsub_pb2.PublishStreamRequest) and request.join_answers
        return BegunPublication(routing, finish, joins, len(refused) > VIOLATIONS)

    def _begin_read_batches(
        self, ticket: AdmissionTicket, requests: Sequence[pubsub_pb2.PublishStreamRequest]
    ) -> list[BegunAnswer]:
        """Publishes batches that were read together as one, of which each is answered by itself.
        Returns none if one of them is not as the others, or is not good; nothing counts then."""
        level = requests[0].level
        if any(r.level != level or r.producer or r.seq or not r.join_answers for r in requests):
            return []
        level, time = resolve_level(level), QuickTime(is_limited=True)
        now_ms, size_bytes = self._gateway.clock_ms(), ticket.size_bytes
        try:
            parts = [read_objects(r.batch, now_ms, time.is_left) for r in requests]
            if any(part.opaque.problems for part in parts):
                return []
            objects = join_columns(parts)
            if objects.refusals(1, time.is_left):
                return []
            literals = self._gateway.literals.view
            rows = objects.analyse(self._gateway.analyzer, time.is_left, literals)
        finally:
            self._reading.note(size_bytes, time.taken_s)
        self._take_rates(rows)
        routing = self._route_rows(ticket, rows, STREAM_WAIT_S, level, None)
        begun, first = list[BegunAnswer](), 0
        for part in parts:
            place = first, len(part)
            finish = partial(self._finish_batch, routing, STREAM_WAIT_S, level, *place, ())
            begun.append(self._join_answer(routing, finish, self._answer_in_stream))
            first += len(part)
        return begun

    def _take_rates(self, rows: ObjectRows) -> None:
        """Counts the rows among those of the tenant. Raises OverQuota if they may not pass."""
        with self._rates_lock:
            size = len(rows.text) + len(rows.id) + len(rows.opaque)
            self._rates.take(len(rows), size, self._gateway.clock_ms())

    def _route_rows(
        self,
        ticket: AdmissionTicket,
        rows: ObjectRows,
        wait_s: float,
        level: Level,
        identity: PublicationIdentity | None,
    ) -> Future[AcceptedBatch]:
        self._gate.end_turn(ticket)
        durable = level == object_pb2.PUBLISH_LEVEL_DURABLE
        routing = self._gateway.publish(rows, wait_s, durable, identity)
        routing.add_done_callback(lambda _: self._gate.leave(ticket))
        return routing

    async def _finish_batch(
        self,
        routing: Future[AcceptedBatch],
        wait_s: float,
        level: Level,
        first: int,
        count: int,
        refused: Sequence[RowRefusal],
        over: Sequence[RowRefusal] = (),
    ) -> PublishOutcome:
        """Returns the outcome of `count` rows from `first` on. over: why only repeats are taken."""
        try:
            at = await await_routing(self._gateway, routing, wait_s)
            return PublishOutcome(level, at._replace(offset=at.offset + first), count, refused)
        except ResourceExhausted as error:
            return self._refuse_batch(level, count, error)._replace(refused=refused)
        except Unavailable:
            self.refused["unavailable"] += count
            raise
        except (AlreadyExists, FailedPrecondition) as error:  # it repeats what it does not equal
            self.refused["invalid"] += count
            if isinstance(error, UnknownPublication):
                return PublishOutcome(level, refused=over)
            raise

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
