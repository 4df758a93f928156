"""The synchronous client.

with Client("localhost:7077") as client:
    client.insert("thames", "flood AND (river OR creek)", region=Circle(-0.12, 51.5, 30))
    with client.subscribe() as matches:
        for match in matches:
            print(match.query_id, match.text)
"""

from __future__ import annotations

import builtins
import queue
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import pyarrow as pa
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from ps2stream.client import answers, requests
from ps2stream.client.answers import InsertedQuery, Moves, Receipt, Refused, TokenInfo, Watched
from ps2stream.client.connection import File, access
from ps2stream.client.inputs import request_of
from ps2stream.client.matches import Receiver
from ps2stream.client.requests import Places, Query
from ps2stream.client.subscription import Subscription, next_answer, rpc_error
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.v1 import admin_pb2, explain_pb2, pubsub_pb2

__all__ = ["Client", "Subscription"]

A = TypeVar("A", bound=Message)
T = TypeVar("T")
PUBSUB = "/ps2stream.v1.PubSub/"
ADMIN = "/ps2stream.v1.Admin/"
BULK_WINDOW = 8


class Client:
    """A connection to a dispatcher. Safe for several threads.

    token: what `ps2stream token create` printed. tls_ca: a PEM file, or "system"; tls_cert and
    tls_key: a certificate of this client's own.
    timeout: seconds for a call with all its retries. Calls that a full service refuses are
    retried; so are, after a lost connection, those that cannot do their work twice (all but
    publishing). Raises the errors of `ps2stream.errors`, and TimeoutError.
    """

    def __init__(
        self,
        target: str = requests.DEFAULT_TARGET,
        *,
        timeout: float = 30.0,
        token: str | None = None,
        tls_ca: File | None = None,
        tls_cert: File | None = None,
        tls_key: File | None = None,
    ) -> None:
        trust, self._metadata = access(target, token, tls_ca, tls_cert, tls_key)
        self.target = target
        self._timeout = timeout
        self._channel = (
            grpc.insecure_channel(target, requests.CHANNEL_OPTIONS)
            if trust is None
            else grpc.secure_channel(target, trust, requests.CHANNEL_OPTIONS)
        )
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    def close(self) -> None:
        """End the connection and every subscription on it."""
        for subscription in tuple(self._subscriptions):
            subscription.close()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def health(self) -> None:
        """Return once the service says that it serves; it asks nobody for a token. Raises
        Unavailable."""
        request, kind = health_pb2.HealthCheckRequest(), health_pb2.HealthCheckResponse
        found = self._call_rpc("/grpc.health.v1.Health/Check", request, kind)
        if found.status != kind.SERVING:
            raise Unavailable(f"{self.target} answers, and does not serve")

    # --- queries --------------------------------------------------------------

    def insert(
        self, id: str, expression: str = "", region: Places = None, *, session: str = "default"
    ) -> InsertedQuery:
        """Insert a query; its LSN, with what the service understood: expression, area, warnings.
        Later objects, through any dispatcher, are matched against it. Repeating it is harmless;
        AlreadyExists for another query under a taken id."""
        request = requests.insert_request(id, expression, region, session)
        answer = self._call_rpc("InsertQuery", request, pubsub_pb2.InsertQueryResponse)
        return answers.inserted_query_of(answer)

    def insert_many(
        self,
        queries: Iterable[Any],
        *,
        session: str = "default",
        refused: list[Refused] | None = None,
    ) -> list[int]:
        """Insert queries, each a Query, a mapping, or (id, expression[, region]); their LSNs.
        All good ones are inserted; bad ones go to `refused`, or raise without it."""
        bulk = answers.BulkAnswers()
        batches = requests.insert_batches(queries, session)
        for answer in self._send_bulk("InsertQueries", batches, pubsub_pb2.InsertQueriesResponse):
            bulk.add(answer)
        return bulk.result(refused)

    def delete(self, id: str) -> int:
        """Delete a query; the LSN of that. NotFound when there is none."""
        request = request_of(
            pubsub_pb2.DeleteQueryRequest, id=id, request_id=requests.new_request_id()
        )
        return self._call_rpc("DeleteQuery", request, pubsub_pb2.DeleteQueryResponse).lsn

    def delete_many(self, ids: Iterable[str], *, refused: list[Refused] | None = None) -> list[int]:
        """Delete queries; the LSNs. Unknown ids go to `refused`, or raise without it."""
        bulk = answers.BulkAnswers()
        batches = requests.delete_batches(ids)
        for answer in self._send_bulk("DeleteQueries", batches, pubsub_pb2.DeleteQueriesResponse):
            bulk.add(answer)
        return bulk.result(refused)

    def get(self, id: str) -> Query:
        """A live query, its expression as typed. NotFound when there is none."""
        request = request_of(pubsub_pb2.GetQueryRequest, id=id)
        return answers.query_of(
            self._call_rpc("GetQuery", request, pubsub_pb2.GetQueryResponse).query
        )

    def list(self, session: str | None = None, *, page_size: int = 500) -> Iterator[Query]:
        """Live queries in the order of their insertion, of one session or of all."""
        token = ""
        while True:
            request = request_of(
                pubsub_pb2.ListQueriesRequest,
                session="" if session is None else session,
                page_size=page_size,
                page_token=token,
            )
            page = self._call_rpc("ListQueries", request, pubsub_pb2.ListQueriesResponse)
            yield from map(answers.query_of, page.queries)
            token = page.next_page_token
            if not token:
                return

    # --- why, and what it would cost --------------------------------------------

    def explain(self, query_id: str, thing: Any) -> dict[str, Any]:
        """Why an object (a mapping: lon, lat, text) would match a live query, or would not; as
        in ExplainMatchResponse. Nothing is published. NotFound when there is no such query."""
        request = requests.explain_request(query_id, thing)
        found = self._call_rpc("ExplainMatch", request, explain_pb2.ExplainMatchResponse)
        return answers.explanation_of(found)

    def price(self, expression: str = "", region: Places = None) -> dict[str, Any]:
        """How many matches a second a query would bring, and what work it would make, by the
        objects that this dispatcher lately accepted; as in PriceQueryResponse. Nothing is
        inserted. FailedPrecondition where there were none."""
        request = requests.price_request(expression, region)
        return answers.plain(self._call_rpc("PriceQuery", request, explain_pb2.PriceQueryResponse))

    # --- objects --------------------------------------------------------------

    def publish(
        self, objects: Any, *, level: str = "durable", allow_partial: bool = False
    ) -> Receipt:
        """Publish one batch: rows that are mappings (lon, lat, text; id and time where there
        are), a mapping of columns, or a record batch. Taken whole or refused whole, unless
        `allow_partial`."""
        request = requests.publish_request(objects, level, allow_partial)
        answer = self._call_rpc("Publish", request, pubsub_pb2.PublishResponse, repeatable=False)
        return answers.receipt_of(answer)

    def publish_arrow(
        self, batch: pa.RecordBatch, *, level: str = "durable", allow_partial: bool = False
    ) -> Receipt:
        """Publish one record batch: lon, lat, text and perhaps id and time."""
        return self.publish(batch, level=level, allow_partial=allow_partial)

    def publish_stream(
        self,
        batches: Iterable[Any],
        *,
        level: str = "durable",
        allow_partial: bool = False,
        in_flight: int = 8,
    ) -> Iterator[Receipt]:
        """Publish batch after batch, `in_flight` of them without an answer; a receipt for
        each, in order. One with `retry_after_ms` was not accepted: the service was full."""
        encoded = (
            requests.publish_stream_request(b, level, allow_partial).SerializeToString()
            for b in batches
        )
        for data in self._send_windowed("PublishStream", encoded, in_flight):
            yield answers.receipt_of(pubsub_pb2.PublishStreamResponse.FromString(data))

    # --- matches --------------------------------------------------------------

    def subscribe(
        self,
        session: str = "default",
        *,
        text: bool = True,
        position: bool = True,
        time: bool = True,
        reconnect: bool = True,
        cursor: bytes = b"",
    ) -> Subscription:
        """The matches of a session, one by one or as `batches()`. Opens the stream before it
        returns. The newest stream of a session wins: an older one raises FailedPrecondition.
        With `reconnect` a lost connection is taken up again. `cursor`: where an earlier
        subscription had come to; FailedPrecondition when it is of another service."""
        receiver = Receiver(session, text=text, position=position, time=time, cursor=cursor)
        made = Subscription(self._open_stream("Deliver"), receiver, reconnect, self._timeout)
        self._subscriptions.add(made)
        return made

    def status(self) -> dict[str, Any]:
        """What the dispatcher knows: version, live_queries, in_flight, counters."""
        request = admin_pb2.GetStatusRequest()
        return answers.status_of(
            self._call_rpc(f"{ADMIN}GetStatus", request, admin_pb2.GetStatusResponse)
        )

    def sample(self) -> pa.Table:
        """Some of the objects that the dispatcher lately accepted: id, time (Unix ms), lon,
        lat (degrees), text, weight (the objects that a row stands for), accepted (Unix ms).
        `answers.since_of` tells from when on nothing is missing."""
        call: Any = self._channel.unary_stream(f"{ADMIN}SampleObjects")
        request = admin_pb2.SampleObjectsRequest().SerializeToString()
        parts = self._retry_call(lambda left: list(call(request, left, self._metadata)), True)
        return answers.sample_of(parts)

    def watch(self) -> Generator[Watched, None, None]:
        """Some of the objects that the dispatcher accepts, and some matches of one's own queries,
        ten times a second. The first, which is empty, comes at once."""
        call: Any = self._channel.unary_stream(f"{ADMIN}Watch")
        stream = call(admin_pb2.WatchRequest().SerializeToString(), metadata=self._metadata)
        try:
            while True:
                yield answers.watched_of(next_answer(stream))
        finally:
            stream.cancel()

    def list_all(self, *, page_size: int = 500) -> Iterator[Query]:
        """Live queries of all tenants, under the names that these know. Needs the scope admin."""
        token, name = "", f"{ADMIN}ListAllQueries"
        while True:
            request = request_of(
                admin_pb2.ListAllQueriesRequest, page_size=page_size, page_token=token
            )
            page = self._call_rpc(name, request, admin_pb2.ListAllQueriesResponse)
            yield from map(answers.query_of, page.queries)
            token = page.next_page_token
            if not token:
                return

    # --- load -----------------------------------------------------------------

    def load(self) -> dict[str, Any]:
        """What the workers had to do in the last periods, and the hottest parts of cells; names
        and units as in GetLoadResponse. Needs the scope admin, as all here."""
        request = admin_pb2.GetLoadRequest()
        found = self._call_rpc(f"{ADMIN}GetLoad", request, admin_pb2.GetLoadResponse)
        return answers.plain(found)

    def rebalance(self, algorithm: str = "gr+", *, dry_run: bool = False) -> dict[str, Any]:
        """Begin to move parts of cells from the most to the least loaded workers, or only say
        what would move; as in RebalanceResponse. FailedPrecondition while plans change, and
        until a whole period has passed since."""
        request = request_of(admin_pb2.RebalanceRequest, algorithm=algorithm, dry_run=dry_run)
        found = self._call_rpc(
            f"{ADMIN}Rebalance", request, admin_pb2.RebalanceResponse, repeatable=False
        )
        return answers.plain(found)

    # --- plans ----------------------------------------------------------------

    def moves(self) -> Moves:
        """The plan in force, the move under way, and those that ended. Needs the scope admin, as
        all here."""
        found = self._call_rpc(
            f"{ADMIN}GetMoves", admin_pb2.GetMovesRequest(), admin_pb2.GetMovesResponse
        )
        return answers.moves_of(found)

    def plan(self) -> bytes:
        """The plan in force, in JSON."""
        request = admin_pb2.GetPlanRequest()
        return self._call_rpc(f"{ADMIN}GetPlan", request, admin_pb2.GetPlanResponse).plan

    def apply_plan(self, plan: bytes, *, coexist: bool = False) -> tuple[int, int]:
        """Begin the move to this plan (JSON), or let it `coexist`: new queries belong to it, those
        of before to the plan in force; LSN and version. Waits for workers to start.
        FailedPrecondition when it was not derived from the plan in force, during a move, and
        while two plans coexist."""
        request = request_of(admin_pb2.ApplyPlanRequest, plan=plan, coexist=coexist)
        found = self._call_rpc(f"{ADMIN}ApplyPlan", request, admin_pb2.ApplyPlanResponse)
        return found.lsn, found.version

    def unite_plans(self) -> tuple[int, int]:
        """Begin to move what is left of the old plan to the one that coexists with it; LSN, and
        the latter's version. FailedPrecondition where there are no two."""
        request = admin_pb2.UnitePlansRequest()
        found = self._call_rpc(f"{ADMIN}UnitePlans", request, admin_pb2.UnitePlansResponse)
        return found.lsn, found.version

    def abort_move(self) -> tuple[int, int]:
        """Give up the move under way; LSN, and the version that stays. FailedPrecondition once
        objects are routed by the new plan."""
        request = admin_pb2.AbortMoveRequest()
        found = self._call_rpc(f"{ADMIN}AbortMove", request, admin_pb2.AbortMoveResponse)
        return found.lsn, found.version

    def scale(self, workers: int) -> tuple[int, int]:
        """Begin the move to so many workers; LSN, and the version of the plan that was made for
        them. Waits for workers to start."""
        request = request_of(admin_pb2.ScaleWorkersRequest, workers=workers)
        found = self._call_rpc(f"{ADMIN}ScaleWorkers", request, admin_pb2.ScaleWorkersResponse)
        return found.lsn, found.version

    # --- tokens ---------------------------------------------------------------

    def create_token(
        self,
        tenant: str = "",
        scopes: Iterable[str] = ("publish", "subscribe"),
        expires_ms: int = 0,
    ) -> tuple[TokenInfo, str]:
        """A new token, and its secret, which is not to be had again. Scopes: publish, subscribe,
        admin. expires_ms: Unix milliseconds; 0: never. Needs the scope admin, as all here."""
        request = answers.create_token_request(tenant, scopes, expires_ms)
        name, kind = f"{ADMIN}CreateToken", admin_pb2.CreateTokenResponse
        found = self._call_rpc(name, request, kind, repeatable=False)
        return answers.token_of(found.token), found.secret

    def tokens(self) -> builtins.list[TokenInfo]:
        """All tokens, without their secrets."""
        request = admin_pb2.ListTokensRequest()
        found = self._call_rpc(f"{ADMIN}ListTokens", request, admin_pb2.ListTokensResponse)
        return [answers.token_of(token) for token in found.tokens]

    def revoke_token(self, id: str) -> None:
        """Make a token invalid within seconds, also for open streams. NotFound without one."""
        request = request_of(admin_pb2.RevokeTokenRequest, id=id)
        self._call_rpc(f"{ADMIN}RevokeToken", request, admin_pb2.RevokeTokenResponse)

    # --- calls ----------------------------------------------------------------

    def _open_stream(self, name: str) -> Any:
        return partial(self._channel.stream_stream(PUBSUB + name), metadata=self._metadata)

    def _call_rpc(
        self, name: str, request: Message, kind: type[A], *, repeatable: bool = True
    ) -> A:
        call: Any = self._channel.unary_unary(name if name.startswith("/") else PUBSUB + name)
        data = request.SerializeToString()
        return kind.FromString(
            self._retry_call(lambda left: call(data, left, self._metadata), repeatable)
        )

    def _send_windowed(self, name: str, requests: Iterable[bytes], window: int) -> Iterator[bytes]:
        """One stream: answers in order, with at most `window` requests unanswered. Requests
        are made on the caller's thread, so that their errors are the caller's."""
        outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = self._open_stream(name)(iter(outbox.get, None))
        unanswered = 0
        try:
            for request in requests:
                outbox.put(request)
                unanswered += 1
                if unanswered >= window:
                    yield next_answer(call)
                    unanswered -= 1
            outbox.put(None)
            for _ in range(unanswered):
                yield next_answer(call)
        finally:
            outbox.put(None)
            call.cancel()

    def _send_bulk(self, name: str, requests: Iterable[Message], kind: type[A]) -> Iterator[A]:
        """Answers to idempotent batches; after a lost connection those without an answer are
        sent again."""
        unanswered: deque[bytes] = deque()

        def sending() -> Iterator[bytes]:
            for request in source:
                unanswered.append(request.SerializeToString())
                yield unanswered[-1]

        source = iter(requests)
        tries, deadline = 0, time.monotonic() + self._timeout
        while True:
            try:
                again = tuple(unanswered)
                for data in self._send_windowed(name, chain(again, sending()), BULK_WINDOW):
                    unanswered.popleft()
                    yield kind.FromString(data)
                    tries, deadline = 0, time.monotonic() + self._timeout
                return
            except (Unavailable, ResourceExhausted) as error:
                pause = answers.pause_before(error, tries, True)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            tries += 1

    def _retry_call(self, attempt: Callable[[float], T], repeatable: bool) -> T:
        deadline = time.monotonic() + self._timeout
        tries = 0
        while True:
            try:
                return attempt(max(0.001, deadline - time.monotonic()))
            except grpc.RpcError as error:
                found = rpc_error(error)
                pause = answers.pause_before(found, tries, repeatable)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise found from None
            time.sleep(pause)
            tries += 1
