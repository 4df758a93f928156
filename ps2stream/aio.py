"""The asynchronous client: `ps2stream.client.Client` on grpc.aio.

async with AsyncClient("localhost:7077") as client:
    await client.insert("thames", "flood AND (river OR creek)")
    async with client.subscribe() as matches:
        async for match in matches:
            print(match.query_id, match.text)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio
import pyarrow as pa
from google.protobuf.message import Message

from ps2stream import api
from ps2stream.api import Places, Query, Receipt, Refused
from ps2stream.errors import Ps2StreamError, Unavailable
from ps2stream.matches import Match, Matches, Receiver
from ps2stream.v1 import admin_pb2, pubsub_pb2

__all__ = ["AsyncClient", "AsyncSubscription"]

log = logging.getLogger("ps2stream.client")
A = TypeVar("A", bound=Message)
PUBSUB = "/ps2stream.v1.PubSub/"
ADMIN = "/ps2stream.v1.Admin/"


class AsyncClient:
    """A connection to a dispatcher, for one event loop. Retries, time-outs and errors are
    those of `Client`."""

    def __init__(self, target: str = api.DEFAULT_TARGET, *, timeout: float = 30.0) -> None:
        self.target = target
        self._timeout = timeout
        self._channel = grpc.aio.insecure_channel(target, options=api.CHANNEL_OPTIONS)

    async def close(self) -> None:
        """End the connection and every subscription on it."""
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
    ) -> int:
        """Insert a query; its LSN."""
        request = api.insert_request(id, expression, region, session)
        return (await self._call("InsertQuery", request, pubsub_pb2.InsertQueryResponse)).lsn

    async def insert_many(
        self,
        queries: Iterable[Any],
        *,
        session: str = "default",
        refused: list[Refused] | None = None,
    ) -> list[int]:
        """Insert queries; their LSNs. Bad ones go to `refused`, or raise without it."""
        answers = api.BulkAnswers()
        for request in api.insert_batches(queries, session):
            answers.add(
                await self._once("InsertQueries", request, pubsub_pb2.InsertQueriesResponse)
            )
        return answers.result(refused)

    async def delete(self, id: str) -> int:
        """Delete a query; the LSN of that. NotFound when there is none."""
        request = pubsub_pb2.DeleteQueryRequest(id=id, request_id=api.new_request_id())
        return (await self._call("DeleteQuery", request, pubsub_pb2.DeleteQueryResponse)).lsn

    async def delete_many(
        self, ids: Iterable[str], *, refused: list[Refused] | None = None
    ) -> list[int]:
        """Delete queries; the LSNs. Unknown ids go to `refused`, or raise without it."""
        answers = api.BulkAnswers()
        for request in api.delete_batches(ids):
            answers.add(
                await self._once("DeleteQueries", request, pubsub_pb2.DeleteQueriesResponse)
            )
        return answers.result(refused)

    async def get(self, id: str) -> Query:
        """A live query, in canonical form. NotFound when there is none."""
        request = pubsub_pb2.GetQueryRequest(id=id)
        answer = await self._call("GetQuery", request, pubsub_pb2.GetQueryResponse)
        return api.query_of(answer.query)

    async def list(
        self, session: str | None = None, *, page_size: int = 500
    ) -> AsyncIterator[Query]:
        """Live queries in the order of their insertion, of one session or of all."""
        token = ""
        while True:
            request = pubsub_pb2.ListQueriesRequest(
                session=session or "", page_size=page_size, page_token=token
            )
            page = await self._call("ListQueries", request, pubsub_pb2.ListQueriesResponse)
            for query in page.queries:
                yield api.query_of(query)
            token = page.next_page_token
            if not token:
                return

    # --- objects --------------------------------------------------------------

    async def publish(
        self, objects: Any, *, level: str = "accepted", allow_partial: bool = False
    ) -> Receipt:
        """Publish one batch: rows, columns or a record batch."""
        request = api.publish_request(objects, level, allow_partial)
        answer = await self._call("Publish", request, pubsub_pb2.PublishResponse, repeatable=False)
        return api.receipt_of(answer)

    async def publish_arrow(
        self, batch: pa.RecordBatch, *, level: str = "accepted", allow_partial: bool = False
    ) -> Receipt:
        """Publish one record batch: lon, lat, text and perhaps id and time."""
        return await self.publish(batch, level=level, allow_partial=allow_partial)

    # --- matches --------------------------------------------------------------

    def subscribe(
        self,
        session: str = "default",
        *,
        text: bool = True,
        position: bool = True,
        time: bool = True,
        reconnect: bool = True,
    ) -> AsyncSubscription:
        """The matches of a session; the stream opens with `async with`, or at the first
        iteration."""
        receiver = Receiver(session, text=text, position=position, time=time)
        return AsyncSubscription(self._stream("Deliver"), receiver, reconnect, self._timeout)

    async def status(self) -> dict[str, Any]:
        """What the dispatcher knows: version, live_queries, in_flight, counters."""
        request = admin_pb2.GetStatusRequest()
        answer = await self._call(f"{ADMIN}GetStatus", request, admin_pb2.GetStatusResponse)
        return api.status_of(answer)

    # --- calls ----------------------------------------------------------------

    def _stream(self, name: str) -> Any:
        return self._channel.stream_stream(PUBSUB + name)

    async def _call(
        self, name: str, request: Message, kind: type[A], *, repeatable: bool = True
    ) -> A:
        call: Any = self._channel.unary_unary(name if name.startswith("/") else PUBSUB + name)
        data = request.SerializeToString()
        return kind.FromString(await self._retried(lambda t: call(data, timeout=t), repeatable))

    async def _once(self, name: str, request: Message, kind: type[A]) -> A:
        """One batch over a stream of its own; repeating it is harmless."""
        data = request.SerializeToString()

        async def attempt(left: float) -> bytes:
            call = self._stream(name)(timeout=left)
            await call.write(data)
            await call.done_writing()
            return await _answer(call)

        return kind.FromString(await self._retried(attempt, True))

    async def _retried(
        self, attempt: Callable[[float], Awaitable[bytes]], repeatable: bool
    ) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        count = 0
        while True:
            try:
                return await attempt(max(0.001, deadline - loop.time()))
            except (grpc.aio.AioRpcError, Ps2StreamError) as error:
                found = _error(error) if isinstance(error, grpc.aio.AioRpcError) else error
                pause = api.pause_before(found, count, repeatable)
                if pause is None or loop.time() + pause >= deadline:
                    raise found from None
            await asyncio.sleep(pause)
            count += 1


class AsyncSubscription:
    """Matches of one session, as they come. Iterate over it, or over `batches()`. A batch
    counts as taken when the next one is asked for."""

    def __init__(self, stub: Any, receiver: Receiver, reconnect: bool, timeout: float) -> None:
        self._stub = stub
        self._receiver = receiver
        self._reconnect = reconnect
        self._timeout = timeout
        self._call: Any = None
        self._closed = False
        self._shown = 0  # the last pair handed out, not yet known to be taken

    @property
    def missed(self) -> int:
        """Pairs that the service had to drop because nobody took them in time."""
        return self._receiver.missed

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._shown = 0  # its handling may have failed
        await self.close()

    async def close(self) -> None:
        """Acknowledge what was handed out and end the stream."""
        if self._closed:
            return
        self._closed = True
        call = self._call
        if call is None or call.done():
            return
        self._receiver.took(self._shown)
        try:
            if (last := self._receiver.credit(flush=True)) is not None:
                await call.write(last)
            await call.done_writing()
            async with asyncio.timeout(0.5):
                while await call.read() is not grpc.aio.EOF:
                    pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            log.debug("the stream ended before its last acknowledgement")
        call.cancel()

    async def __aiter__(self) -> AsyncIterator[Match]:
        async for batch in self._batches():
            for number, match in enumerate(batch, batch.first):
                self._shown = number
                yield match

    async def batches(self) -> AsyncIterator[Matches]:
        """Whole batches as columns; also those that hold only a gap."""
        async for batch in self._batches():
            self._shown = batch.last
            yield batch

    async def _batches(self) -> AsyncIterator[Matches]:
        while (data := await self._next()) is not None:
            found = self._receiver.on(data)
            if found is not None:
                if found.gap is not None:
                    log.warning("%d matches were dropped: nobody took them", found.gap.count)
                yield found
                self._receiver.took(found.last)
            if (credit := self._receiver.credit()) is not None:
                try:
                    await self._call.write(credit)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    continue  # the next read says why

    async def _next(self) -> bytes | None:
        """The next message; None when the subscription has been closed."""
        if self._call is None and not self._closed:
            await self._connect()
        while not self._ended():
            try:
                return await _answer(self._call)
            except (Ps2StreamError, TimeoutError) as error:
                if self._ended():
                    break
                if not (self._reconnect and isinstance(error, Unavailable)):
                    raise
                await self._again(error)
        return None

    def _ended(self) -> bool:
        """Whether `close` was called, perhaps while something was awaited."""
        return self._closed

    async def _again(self, error: Exception) -> None:
        """Open the stream again; gives up after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        count = 0
        while True:
            pause = api.pause_before(error, count, True)
            if pause is None or loop.time() + pause >= deadline:
                raise error
            await asyncio.sleep(pause)
            count += 1
            if self._closed:
                return
            try:
                await self._connect()
                return
            except Unavailable as again:
                error = again

    async def _connect(self) -> None:
        self._call = self._stub()
        try:
            await self._call.write(self._receiver.start())
        except grpc.aio.AioRpcError as error:
            raise _error(error) from None
        self._receiver.on(await _answer(self._call))


async def _answer(call: Any) -> bytes:
    """The next answer of a stream. Raises its status, or Unavailable at its end."""
    try:
        data = await call.read()
    except grpc.aio.AioRpcError as error:
        raise _error(error) from None
    if data is grpc.aio.EOF:
        raise Unavailable("the service ended the stream")
    return bytes(data)


def _error(error: grpc.aio.AioRpcError) -> Exception:
    trailing: dict[str, Any] = dict(error.trailing_metadata() or ())
    return api.error_of(error.code().name, error.details() or "", trailing.get(api.DETAILS_KEY))
