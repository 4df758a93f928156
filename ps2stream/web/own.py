"""The queries that were drawn on the map: an ordinary session of the service."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

from ps2stream.client.async_client import AsyncClient
from ps2stream.client.attributes import format_attributes
from ps2stream.client.matches import Match
from ps2stream.client.requests import Query
from ps2stream.errors import NotFound, Ps2StreamError, ResourceExhausted
from ps2stream.web.mailbox import PageEvent
from ps2stream.web.shapes import Feature, on_globe, query_feature

MAX_OWN = 100
TEXT_CHARACTERS = 500
LOST_S = 1.0
LEAVE_S = 3.0


class DrawnQueries:
    """The session `name`; without a name a new one, whose queries go when the map ends."""

    def __init__(self, client: AsyncClient, name: str | None) -> None:
        self.session = name or f"map-{secrets.token_hex(4)}"
        self.tell: Callable[[PageEvent], None] = lambda _: None
        self._client = client
        self._lasting = name is not None
        self._queries: dict[str, Feature] = {}
        self._drawn = asyncio.Event()  # set when the session is needed, and so made

    def has(self, id: str) -> bool:
        """Returns whether the query was drawn here."""
        return id in self._queries

    def features(self) -> list[Feature]:
        """Returns all queries that were drawn here."""
        return list(self._queries.values())

    async def find(self) -> None:
        """Fetches the queries that the session has from before."""
        async for query in self._client.list(self.session):
            self._queries[query.id] = query_feature(query, True)
            self._drawn.set()

    async def insert(self, expression: str, region: Any) -> Feature:
        """Inserts a query; returns it in canonical form. Raises the service's errors."""
        if len(self._queries) >= MAX_OWN:
            raise ResourceExhausted(f"{MAX_OWN} queries are drawn, the limit; drop one first")
        id = f"{self.session}-{secrets.token_hex(4)}"
        await self._client.insert(id, expression, on_globe(region), session=self.session)
        query: Query = await self._client.get(id)
        self._queries[id] = query_feature(query, True)
        self._drawn.set()
        self.tell({"mine": self.features(), "queries": [self._queries[id]]})
        return self._queries[id]

    async def drop(self, id: str) -> None:
        """Deletes a query of the map. Raises NotFound, also for queries of others."""
        if id not in self._queries:
            raise NotFound(f"the map has no query {id!r}")
        with contextlib.suppress(NotFound):  # somebody else has dropped it
            await self._client.delete(id)
        self._queries.pop(id, None)
        self.tell({"mine": self.features()})

    async def receive(self) -> None:
        """Sends the matches on, until cancelled."""
        await self._drawn.wait()
        while True:
            try:
                async with self._client.subscribe(self.session) as matches:
                    async for match in matches:
                        if self.has(match.query_id):  # and not one that was just dropped
                            self.tell({"own": [_describe_match(match)]})
            except (Ps2StreamError, TimeoutError):
                pass  # the hub's link says why
            await asyncio.sleep(LOST_S)

    async def leave(self) -> None:
        """Deletes the queries of a session that ends with the map."""
        if self._lasting or not self._queries:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._client.delete_many(tuple(self._queries), refused=[])
                self._queries.clear()
        except (Ps2StreamError, TimeoutError):
            pass  # the service is away


def _describe_match(match: Match) -> PageEvent:
    return {
        "id": match.object_id,
        "query": match.query_id,
        "lon": match.lon,
        "lat": match.lat,
        "text": (match.text or "")[:TEXT_CHARACTERS],
        "attributes": format_attributes(match.attributes or {})[:TEXT_CHARACTERS],
        "time": match.time,
        "came": time.time_ns() // 1_000_000,
    }
