"""The matches of one session that an assistant has not yet acknowledged.

The service keeps a match until it is acknowledged, and a cursor acknowledges what comes before it.
So this process has nothing to lose: after a kill, the service sends again what was not
acknowledged, and the assistant's last cursor goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from ps2stream.assistant.untrusted import describe_untrusted, write_out
from ps2stream.client.async_subscription import AsyncSubscription
from ps2stream.client.matches import Gap, Matches
from ps2stream.errors import FailedPrecondition, NotFound, Ps2StreamError, Unavailable
from ps2stream.v1 import delivery_pb2
from ps2stream.web.api.cursors import UNKNOWN, StreamCursor
from ps2stream.web.api.output import describe_object

ROOM = 1 << 20
"""Bytes of matches that wait here; the others wait in the service."""
LATEST = 50
AGAIN_S = 1.0
"""Pause after a service that was away for long, before it is asked again."""
FIRST_S = 0.5
OPEN_S = 15.0
"""How long the opening of the stream may take."""
_ACKNOWLEDGED = "a later cursor has acknowledged them already"
_OTHER = "another reader has taken over the session {!r}: {}"


class InboxEntry(NamedTuple):
    """A match or a gap, as JSON, with its number in the session; a gap has that of its end."""

    number: int
    row: dict[str, Any]
    is_gap: bool
    size: int


class InboxPage(NamedTuple):
    """What a reader gets: entries in order, the number behind them, and whether more wait here."""

    entries: list[InboxEntry]
    last: int
    more: bool


class MatchInbox:
    """Receives the matches of `session` by what `subscribe` opens, while it is started.

    `tell` is called after each batch, and `end` when the stream ends for good, as another reader
    has the session or the token is no longer valid; the next read opens it again."""

    def __init__(
        self,
        session: str,
        subscribe: Callable[[], AsyncSubscription],
        tell: Callable[[], Awaitable[None]],
        end: Callable[[], None],
    ) -> None:
        self._session = session
        self._subscribe = subscribe
        self._tell = tell
        self._end = end
        self._changed = asyncio.Condition()
        self._entries: deque[InboxEntry] = deque()
        self._size = 0
        self._latest: deque[InboxEntry] = deque(maxlen=LATEST)
        self._acked = 0
        self._open: AsyncSubscription | None = None
        self._problem: Exception | None = None
        self._receiving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts to receive, and returns when the stream is open. Raises what prevents it."""
        if self._receiving is None or self._receiving.done():
            self._problem = None
            self._receiving = asyncio.create_task(self._receive())
        async with self._changed:
            await self._wait_until(lambda: bool(self._open or self._problem), OPEN_S)
        if self._open is None:
            raise self._problem or Unavailable(f"no stream was opened within {OPEN_S:g} s")

    async def close(self) -> None:
        """Stops to receive; what was not acknowledged comes again on the session's next stream."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
            self._receiving = None

    def place(self) -> bytes:
        """Returns the service's cursor, which names its data and the session."""
        if self._open is None:
            raise self._problem or Unavailable("the stream of the session is not open")
        return self._open.cursor

    async def read(
        self, after: StreamCursor | None, limit: int, limit_bytes: int, wait_s: float
    ) -> InboxPage:
        """Acknowledges what comes before a cursor, and returns the next entries: at most `limit` of
        them and `limit_bytes`, but one at least; none if none come within `wait_s` seconds. Without
        a cursor they begin behind what was acknowledged. Raises NotFound for a cursor of another
        session or of other data."""
        await self.start()
        number = self._acked
        lost = None
        if after is not None:
            self._check_place(after)
            number = after.number
            lost = self._find_acknowledged(number)
            await self._acknowledge(number)
        async with self._changed:
            await self._wait_until(lambda: bool(self._entries or self._problem), wait_s)
            if not self._entries and lost is None and self._problem is not None:
                raise self._problem
            entries = [] if lost is None else [lost]
            more = self._fill_page(entries, limit, limit_bytes)
        return InboxPage(entries, entries[-1].number if entries else number, more)

    async def latest(self) -> list[InboxEntry]:
        """Returns the LATEST entries that came last, in order; acknowledges nothing."""
        await self.start()
        async with self._changed:  # what waits in the service comes at once
            await self._wait_until(lambda: bool(self._latest or self._problem), FIRST_S)
        return list(self._latest)

    def _check_place(self, after: StreamCursor) -> None:
        cursor = delivery_pb2.Cursor.FromString
        wanted, found = cursor(after.place), cursor(self.place())
        same = (wanted.incarnation, wanted.session) == (found.incarnation, found.session)
        if after.ephemeral or after.name != self._session or not same:
            raise NotFound(UNKNOWN)

    def _find_acknowledged(self, number: int) -> InboxEntry | None:
        """Returns what an old cursor wants and the service no longer has."""
        if number >= self._acked:
            return None
        row = {"first": number + 1, "last": self._acked, "count": 0, "problem": _ACKNOWLEDGED}
        return InboxEntry(self._acked, row, True, 0)

    async def _acknowledge(self, number: int) -> None:
        if number <= self._acked:
            return
        async with self._changed:
            self._acked = number
            while self._entries and self._entries[0].number <= number:
                self._size -= self._entries.popleft().size
            if self._open is not None:
                self._open.took(number)
            self._changed.notify_all()

    def _fill_page(self, entries: list[InboxEntry], limit: int, limit_bytes: int) -> bool:
        """Adds what waits to a page, and returns whether something is left."""
        size = 0
        for entry in self._entries:
            size += entry.size
            if len(entries) >= limit or (entries and size > limit_bytes):
                return True
            entries.append(entry)
        return False

    async def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait_for(is_so)

    async def _receive(self) -> None:
        """Receives batches while there is room, and opens the stream again that broke."""
        while True:
            subscription = self._subscribe()
            try:
                await subscription.open()
                await self._begin_anew(subscription)
                async for batch in subscription.batches(manual=True):
                    await self._keep_batch(batch)
            except (Unavailable, TimeoutError) as error:
                await self._note_problem(error)
            except FailedPrecondition as error:
                problem = FailedPrecondition(_OTHER.format(self._session, error))
                return await self._note_problem(problem, is_last=True)
            except Ps2StreamError as error:
                return await self._note_problem(error, is_last=True)
            finally:
                await subscription.close()
            await asyncio.sleep(AGAIN_S)

    async def _begin_anew(self, subscription: AsyncSubscription) -> None:
        async with self._changed:
            self._entries.clear()
            self._size = 0
            self._acked = subscription.acked
            self._open, self._problem = subscription, None
            self._changed.notify_all()

    async def _note_problem(self, problem: Exception, is_last: bool = False) -> None:
        async with self._changed:
            self._open, self._problem = None, problem
            self._entries.clear()
            self._changed.notify_all()
        if is_last:
            self._end()

    async def _keep_batch(self, batch: Matches) -> None:
        async with self._changed:
            for entry in _read_entries(batch):
                if entry.number > self._acked:
                    self._entries.append(entry)
                    self._latest.append(entry)
                    self._size += entry.size
            self._changed.notify_all()
        await self._tell()
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < ROOM)


def _read_entries(batch: Matches) -> Iterator[InboxEntry]:
    if batch.gap is not None:
        yield _describe_gap(batch.gap)
        return
    rows: dict[int, dict[str, Any]] = {}
    pairs = zip(batch.query_ids, batch.objects.tolist(), strict=True)
    for number, (query_id, at) in enumerate(pairs, batch.first):
        if at not in rows:
            rows[at] = _describe_post(describe_object(batch, at))
        row = {"seq": number, "subscription_id": write_out(query_id), **rows[at]}
        yield InboxEntry(number, row, False, len(json.dumps(row)))


def _describe_post(row: dict[str, Any]) -> dict[str, Any]:
    known = {name: row.get(name) for name in ("lon", "lat", "time")}
    return {"time_ms": known.pop("time"), **known, **describe_untrusted(row)}


def _describe_gap(gap: Gap) -> InboxEntry:
    row = {"first": gap.first, "last": gap.last, "count": gap.count, "problem": str(gap)}
    return InboxEntry(gap.last, row, True, len(json.dumps(row)))
