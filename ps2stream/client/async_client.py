"""The asynchronous client.

async with AsyncClient("localhost:7077") as client:
    await client.insert("thames", "flood AND (river OR creek)", region=Circle(-0.12, 51.5, 30))
    async with client.subscribe() as matches:
        async for match in matches:
            print(match.query_id, match.text)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health_pb2

from ps2stream.client import answers, requests
from ps2stream.client.answers import InsertedQuery, QueryPage, Receipt, RefusedRow
from ps2stream.client.async_admin import AsyncAdminCaller
from ps2stream.client.async_channel import AsyncBatches, iterate_any, open_early
from ps2stream.client.async_subscription import AsyncSubscription
from ps2stream.client.inputs import Moment, request_of
from ps2stream.client.joining import RequestJoiner
from ps2stream.client.matches import MatchReceiver
from ps2stream.client.requests import Places, Query
from ps2stream.client.window import WINDOW
from ps2stream.errors import Unavailable
from ps2stream.v1 import explain_pb2, pubsub_pb2

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncClient", "AsyncSubscription"]


class AsyncClient(AsyncAdminCaller):
    """A connection to one dispatcher or several, for one event loop.

    `target` is HOST:PORT, or several of them with commas between, as `status` lists them in
    `endpoints`. Each call then goes to the less busy one of two that are drawn at random, and a
    dispatcher that does not answer is passed over while there are others. With `discover`, the
    client asks a dispatcher where all of them are, at first and every half minute, so that one
    address is enough, and those that join later are used too. The addresses that the service
    itself listens at must then be reachable from here; those given are called where none of the
    others answers.

    `token` is what `ps2stream token create` printed. `tls_ca` is a PEM file of the authorities to
    trust, or "system" for those that this machine trusts; `tls_cert` and `tls_key` are PEM files
    with a certificate of the client's own. `timeout` is in seconds, for a call with all its
    retries.

    Calls that a full service refuses are retried, and so are those that could not connect to it.
    After a lost connection, only calls that cannot do their work twice are retried, so neither
    publishing without a producer nor `rebalance` nor `create_token`.
    Methods raise the errors of `ps2stream.errors`, and TimeoutError.
    """

    async def health(self) -> None:
        """Returns once the service answers that it is serving, for which no token is needed. Raises
        Unavailable when it is not."""
        request, kind = health_pb2.HealthCheckRequest(), health_pb2.HealthCheckResponse
        found = await self._call_rpc("/grpc.health.v1.Health/Check", request, kind)
        if found.status != kind.SERVING:
            raise Unavailable(f"{self.target} answers, and does not serve")

    # --- queries --------------------------------------------------------------

    async def insert(
        self,
        id: str,
        expression: str = "",
        region: Places = None,
        *,
        session: str = "default",
        replace: bool = False,
        until: Moment | None = None,
        retro: bool = False,
        if_lsn: int = 0,
    ) -> InsertedQuery:
        """Inserts a query and returns its LSN, with what the service understood of it: expression,
        area and warnings. Objects that are published later, through any dispatcher, are matched
        against it, and the matches go to `session`. Repeating an insert is harmless. Raises
        AlreadyExists when the id is taken by another query.

        With `replace`, another query of this id and session is replaced: every object is matched
        against exactly one of the two. Then AlreadyExists is raised only when the id is taken in
        another session.

        With `replace` and `if_lsn`, only the query with this LSN (`Query.lsn` of `get`) is
        replaced. If it was deleted or replaced meanwhile, nothing is done, and FailedPrecondition
        is raised, unless the live query equals this one.

        With `until`, the query ends at that moment as if it were deleted then: Unix milliseconds, a
        datetime with a time zone, or a timedelta from now.

        With `retro`, the query is matched at once against the objects of before that are still
        valid (`until` of `publish`), each once. The matches come to the session as any others. If
        valid objects had to be dropped, the session gets a gap with count 0."""
        request = requests.insert_request(
            id, expression, region, session, replace, until, retro, if_lsn
        )
        answer = await self._call_rpc("InsertQuery", request, pubsub_pb2.InsertQueryResponse)
        return answers.inserted_query_of(answer)

    async def insert_many(
        self,
        queries: Iterable[Any],
        *,
        session: str = "default",
        refused: list[RefusedRow] | None = None,
        replace: bool = False,
        retro: bool = False,
    ) -> list[int]:
        """Inserts queries, each a Query, a mapping or a tuple (id, expression[, region]), and
        returns their LSNs, 0 for each that was refused. The others are inserted all the same.
        Queries that the service refuses are added to `refused`; without that list they raise an
        error once all were sent. `replace` and `retro` are as in `insert`; of several queries with
        one id the last stays, so each batch of 1,000 replacements waits for the answer to the one
        before."""
        bulk = answers.BulkAnswers()
        batches = requests.insert_batches(queries, session, replace, retro)
        in_flight = 1 if replace else WINDOW
        async for answer in self._send_bulk(
            "InsertQueries", batches, pubsub_pb2.InsertQueriesResponse, in_flight
        ):
            bulk.add(answer)
        return bulk.result(refused)

    async def delete(self, id: str) -> int:
        """Deletes a query and returns the LSN of the delete. Raises NotFound when there is no such
        query."""
        request = request_of(
            pubsub_pb2.DeleteQueryRequest, id=id, request_id=requests.new_request_id()
        )
        found = await self._call_rpc("DeleteQuery", request, pubsub_pb2.DeleteQueryResponse)
        return found.lsn

    async def delete_many(
        self, ids: Iterable[str], *, refused: list[RefusedRow] | None = None
    ) -> list[int]:
        """Deletes queries and returns the LSNs of the deletes, 0 for each that was refused. Ids
        that are refused, such as unknown ones, are added to `refused`; without that list they raise
        an error once all were sent."""
        bulk = answers.BulkAnswers()
        batches = requests.delete_batches(ids)
        async for answer in self._send_bulk(
            "DeleteQueries", batches, pubsub_pb2.DeleteQueriesResponse
        ):
            bulk.add(answer)
        return bulk.result(refused)

    async def get(self, id: str) -> Query:
        """Returns a live query, with its expression as it was typed. Raises NotFound when there is
        none."""
        request = request_of(pubsub_pb2.GetQueryRequest, id=id)
        found = await self._call_rpc("GetQuery", request, pubsub_pb2.GetQueryResponse)
        return answers.query_of(found.query, found.lsn)

    async def list(
        self, session: str | None = None, *, page_size: int = 500
    ) -> AsyncIterator[Query]:
        """Yields the live queries of one session, or of all, in the order of their insertion."""
        request = request_of(
            pubsub_pb2.ListQueriesRequest,
            session="" if session is None else session,
            page_size=page_size,
        )
        kind = pubsub_pb2.ListQueriesResponse
        async for page in self._list_pages("ListQueries", kind, request):
            for query in page.queries:
                yield answers.query_of(query)

    async def list_page(
        self, session: str | None = None, *, page_size: int = 100, after: str = ""
    ) -> QueryPage:
        """Returns one page of `list`, for those who pass lists on: at most `page_size` queries, of
        at most 1,000, behind the page whose `next` is `after`."""
        request = request_of(
            pubsub_pb2.ListQueriesRequest,
            session="" if session is None else session,
            page_size=page_size,
            page_token=after,
        )
        found = await self._call_rpc("ListQueries", request, pubsub_pb2.ListQueriesResponse)
        return answers.query_page_of(found)

    async def withdraw(self, ids: Iterable[str]) -> None:
        """Withdraws the objects with these ids, whoever published them: once this returns, they are
        no longer matched against new queries with retro, and within a minute the readers of an
        archive leave them out. Unknown ids are no errors."""
        for request in requests.withdraw_batches(ids):
            await self._call_rpc("WithdrawObjects", request, pubsub_pb2.WithdrawObjectsResponse)

    # --- why, and what it would cost --------------------------------------------

    async def explain(self, query: Any, thing: Any) -> dict[str, Any]:
        """Explains why an object (a mapping with lon, lat and text) matches a query or does not, as
        a dict with the fields of ExplainMatchResponse. `query` is the id of a live query, or a
        query as in `insert_many`, which is not inserted: ("", expression, region). Nothing is
        published. Raises NotFound when there is no such live query."""
        request = requests.explain_request(query, thing)
        found = await self._call_rpc("ExplainMatch", request, explain_pb2.ExplainMatchResponse)
        return answers.explanation_of(found)

    async def price(self, expression: str = "", region: Places = None) -> dict[str, Any]:
        """Estimates how many matches a second a query would bring and how much work it would make,
        from the objects that this dispatcher accepted lately, as a dict with the fields of
        PriceQueryResponse. Nothing is inserted. Raises FailedPrecondition when there are no such
        objects."""
        request = requests.price_request(expression, region)
        found = await self._call_rpc("PriceQuery", request, explain_pb2.PriceQueryResponse)
        return answers.plain(found)

    # --- objects --------------------------------------------------------------

    async def publish(
        self,
        objects: Any,
        *,
        level: str = "durable",
        allow_partial: bool = False,
        producer: str = "",
        seq: int = 0,
    ) -> Receipt:
        """Publishes one batch and returns its receipt.

        The objects are rows that are mappings (lon, lat, text and optionally id, time, attributes,
        payload and until), a mapping of columns with these names, a record batch, a table or data
        frame, or GeoJSON features. A time is in Unix milliseconds or a datetime with a time zone.
        The batch is accepted whole or refused whole, unless `allow_partial` is set.

        `until`, which may also be a timedelta from now, is the end of the object's validity: until
        then a query that is inserted with `retro` is matched against it.

        `attributes` is a mapping of names to an int, float, str, bool or datetime with a time zone;
        None is absent, and so is NaN in a data frame of pandas. In columns and tables, every column
        of another name than those above is an attribute, and times without a zone are in UTC. Of a
        Feature, the other properties, and what is beside these, are attributes, except null,
        objects and arrays, which are dropped. `payload` is bytes, a dict or list, which is sent as
        JSON, or a string of JSON; that of a Feature is any JSON.

        The level says when the service answers: "durable" once the objects are synced to the object
        log, "accepted" while they are in memory, so that a crash may lose them. "none" is like
        "accepted", but a full service drops the batch instead of raising an error.

        With `producer`, a name of your own, and `seq`, your number for the batch, from 1, the batch
        is published once however often it is sent: a repeat gets the receipt of the first. So a
        lost connection is then retried too. The service remembers the last 256 publications of a
        producer, for ten minutes after the last one at least. Raises AlreadyExists when this number
        was published with another batch, and FailedPrecondition when it is older than that.
        """
        request = requests.publish_request(objects, level, allow_partial, producer, seq)
        answer = await self._call_rpc(
            "Publish", request, pubsub_pb2.PublishResponse, repeatable=bool(producer)
        )
        return answers.receipt_of(answer)

    async def publish_arrow(
        self, batch: pa.RecordBatch, *, level: str = "durable", allow_partial: bool = False
    ) -> Receipt:
        """Publishes one record batch with the columns lon, lat, text and optionally id, time and
        payload; other columns are attributes."""
        return await self.publish(batch, level=level, allow_partial=allow_partial)

    def publish_stream(
        self,
        batches: AsyncBatches,
        *,
        level: str = "durable",
        allow_partial: bool = False,
        producer: str = "",
        first_seq: int = 1,
        in_flight: int | None = 8,
    ) -> AsyncIterator[Receipt]:
        """Publishes batch after batch, with up to `in_flight` of them unanswered, and yields a
        receipt for each, in order, once so many are. None means 8, or up to 64 small ones, which
        the service joins: the fastest way for those. A receipt with `retry_after_ms` means that its
        batch was not accepted, because the service was full. With `producer`, as in `publish`, the
        batches are numbered from `first_seq`, and those without a receipt are sent again after a
        lost connection."""

        async def encode_batches() -> AsyncIterator[bytes]:
            seq = first_seq if producer else 0
            async for batch in iterate_any(batches):
                request = requests.publish_stream_request(
                    batch, level, allow_partial, producer, seq
                )
                yield request.SerializeToString()
                seq += bool(producer)

        encoded, joiner = encode_batches(), RequestJoiner()
        send = self._send_repeatable if producer else self._send_windowed
        read = partial(answers.read_receipts, joiner)
        return send("PublishStream", encoded, read, in_flight, joiner)

    # --- matches --------------------------------------------------------------

    def subscribe(
        self,
        session: str = "default",
        *,
        text: bool = True,
        position: bool = True,
        time: bool = True,
        attributes: bool = True,
        payload: bool = False,
        reconnect: bool = True,
        cursor: bytes = b"",
    ) -> AsyncSubscription:
        """Opens the stream of a session's matches, which come one by one or as `batches()`. `text`,
        `position`, `time`, `attributes` and `payload` say which fields of the objects are sent.

        The stream opens in `async with`, or when it is first read. The newest stream of a session
        wins: an older one raises FailedPrecondition. With `reconnect`, a stream whose connection is
        lost is opened again. `cursor` says how far an earlier subscription had come; opening raises
        FailedPrecondition when it comes from another service.
        """
        receiver = MatchReceiver(
            session,
            text=text,
            position=position,
            time=time,
            attributes=attributes,
            payload=payload,
            cursor=cursor,
        )
        made = AsyncSubscription(self._channel, receiver, reconnect, self._timeout)
        self._subscriptions.add(made)
        open_early(made)
        return made
