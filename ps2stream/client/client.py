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
from ps2stream.client.answers import (
    InsertedQuery,
    MigrationHistory,
    Receipt,
    RefusedRow,
    TokenInfo,
    WatchReport,
)
from ps2stream.client.connection import File, access
from ps2stream.client.inputs import request_of
from ps2stream.client.matches import MatchReceiver
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
    """A connection to a dispatcher. It may be used by several threads.

    `token` is what `ps2stream token create` printed. `tls_ca` is a PEM file of the authorities to
    trust, or "system" for those that this machine trusts; `tls_cert` and `tls_key` are PEM files
    with a certificate of the client's own. `timeout` is in seconds, for a call with all its
    retries.

    Calls that a full service refuses are retried. After a lost connection, only calls that cannot
    do their work twice are retried, so neither publishing nor `rebalance` nor `create_token`.
    Methods raise the errors of `ps2stream.errors`, and TimeoutError.
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
        """Ends the connection and every subscription on it."""
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
        """Returns once the service answers that it is serving, for which no token is needed. Raises
        Unavailable when it is not."""
        request, kind = health_pb2.HealthCheckRequest(), health_pb2.HealthCheckResponse
        found = self._call_rpc("/grpc.health.v1.Health/Check", request, kind)
        if found.status != kind.SERVING:
            raise Unavailable(f"{self.target} answers, and does not serve")

    # --- queries --------------------------------------------------------------

    def insert(
        self, id: str, expression: str = "", region: Places = None, *, session: str = "default"
    ) -> InsertedQuery:
        """Inserts a query and returns its LSN, with what the service understood of it: expression,
        area and warnings. Objects that are published later, through any dispatcher, are matched
        against it, and the matches go to `session`. Repeating an insert is harmless. Raises
        AlreadyExists when the id is taken by another query."""
        request = requests.insert_request(id, expression, region, session)
        answer = self._call_rpc("InsertQuery", request, pubsub_pb2.InsertQueryResponse)
        return answers.inserted_query_of(answer)

    def insert_many(
        self,
        queries: Iterable[Any],
        *,
        session: str = "default",
        refused: list[RefusedRow] | None = None,
    ) -> list[int]:
        """Inserts queries, each a Query, a mapping or a tuple (id, expression[, region]), and
        returns their LSNs, 0 for each that was refused. The others are inserted all the same.
        Queries that the service refuses are added to `refused`; without that list they raise an
        error once all were sent."""
        bulk = answers.BulkAnswers()
        batches = requests.insert_batches(queries, session)
        for answer in self._send_bulk("InsertQueries", batches, pubsub_pb2.InsertQueriesResponse):
            bulk.add(answer)
        return bulk.result(refused)

    def delete(self, id: str) -> int:
        """Deletes a query and returns the LSN of the delete. Raises NotFound when there is no such
        query."""
        request = request_of(
            pubsub_pb2.DeleteQueryRequest, id=id, request_id=requests.new_request_id()
        )
        return self._call_rpc("DeleteQuery", request, pubsub_pb2.DeleteQueryResponse).lsn

    def delete_many(
        self, ids: Iterable[str], *, refused: list[RefusedRow] | None = None
    ) -> list[int]:
        """Deletes queries and returns the LSNs of the deletes, 0 for each that was refused. Ids
        that are refused, such as unknown ones, are added to `refused`; without that list they raise
        an error once all were sent."""
        bulk = answers.BulkAnswers()
        batches = requests.delete_batches(ids)
        for answer in self._send_bulk("DeleteQueries", batches, pubsub_pb2.DeleteQueriesResponse):
            bulk.add(answer)
        return bulk.result(refused)

    def get(self, id: str) -> Query:
        """Returns a live query, with its expression as it was typed. Raises NotFound when there is
        none."""
        request = request_of(pubsub_pb2.GetQueryRequest, id=id)
        return answers.query_of(
            self._call_rpc("GetQuery", request, pubsub_pb2.GetQueryResponse).query
        )

    def list(self, session: str | None = None, *, page_size: int = 500) -> Iterator[Query]:
        """Yields the live queries of one session, or of all, in the order of their insertion."""
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
        """Explains why an object (a mapping with lon, lat and text) matches a live query or does
        not, as a dict with the fields of ExplainMatchResponse. Nothing is published. Raises
        NotFound when there is no such query."""
        request = requests.explain_request(query_id, thing)
        found = self._call_rpc("ExplainMatch", request, explain_pb2.ExplainMatchResponse)
        return answers.explanation_of(found)

    def price(self, expression: str = "", region: Places = None) -> dict[str, Any]:
        """Estimates how many matches a second a query would bring and how much work it would make,
        from the objects that this dispatcher accepted lately, as a dict with the fields of
        PriceQueryResponse. Nothing is inserted. Raises FailedPrecondition when there are no such
        objects."""
        request = requests.price_request(expression, region)
        return answers.plain(self._call_rpc("PriceQuery", request, explain_pb2.PriceQueryResponse))

    # --- objects --------------------------------------------------------------

    def publish(
        self, objects: Any, *, level: str = "durable", allow_partial: bool = False
    ) -> Receipt:
        """Publishes one batch and returns its receipt.

        The objects are rows that are mappings (lon, lat, text and optionally id and time), a
        mapping of columns with these names, a record batch, a table or data frame, or GeoJSON
        features. A time is in Unix milliseconds or a datetime with a time zone. The batch is
        accepted whole or refused whole, unless `allow_partial` is set.

        The level says when the service answers: "durable" once the objects are synced to the object
        log, "accepted" while they are in memory, so that a crash may lose them. "none" is like
        "accepted", but a full service drops the batch instead of raising an error.
        """
        request = requests.publish_request(objects, level, allow_partial)
        answer = self._call_rpc("Publish", request, pubsub_pb2.PublishResponse, repeatable=False)
        return answers.receipt_of(answer)

    def publish_arrow(
        self, batch: pa.RecordBatch, *, level: str = "durable", allow_partial: bool = False
    ) -> Receipt:
        """Publishes one record batch with the columns lon, lat, text and optionally id and time."""
        return self.publish(batch, level=level, allow_partial=allow_partial)

    def publish_stream(
        self,
        batches: Iterable[Any],
        *,
        level: str = "durable",
        allow_partial: bool = False,
        in_flight: int = 8,
    ) -> Iterator[Receipt]:
        """Publishes batch after batch, with up to `in_flight` of them unanswered, and yields a
        receipt for each, in order. A receipt with `retry_after_ms` means that its batch was not
        accepted, because the service was full."""
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
        """Opens the stream of a session's matches, which come one by one or as `batches()`. `text`,
        `position` and `time` say which fields of the objects are sent.

        The stream is open when this returns. The newest stream of a session wins: an older one
        raises FailedPrecondition. With `reconnect`, a stream whose connection is lost is opened
        again. `cursor` says how far an earlier subscription had come; raises FailedPrecondition
        when it comes from another service.
        """
        receiver = MatchReceiver(session, text=text, position=position, time=time, cursor=cursor)
        made = Subscription(self._open_stream("Deliver"), receiver, reconnect, self._timeout)
        self._subscriptions.add(made)
        return made

    def status(self) -> dict[str, Any]:
        """Returns the state of the dispatcher: version, live_queries, in_flight, problems, counters
        and more. Needs the scope admin."""
        request = admin_pb2.GetStatusRequest()
        return answers.status_of(
            self._call_rpc(f"{ADMIN}GetStatus", request, admin_pb2.GetStatusResponse)
        )

    def sample(self) -> pa.Table:
        """Returns a sample of the objects that the dispatcher accepted lately, as a table with the
        columns id, time (Unix ms), lon, lat (degrees), text, weight (how many objects the row
        stands for) and accepted (Unix ms). `ps2stream.posts.sample.since_of` returns the time since
        which the table covers all objects. Needs the scope admin."""
        call: Any = self._channel.unary_stream(f"{ADMIN}SampleObjects")
        request = admin_pb2.SampleObjectsRequest().SerializeToString()
        parts = self._retry_call(lambda left: list(call(request, left, self._metadata)), True)
        return answers.sample_of(parts)

    def watch(self) -> Generator[WatchReport, None, None]:
        """Yields, ten times a second, some of the objects that the dispatcher accepts and some
        matches of the caller's own queries. The first message, which is empty, comes at once."""
        call: Any = self._channel.unary_stream(f"{ADMIN}Watch")
        stream = call(admin_pb2.WatchRequest().SerializeToString(), metadata=self._metadata)
        try:
            while True:
                yield answers.watched_of(next_answer(stream))
        finally:
            stream.cancel()

    def list_all(self, *, page_size: int = 500) -> Iterator[Query]:
        """Yields the live queries of all tenants, with ids and sessions as their tenants name them.
        Needs the scope admin."""
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
        """Returns the work of the workers in the last periods and the hottest parts of cells, as a
        dict with the names and units of GetLoadResponse. Needs the scope admin."""
        request = admin_pb2.GetLoadRequest()
        found = self._call_rpc(f"{ADMIN}GetLoad", request, admin_pb2.GetLoadResponse)
        return answers.plain(found)

    def rebalance(self, algorithm: str = "gr+", *, dry_run: bool = False) -> dict[str, Any]:
        """Begins to migrate parts of cells from the most to the least loaded workers, or with
        `dry_run` only finds what would migrate. Returns a dict with the fields of
        RebalanceResponse. Raises FailedPrecondition during a plan change, and until a whole period
        has passed since. Needs the scope admin."""
        request = request_of(admin_pb2.RebalanceRequest, algorithm=algorithm, dry_run=dry_run)
        found = self._call_rpc(
            f"{ADMIN}Rebalance", request, admin_pb2.RebalanceResponse, repeatable=False
        )
        return answers.plain(found)

    # --- plans ----------------------------------------------------------------

    def migrations(self) -> MigrationHistory:
        """Returns the plan in force, the plan change under way and those that ended. Needs the
        scope admin."""
        found = self._call_rpc(
            f"{ADMIN}GetMigrations",
            admin_pb2.GetMigrationsRequest(),
            admin_pb2.GetMigrationsResponse,
        )
        return answers.migrations_of(found)

    def plan(self) -> bytes:
        """Returns the plan in force as JSON. Needs the scope admin."""
        request = admin_pb2.GetPlanRequest()
        return self._call_rpc(f"{ADMIN}GetPlan", request, admin_pb2.GetPlanResponse).plan

    def apply_plan(self, plan: bytes, *, coexist: bool = False) -> tuple[int, int]:
        """Begins the change to this plan (JSON) and returns its LSN and the plan's version. With
        `coexist` both plans serve: new queries belong to this one, earlier queries stay with the
        plan in force. Waits for workers to start. Raises FailedPrecondition when the plan was not
        derived from the plan in force, during a plan change, and while two plans coexist. Needs the
        scope admin."""
        request = request_of(admin_pb2.ApplyPlanRequest, plan=plan, coexist=coexist)
        found = self._call_rpc(f"{ADMIN}ApplyPlan", request, admin_pb2.ApplyPlanResponse)
        return found.lsn, found.version

    def unite_plans(self) -> tuple[int, int]:
        """Begins to migrate what is left of the old plan to the one that coexists with it, and
        returns the LSN and the version of the latter. Raises FailedPrecondition when no two plans
        coexist. Needs the scope admin."""
        request = admin_pb2.UnitePlansRequest()
        found = self._call_rpc(f"{ADMIN}UnitePlans", request, admin_pb2.UnitePlansResponse)
        return found.lsn, found.version

    def abort_migration(self) -> tuple[int, int]:
        """Aborts the plan change under way and returns the LSN and the version of the plan that
        stays in force. Raises FailedPrecondition once objects are routed by the new plan. Needs the
        scope admin."""
        request = admin_pb2.AbortMigrationRequest()
        found = self._call_rpc(f"{ADMIN}AbortMigration", request, admin_pb2.AbortMigrationResponse)
        return found.lsn, found.version

    def scale(self, workers: int) -> tuple[int, int]:
        """Begins the change to this number of workers and returns the LSN and the version of the
        plan that was made for them. Waits for workers to start. Needs the scope admin."""
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
        """Creates a token and returns it with its secret, which cannot be read again later. The
        scopes are publish, subscribe and admin; `expires_ms` is in Unix milliseconds, 0 for never.
        Needs the scope admin."""
        request = answers.create_token_request(tenant, scopes, expires_ms)
        name, kind = f"{ADMIN}CreateToken", admin_pb2.CreateTokenResponse
        found = self._call_rpc(name, request, kind, repeatable=False)
        return answers.token_of(found.token), found.secret

    def tokens(self) -> builtins.list[TokenInfo]:
        """Returns all tokens, without their secrets. Needs the scope admin."""
        request = admin_pb2.ListTokensRequest()
        found = self._call_rpc(f"{ADMIN}ListTokens", request, admin_pb2.ListTokensResponse)
        return [answers.token_of(token) for token in found.tokens]

    def revoke_token(self, id: str) -> None:
        """Makes a token invalid within seconds, also for open streams. Raises NotFound when there
        is no such token. Needs the scope admin."""
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
        """Sends requests over one stream and yields the answers in order, with at most `window`
        requests unanswered. Requests are made on the caller's thread, so that the caller gets their
        errors."""
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
        """Sends idempotent batches and yields their answers. After a lost connection, batches
        without an answer are sent again."""
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
