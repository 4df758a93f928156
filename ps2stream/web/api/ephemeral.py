"""The queries that GET /v1/stream makes: a few for each identity, each with an end.

An identity has `limit` slots. A slot is a session of the service, and is taken while the session
has a query. The names of both say so: `ephemeral-IDENTITY-SLOT`, and the same with a digest of what
was asked for and 128 random bits. So the service itself is the table, which survives the map and is
shared by several. Each query has an end (`until`), which is put off while it has a reader. When the
reader has left, or the map was killed, the service deletes the query at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from ps2stream.client.answers import InsertedQuery
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.requests import Query
from ps2stream.errors import FailedPrecondition, NotFound, Ps2StreamError, ResourceExhausted
from ps2stream.web.api.cursors import UNKNOWN
from ps2stream.web.api.feed import SessionFeed

log = logging.getLogger("ps2stream.web")
PREFIX = "ephemeral-"
LIMIT = 32
LEASE_S = 300.0
"""How long a query stays when its last reader has left."""
RENEW_S = 60.0
"""How often the end of a query with a reader is put off; a killed map leaves it so much longer."""
LEAVE_S = 3.0
QUIET_S = 0.03
CLEAN_S = 2.0
"""How long after the end of a query its session is looked after."""
_NO_FIELDS: dict[str, Any] = dict.fromkeys(
    ("text", "position", "time", "attributes", "payload"), False
)


@dataclasses.dataclass(frozen=True, slots=True)
class EphemeralQuery:
    """The names of an ephemeral query. `digest` says what was asked for."""

    identity: str
    slot: int
    digest: str
    secret: str

    @property
    def session(self) -> str:
        return f"{PREFIX}{self.identity}-{self.slot:02d}"

    @property
    def id(self) -> str:
        return f"{self.session}-{self.digest}-{self.secret}"


def read_name(id: str, identity: str) -> EphemeralQuery:
    """Reads the id of an ephemeral query of this identity. Raises NotFound for any other."""
    own, _, rest = id.partition(f"{PREFIX}{identity}-")
    parts = rest.split("-")
    if own or len(parts) != 3 or not parts[0].isdigit():
        raise NotFound(UNKNOWN)
    return EphemeralQuery(identity, int(parts[0]), parts[1], parts[2])


class EphemeralQueries:
    """The ephemeral queries that have a reader here. The times are in seconds."""

    def __init__(
        self, limit: int = LIMIT, lease_s: float = LEASE_S, renew_s: float = RENEW_S
    ) -> None:
        self._limit = limit
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._readers: Counter[str] = Counter()  # by session; one that is being made counts
        self._cleaning: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def claim(
        self, client: AsyncClient, identity: str, digest: str
    ) -> AsyncIterator[EphemeralQuery]:
        """Claims a free slot for a reader within the block. Raises ResourceExhausted when there is
        none."""
        for slot in range(self._limit):
            query = EphemeralQuery(identity, slot, digest, secrets.token_hex(16))
            if self._readers[query.session]:
                continue
            self._readers[query.session] += 1
            try:
                if await find_queries(client, query.session):
                    continue
                self._stop_cleaning(query.session)
                yield query
                return
            finally:
                self._drop_reader(query.session)
        raise ResourceExhausted(
            f"{self._limit} queries of GET /v1/stream are live, the limit (ephemeral_queries); "
            f"each ends {self._lease_s:g} s after its last reader",
            60_000,
        )

    @asynccontextmanager
    async def rejoin(self, query: EphemeralQuery) -> AsyncIterator[None]:
        """Counts one more reader of a query that is there already, within the block."""
        self._stop_cleaning(query.session)
        self._readers[query.session] += 1
        try:
            yield
        finally:
            self._drop_reader(query.session)

    async def insert(
        self, client: AsyncClient, query: EphemeralQuery, expression: str, region: Any
    ) -> InsertedQuery | None:
        """Inserts the query. Returns None when another map has taken the slot at the same moment,
        and nothing is left of ours."""
        inserted = await client.insert(
            query.id,
            expression,
            region,
            session=query.session,
            until=timedelta(seconds=self._lease_s + self._renew_s),
        )
        if (await find_queries(client, query.session))[:1] == [query.id]:
            return inserted
        with contextlib.suppress(NotFound):
            await client.delete(query.id)
        return None

    async def renew(self, client: AsyncClient, query: EphemeralQuery) -> Query:
        """Puts off the end of a query that has a reader. Raises NotFound when it is gone."""
        return await self._move_end(client, query, self._lease_s + self._renew_s)

    async def keep_renewing(self, client: AsyncClient, query: EphemeralQuery) -> None:
        """Puts off the end of a query, again and again. Ends when the query is gone."""
        while True:
            await asyncio.sleep(self._renew_s)
            try:
                await self.renew(client, query)
            except NotFound:
                return
            except (Ps2StreamError, TimeoutError) as error:
                log.warning("the end of a stream's query could not be put off: %s", error)

    async def leave(self, client: AsyncClient, query: EphemeralQuery) -> None:
        """Sets the end of a query whose reader leaves, if it is the last one here."""
        if self._readers[query.session] > 1:
            return
        with contextlib.suppress(Ps2StreamError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._move_end(client, query, self._lease_s)
        self._stop_cleaning(query.session)
        cleaning = asyncio.create_task(self._clean_later(client, query))
        self._cleaning[query.session] = cleaning

    async def close(self) -> None:
        """Ends what goes on without readers; the queries end by themselves."""
        tasks = list(self._cleaning.values())
        for session in tuple(self._cleaning):
            self._stop_cleaning(session)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _move_end(self, client: AsyncClient, query: EphemeralQuery, seconds: float) -> Query:
        """Replaces a query by itself with another end. One that was deleted meanwhile is not made
        again; one whose end somebody else has moved is replaced, too."""
        while True:
            try:
                kept = await client.get(query.id)
            except NotFound:
                raise NotFound(UNKNOWN) from None
            with contextlib.suppress(FailedPrecondition):
                await client.insert(
                    query.id,
                    kept.expression,
                    kept.region,
                    session=query.session,
                    replace=True,
                    until=timedelta(seconds=seconds),
                    if_lsn=kept.lsn,
                )
                return kept

    async def _clean_later(self, client: AsyncClient, query: EphemeralQuery) -> None:
        """Acknowledges what nobody took, once the query has ended: else it would hold the log."""
        await asyncio.sleep(self._lease_s + CLEAN_S)
        with contextlib.suppress(Ps2StreamError, TimeoutError):
            if await find_queries(client, query.session):
                return  # somebody has come back through another map
            feed = SessionFeed(client.subscribe(query.session, **_NO_FIELDS))
            try:
                await feed.skip_waiting(1.0)
            finally:
                await feed.close()
        if self._cleaning.get(query.session) is asyncio.current_task():
            del self._cleaning[query.session]

    def _stop_cleaning(self, session: str) -> None:
        if (task := self._cleaning.pop(session, None)) is not None:
            task.cancel()

    def _drop_reader(self, session: str) -> None:
        self._readers[session] -= 1
        if not self._readers[session]:
            del self._readers[session]


async def find_queries(client: AsyncClient, session: str) -> list[str]:
    """Returns the ids of a session's queries, the oldest first; two of them suffice."""
    found: list[str] = []
    async with contextlib.aclosing(client.list(session, page_size=2)) as queries:  # type: ignore[type-var]
        async for query in queries:
            found.append(query.id)
            if len(found) == 2:
                break
    return found
