"""The asynchronous client: `ps2stream.Client` on grpc.aio.

async with AsyncClient("localhost:7077") as client:
    await client.insert("thames", "flood AND (river OR creek)")
    async with client.subscribe() as matches:
        async for match in matches:
            print(match.query_id, match.text)
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
)
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio
import pyarrow as pa
from google.protobuf.message import Message

from ps2stream.client import answers, requests
from ps2stream.client.answers import InsertedQuery, Receipt, RefusedRow, WatchReport
from ps2stream.client.async_subscription import AsyncSubscription, next_answer, rpc_error
from ps2stream.client.connection import File, access
from ps2stream.client.inputs import request_of
from ps2stream.client.matches import MatchReceiver
from ps2stream.client.requests import Places, Query
from ps2stream.errors import Ps2StreamError
from ps2stream.v1 import admin_pb2, explain_pb2, pubsub_pb2

__all__ = ["AsyncClient", "AsyncSubscription"]

A = TypeVar("A", bound=Message)
T = TypeVar("T")
V = TypeVar("V")
PUBSUB = "/ps2stream.v1.PubSub/"
ADMIN = "/ps2stream.v1.Admin/"


class AsyncClient:
    """A connection to a dispatcher, for one event loop. Parameters, retries, time-outs and errors
    are those of `Client`."""

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
            grpc.aio.insecure_channel(target, requests.CHANNEL_OPTIONS)
            if trust is None
            else grpc.aio.secure_channel(target, trust, requests.CHANNEL_OPTIONS)
        )

    async def close(self) -> None:
        """Ends the connection and every subscription on it."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- queries --------------------------------------------------------------

    async def insert(
        self, id: str, expression: str = "", region: Places = None, *, session: str = "default"
    ) -> InsertedQuery:
        """Inserts a query and returns its LSN, with what the service understood of it: expression,
        area and warnings. See `Client.insert`."""
        request = requests.insert_request(id, expression, region, session)
        answer = await self._call_rpc("InsertQuery", request, pubsub_pb2.InsertQueryResponse)
        return answers.inserted_query_of(answer)

    async def insert_many(
        self,
        queries: Iterable[Any],
        *,
        session: str = "default",
        refused: list[RefusedRow] | None = None,
    ) -> list[int]:
        """Inserts queries and returns their LSNs, 0 for each that was refused. Queries that the
        service refuses are added to `refused`; without that list they raise an error once all were
        sent."""
        bulk = answers.BulkAnswers()
        for request in requests.insert_batches(queries, session):
            bulk.add(
                await self._send_batch("InsertQueries", request, pubsub_pb2.InsertQueriesResponse)
            )
        return bulk.result(refused)

    async def delete(self, id: str) -> int:
        """Deletes a query and returns the LSN of the delete. Raises NotFound when there is no such
        query."""
        request = request_of(
            pubsub_pb2.DeleteQueryRequest, id=id, request_id=requests.new_request_id()
        )
        return (await self._call_rpc("DeleteQuery", request, pubsub_pb2.DeleteQueryResponse)).lsn

    async def delete_many(
        self, ids: Iterable[str], *, refused: list[RefusedRow] | None = None
    ) -> list[int]:
        """Deletes queries and returns the LSNs of the deletes, 0 for each that was refused. Ids
        that are refused, such as unknown ones, are added to `refused`; without that list they raise
        an error once all were sent."""
        bulk = answers.BulkAnswers()
        for request in requests.delete_batches(ids):
            bulk.add(
                await self._send_batch("DeleteQueries", request, pubsub_pb2.DeleteQueriesResponse)
            )
        return bulk.result(refused)

    async def get(self, id: str) -> Query:
        """Returns a live query, with its expression as it was typed. Raises NotFound when there is
        none."""
        request = request_of(pubsub_pb2.GetQueryRequest, id=id)
        answer = await self._call_rpc("GetQuery", request, pubsub_pb2.GetQueryResponse)
        return answers.query_of(answer.query)

    async def list(
        self, session: str | None = None, *, page_size: int = 500
    ) -> AsyncIterator[Query]:
        """Yields the live queries of one session, or of all, in the order of their insertion."""
        token = ""
        while True:
            request = request_of(
                pubsub_pb2.ListQueriesRequest,
                session="" if session is None else session,
                page_size=page_size,
                page_token=token,
            )
            page = await self._call_rpc("ListQueries", request, pubsub_pb2.ListQueriesResponse)
            for query in page.queries:
                yield answers.query_of(query)
            token = page.next_page_token
            if not token:
                return

    # --- why, and what it would cost --------------------------------------------

    async def explain(self, query_id: str, thing: Any) -> dict[str, Any]:
        """Explains why an object matches a live query or does not. Raises NotFound when there is no
        such query. See `Client.explain`."""
        request = requests.explain_request(query_id, thing)
        found = await self._call_rpc("ExplainMatch", request, explain_pb2.ExplainMatchResponse)
        return answers.explanation_of(found)

    async def price(self, expression: str = "", region: Places = None) -> dict[str, Any]:
        """Estimates the matches and the work that a query would bring. Raises FailedPrecondition
        when the dispatcher accepted no objects lately. See `Client.price`."""
        request = requests.price_request(expression, region)
        found = await self._call_rpc("PriceQuery", request, explain_pb2.PriceQueryResponse)
        return answers.plain(found)

    # --- objects --------------------------------------------------------------

    async def publish(
        self, objects: Any, *, level: str = "durable", allow_partial: bool = False
    ) -> Receipt:
        """Publishes one batch of rows, columns or a record batch, and returns its receipt. See
        `Client.publish`."""
        request = requests.publish_request(objects, level, allow_partial)
        answer = await self._call_rpc(
            "Publish", request, pubsub_pb2.PublishResponse, repeatable=False
        )
        return answers.receipt_of(answer)

    async def publish_arrow(
        self, batch: pa.RecordBatch, *, level: str = "durable", allow_partial: bool = False
    ) -> Receipt:
        """Publishes one record batch with the columns lon, lat, text and optionally id and time."""
        return await self.publish(batch, level=level, allow_partial=allow_partial)

    async def publish_stream(
        self,
        batches: Iterable[Any] | AsyncIterable[Any],
        *,
        level: str = "durable",
        allow_partial: bool = False,
        in_flight: int = 8,
    ) -> AsyncIterator[Receipt]:
        """Publishes batch after batch, with up to `in_flight` of them unanswered, and yields a
        receipt for each, in order. A receipt with `retry_after_ms` means that its batch was not
        accepted, because the service was full."""
        call = self._open_stream("PublishStream")()
        unanswered = 0
        try:
            async for batch in _iterate_any(batches):
                request = requests.publish_stream_request(batch, level, allow_partial)
                await _write_request(call, request.SerializeToString())
                unanswered += 1
                if unanswered >= in_flight:
                    yield await _read_receipt(call)
                    unanswered -= 1
            await call.done_writing()
            for _ in range(unanswered):
                yield await _read_receipt(call)
        finally:
            call.cancel()

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
    ) -> AsyncSubscription:
        """Returns a subscription to the matches of a session, whose stream opens with `async with`
        or at the first iteration. `cursor` says how far an earlier subscription had come; opening
        raises FailedPrecondition when it comes from another service. See `Client.subscribe`."""
        receiver = MatchReceiver(session, text=text, position=position, time=time, cursor=cursor)
        return AsyncSubscription(self._open_stream("Deliver"), receiver, reconnect, self._timeout)

    async def status(self) -> dict[str, Any]:
        """Returns the state of the dispatcher: version, live_queries, in_flight, problems, counters
        and more. Needs the scope admin."""
        request = admin_pb2.GetStatusRequest()
        answer = await self._call_rpc(f"{ADMIN}GetStatus", request, admin_pb2.GetStatusResponse)
        return answers.status_of(answer)

    async def sample(self) -> pa.Table:
        """Returns a sample of the objects that the dispatcher accepted lately, as a table with the
        columns id, time (Unix ms), lon, lat (degrees), text, weight (how many objects the row
        stands for) and accepted (Unix ms). `ps2stream.posts.sample.since_of` returns the time since
        which the table covers all objects. Needs the scope admin."""
        call: Any = self._channel.unary_stream(f"{ADMIN}SampleObjects")
        request = admin_pb2.SampleObjectsRequest().SerializeToString()

        async def attempt(left: float) -> list[bytes]:
            return [data async for data in call(request, timeout=left, metadata=self._metadata)]

        return answers.sample_of(await self._retry_call(attempt, True))

    async def watch(self) -> AsyncGenerator[WatchReport, None]:
        """Yields, ten times a second, some of the objects that the dispatcher accepts and some
        matches of the caller's own queries. The first message, which is empty, comes at once."""
        call: Any = self._channel.unary_stream(f"{ADMIN}Watch")
        stream = call(admin_pb2.WatchRequest().SerializeToString(), metadata=self._metadata)
        try:
            while True:
                yield answers.watched_of(await next_answer(stream))
        finally:
            stream.cancel()

    async def load(self) -> dict[str, Any]:
        """Returns the work of the workers in the last periods and the hottest parts of cells, as a
        dict with the names and units of GetLoadResponse. Needs the scope admin."""
        request = admin_pb2.GetLoadRequest()
        return answers.plain(
            await self._call_rpc(f"{ADMIN}GetLoad", request, admin_pb2.GetLoadResponse)
        )

    async def plan(self) -> bytes:
        """Returns the plan in force as JSON. Needs the scope admin."""
        request = admin_pb2.GetPlanRequest()
        return (await self._call_rpc(f"{ADMIN}GetPlan", request, admin_pb2.GetPlanResponse)).plan

    # --- calls ----------------------------------------------------------------

    def _open_stream(self, name: str) -> Any:
        return partial(self._channel.stream_stream(PUBSUB + name), metadata=self._metadata)

    async def _call_rpc(
        self, name: str, request: Message, kind: type[A], *, repeatable: bool = True
    ) -> A:
        call: Any = self._channel.unary_unary(name if name.startswith("/") else PUBSUB + name)
        data = request.SerializeToString()
        call = partial(call, data, metadata=self._metadata)
        return kind.FromString(await self._retry_call(lambda t: call(timeout=t), repeatable))

    async def _send_batch(self, name: str, request: Message, kind: type[A]) -> A:
        """Sends one batch over a stream of its own and returns the answer. Repeating it is
        harmless."""
        data = request.SerializeToString()

        async def attempt(left: float) -> bytes:
            call = self._open_stream(name)(timeout=left)
            await call.write(data)
            await call.done_writing()
            return await next_answer(call)

        return kind.FromString(await self._retry_call(attempt, True))

    async def _retry_call(self, attempt: Callable[[float], Awaitable[T]], repeatable: bool) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        count = 0
        while True:
            try:
                return await attempt(max(0.001, deadline - loop.time()))
            except (grpc.aio.AioRpcError, Ps2StreamError) as error:
                found = rpc_error(error) if isinstance(error, grpc.aio.AioRpcError) else error
                pause = answers.pause_before(found, count, repeatable)
                if pause is None or loop.time() + pause >= deadline:
                    raise found from None
            await asyncio.sleep(pause)
            count += 1


async def _iterate_any(values: Iterable[V] | AsyncIterable[V]) -> AsyncIterator[V]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


async def _write_request(call: Any, data: bytes) -> None:
    try:
        await call.write(data)
    except asyncio.InvalidStateError:
        await next_answer(call)  # the stream has ended; its status says why


async def _read_receipt(call: Any) -> Receipt:
    data = await next_answer(call)
    return answers.receipt_of(pubsub_pb2.PublishStreamResponse.FromString(data))
