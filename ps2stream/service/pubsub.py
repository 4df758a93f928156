"""The service ps2stream.v1.PubSub: raw requests in, raw answers out.

Handlers take and return bytes, so that the service itself answers a malformed request, and
deliveries pass unparsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from typing import Literal

import numpy as np

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import (
    AlreadyExists,
    FailedPrecondition,
    NotFound,
    ResourceExhausted,
    Unavailable,
    invalid,
)
from ps2stream.limits import ID_BYTES, QUERY_BYTES, REQUEST_BYTES
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateStatus
from ps2stream.protocol.rows import NEVER, QueryRows, UpdateKind
from ps2stream.security import QUOTA_RETRY_MS, TenantQuota
from ps2stream.service import query_columns
from ps2stream.service.admission import PublishRates
from ps2stream.service.calls import (
    ID_ROWS,
    PIPELINE,
    QUERY_ROWS,
    JoinedBehaviour,
    LaterAnswer,
    QuickBehaviour,
    StreamBehaviour,
    UnaryBehaviour,
    check_deadline,
    name_problem,
    parse,
    parse_batch,
    pipelined,
    settle,
    wait,
)
from ps2stream.service.deliver_streams import DeliverStreams
from ps2stream.service.gate import PublishGate
from ps2stream.service.inbox import StreamInboxes
from ps2stream.service.inquiry_calls import InquiryCalls
from ps2stream.service.interpretation import interpret_query
from ps2stream.service.listing import page
from ps2stream.service.objects import RowRefusal
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.publication_messages import split_requests
from ps2stream.service.publishing import TenantPublications
from ps2stream.service.quick import QuickReading, QuickTime
from ps2stream.service.slots import StreamSlots
from ps2stream.service.withdraw_calls import WithdrawCalls
from ps2stream.v1 import pubsub_pb2, query_pb2

SERVICE = "ps2stream.v1.PubSub"
QUICK_BYTES = 64 << 10
QUICK_MESSAGE_BYTES = 4 << 10
"""The sizes up to which updates, and queries as messages, are handled on the loop."""
PUBLICATIONS = 64
"""The publications of one stream that may wait for their answers. Their bytes are counted at the
gate; small ones join in the intake meanwhile."""


class PubSub:
    """The service for one tenant: queries and objects in, matches out; its methods are in `calls`
    and `streams`, by name. `slots` bounds the streams, `bulk` those of them that publish or insert,
    `held` what waits for subscribers. On `threads` the messages of streams are handled, on `puts`
    those of subscribers. Refusals name `quota`; `gate` and `rates` admit publications."""

    def __init__(
        self,
        gateway: DispatcherGateway,
        slots: StreamSlots,
        bulk: StreamSlots,
        held: StreamInboxes,
        threads: Executor,
        puts: Executor,
        quota: TenantQuota,
        gate: PublishGate,
        rates: PublishRates,
    ) -> None:
        self._quota = quota
        self._gateway = gateway
        self._slots = slots
        self._threads = threads
        self._reading = QuickReading(QUICK_BYTES)
        self.publishing = TenantPublications(gateway, gate, rates)
        self.delivering = DeliverStreams(gateway, held, puts)
        self.calls: dict[str, UnaryBehaviour] = {
            "InsertQuery": self._insert_query,
            "DeleteQuery": self._delete_query,
            "GetQuery": self._get_query,
            "ListQueries": self._list_queries,
            "ListDispatchers": self._list_dispatchers,
            "Publish": QuickBehaviour(self.publishing.publish, self.publishing.publish_at_once),
            **InquiryCalls(gateway).calls,
            **WithdrawCalls(gateway).calls,
        }
        self.streams: dict[str, StreamBehaviour] = {
            "InsertQueries": self._pipeline(
                QuickBehaviour(self._begin_insert, self._begin_insert_at_once), bulk
            ),
            "DeleteQueries": self._pipeline(
                QuickBehaviour(self._begin_delete, self._begin_delete_at_once)
            ),
            "PublishStream": self._pipeline(
                JoinedBehaviour(
                    QuickBehaviour(self.publishing.begin, self.publishing.begin_at_once),
                    split_requests,
                    self.publishing.begin_together,
                ),
                bulk,
                PUBLICATIONS,
            ),
            "Deliver": self._deliver_matches,
        }

    def _pipeline(
        self,
        behaviour: UnaryBehaviour | JoinedBehaviour,
        bulk: StreamSlots | None = None,
        most: int = PIPELINE,
    ) -> StreamBehaviour:
        async def handle(call: OpenCall) -> None:
            with self._slots.one(), bulk.one() if bulk else nullcontext():
                await pipelined(call, self._threads, behaviour, most)

        return handle

    async def _deliver_matches(self, call: OpenCall) -> None:
        with self._slots.one():
            await self.delivering.deliver(call)

    # --- one query ------------------------------------------------------------

    def _insert_query(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(pubsub_pb2.InsertQueryRequest, data, QUERY_BYTES, "query_bytes")
        _check_request_id(request.request_id)
        found = query_columns.read_query(request.query, self._gateway, request.retro)
        # This comes before the query is stored: what fails here has inserted nothing.
        understood = interpret_query(found.rows)
        check_deadline(call)
        rows, request_ids = _name_inserts(found, request, _read_condition(request))
        decision = wait(self._gateway.update(rows, found.sessions, request_ids), call)
        lsn = self._read_only_lsn(decision, request.query.id, request.replace)
        answer = pubsub_pb2.InsertQueryResponse(lsn=lsn, interpretation=understood)
        return answer.SerializeToString()

    def _delete_query(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(pubsub_pb2.DeleteQueryRequest, data, REQUEST_BYTES, "request_bytes")
        _check_name("id", request.id)
        _check_request_id(request.request_id)
        check_deadline(call)
        rows = query_columns.deletes([request.id])
        decision = wait(self._gateway.update(rows, [""], [request.request_id]), call)
        lsn = self._read_only_lsn(decision, request.id)
        return pubsub_pb2.DeleteQueryResponse(lsn=lsn).SerializeToString()

    def _get_query(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(pubsub_pb2.GetQueryRequest, data, REQUEST_BYTES, "request_bytes")
        _check_name("id", request.id)
        reply = wait(self._gateway.lookup(request.id, 0, 0, 1), call)
        found = query_columns.describe(reply)
        if not found:
            raise NotFound(f"there is no query {request.id!r}")
        query, handle = found[0]
        return pubsub_pb2.GetQueryResponse(query=query, lsn=handle).SerializeToString()

    def _list_queries(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(pubsub_pb2.ListQueriesRequest, data, REQUEST_BYTES, "request_bytes")
        answer = pubsub_pb2.ListQueriesResponse()
        size, token, session = request.page_size, request.page_token, 0
        if request.session:
            _check_name("session", request.session)
            session = wait(self._gateway.session(request.session), call).session
            if not session:  # an unknown session has no query, and 0 would mean all sessions
                page(self._gateway, 0, min(size, 1), token, answer, call)
                empty = pubsub_pb2.ListQueriesResponse(total_live=answer.total_live)
                return empty.SerializeToString()
        return page(self._gateway, session, size, token, answer, call).SerializeToString()

    def _list_dispatchers(self, data: bytes, call: OpenCall) -> bytes:
        parse(pubsub_pb2.ListDispatchersRequest, data, REQUEST_BYTES, "request_bytes")
        endpoints = self._gateway.status().get("endpoints", ())
        return pubsub_pb2.ListDispatchersResponse(endpoints=endpoints).SerializeToString()

    # --- many queries ---------------------------------------------------------

    def _begin_insert_at_once(self, data: bytes, call: OpenCall) -> LaterAnswer | None:
        """Begins a small batch on the loop. Queries as messages may have polygons, which take long
        to read, so that there are fewer bytes of them."""
        if not self._gateway.never_blocks or not self._reading.expects(len(data)):
            return None
        request = parse_batch(pubsub_pb2.InsertQueriesRequest, data, QUERY_ROWS)
        if request.batch.queries and len(data) > QUICK_MESSAGE_BYTES:
            return None
        return self._begin_parsed(len(data), request, call)

    def _begin_insert(self, data: bytes, call: OpenCall) -> LaterAnswer:
        request = parse_batch(pubsub_pb2.InsertQueriesRequest, data, QUERY_ROWS)
        return self._begin_parsed(len(data), request, call)

    def _begin_parsed(
        self, size_bytes: int, request: pubsub_pb2.InsertQueriesRequest, call: OpenCall
    ) -> LaterAnswer:
        _check_request_id(request.request_id)
        time = QuickTime(is_limited=False)
        try:
            found = query_columns.read_queries(request.batch, self._gateway, request.retro)
        finally:
            self._reading.note(size_bytes, time.taken_s)
        answer = pubsub_pb2.InsertQueriesResponse()
        rows, request_ids = _name_inserts(found, request)
        return self._begin_update(
            answer, found.n, found.at, rows, found.sessions, request_ids, found.refused, call
        )

    def _begin_delete_at_once(self, data: bytes, call: OpenCall) -> LaterAnswer | None:
        if not self._gateway.never_blocks or len(data) > QUICK_BYTES:
            return None
        return self._begin_delete(data, call)

    def _begin_delete(self, data: bytes, call: OpenCall) -> LaterAnswer:
        request = parse_batch(pubsub_pb2.DeleteQueriesRequest, data, ID_ROWS)
        _check_request_id(request.request_id)
        if not request.ids:
            raise invalid("ids", "holds no id")
        rows, at, refused = query_columns.read_deletes(request.ids)
        answer = pubsub_pb2.DeleteQueriesResponse()
        request_ids = [request.request_id] * len(at)
        return self._begin_update(
            answer, len(request.ids), at, rows, [""] * len(at), request_ids, refused, call
        )

    def _begin_update(
        self,
        answer: pubsub_pb2.InsertQueriesResponse | pubsub_pb2.DeleteQueriesResponse,
        n: int,
        at: I64,
        rows: QueryRows,
        sessions: Sequence[str],
        request_ids: Sequence[str],
        refused: list[RowRefusal],
        call: OpenCall,
    ) -> LaterAnswer:
        """Sends the good rows, which are rows `at` of the n, to the gateway; returns what waits for
        the answer."""
        deciding = self._gateway.update(rows, sessions, request_ids) if len(at) else None

        async def finish() -> bytes:
            lsns = np.zeros(n, np.int64)
            errors = list(refused)
            if deciding is not None:
                decision = await settle(deciding, call)
                if (decision.status == int(UpdateStatus.UNAVAILABLE)).any():
                    raise Unavailable("the ledger could not be written; nothing was done")
                failed = np.flatnonzero(decision.status != int(UpdateStatus.OK))
                lsns[at] = decision.lsn
                lsns[at[failed]] = 0
                statuses = decision.status[failed].tolist()
                replaces = rows.kind[failed] == _REPLACE
                errors += map(self._make_refusal, at[failed].tolist(), statuses, replaces.tolist())
            answer.lsns.extend(lsns.tolist())
            answer.errors.extend(e.to_proto() for e in sorted(errors))
            return answer.SerializeToString()

        return finish

    def _read_only_lsn(self, decision: UpdateDecision, id: str, replaces: bool = False) -> int:
        """Returns the LSN of the only row. Raises the error that its status stands for."""
        match int(decision.status[0]):
            case UpdateStatus.OK:
                return int(decision.lsn[0])
            case UpdateStatus.ALREADY_EXISTS:
                raise AlreadyExists(f"query {id!r} {_ELSEWHERE if replaces else _EXISTS}")
            case UpdateStatus.NOT_FOUND:
                raise NotFound(f"there is no query {id!r}")
            case UpdateStatus.FAILED_PRECONDITION:
                raise FailedPrecondition(f"the live query {id!r} has another LSN than if_lsn, or "
                                         "there is none; nothing was replaced")  # fmt: skip
            case UpdateStatus.QUERY_QUOTA | UpdateStatus.SESSION_QUOTA as status:
                raise ResourceExhausted(self._describe_quota(status), QUOTA_RETRY_MS)
            case _:
                raise Unavailable("the ledger could not be written; nothing was done")

    def _make_refusal(self, row: int, status: int, replaces: bool) -> RowRefusal:
        match status:
            case UpdateStatus.ALREADY_EXISTS:
                code = query_pb2.ROW_CODE_ALREADY_EXISTS
                problem = f"the query {_ELSEWHERE if replaces else _EXISTS}"
                return RowRefusal(row, "id", problem, code)
            case UpdateStatus.QUERY_QUOTA | UpdateStatus.SESSION_QUOTA:
                code = query_pb2.ROW_CODE_RESOURCE_EXHAUSTED
                return RowRefusal(row, "id", self._describe_quota(status), code)
            case _:
                return RowRefusal(row, "id", "there is no such query", query_pb2.ROW_CODE_NOT_FOUND)

    def _describe_quota(self, status: int) -> str:
        if status == UpdateStatus.QUERY_QUOTA:
            return f"the tenant has {self._quota.queries} live queries, its quota (queries)"
        return f"the tenant has {self._quota.sessions} sessions, its quota (sessions)"


_REPLACE = np.uint8(UpdateKind.REPLACE)
_EXISTS = "exists with another expression, region, session or end"
_ELSEWHERE = "exists in another session, and only a query of the same session can be replaced"


def _name_inserts(
    found: query_columns.QueryInserts,
    request: pubsub_pb2.InsertQueryRequest | pubsub_pb2.InsertQueriesRequest,
    if_lsn: int = 0,
) -> tuple[QueryRows, Sequence[str]]:
    """Returns the inserts as the request wants them, and the request id of each."""
    if request.replace:
        return query_columns.make_replacements(found.rows, found.at, request.request_id, if_lsn)
    return found.rows, [request.request_id] * len(found.at)


def _read_condition(request: pubsub_pb2.InsertQueryRequest) -> int:
    """Returns the LSN of the query that may be replaced, 0 for any. Raises InvalidArgument."""
    if request.if_lsn and not request.replace:
        raise invalid("if_lsn", "is set without replace")
    if request.if_lsn >= NEVER:
        raise invalid("if_lsn", f"expected an LSN below 2^63 - 1, got {request.if_lsn}")
    return request.if_lsn


def _check_name(field: Literal["id", "session"], value: str) -> None:
    if problem := name_problem(value, field):
        raise invalid(field, problem)


def _check_request_id(value: str) -> None:
    size = len(value.encode())
    if size > ID_BYTES:
        raise invalid("request_id", f"expected 0 to {ID_BYTES} bytes, got {size} (limit id_bytes)")
