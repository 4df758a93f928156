"""The matches of one session on their way to a reader over HTTP.

Such a reader does not acknowledge. What was written to it is kept by the service for KEEP_S, so
that it comes again to a reader that reconnects with the last cursor it has seen; then it is
acknowledged. Nothing is read ahead: a slow reader holds up its own session alone, whose matches
wait in the service.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from ps2stream.client.async_subscription import AsyncSubscription
from ps2stream.client.matches import Gap, Matches
from ps2stream.errors import Unavailable

KEEP_S = 300.0
KEEP_BYTES = 8 << 20
"""Bytes of events that may wait for KEEP_S: half of what a session may hold by default."""
AGAIN_S = 1.0
"""Pause after a service that was away for long, before it is asked again."""


class WrittenPart(NamedTuple):
    """What was written within one second: until when it is kept, its last number, its bytes."""

    keep_until: float
    last: int
    size: int


class SessionFeed:
    """Reads the batches of `subscription`. `after` is the number behind which the reader goes on,
    None: behind what was acknowledged; `clock` is in seconds."""

    def __init__(
        self,
        subscription: AsyncSubscription,
        after: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subscription = subscription
        self._last = after
        self._clock = clock
        self._batches: AsyncIterator[Matches] | None = None
        self._taking: asyncio.Task[Matches] | None = None
        self._written: deque[WrittenPart] = deque()
        self._size = 0

    @property
    def last(self) -> int:
        """The number of the last match that was taken, or acknowledged before."""
        return self._subscription.acked if self._last is None else self._last

    async def take(self, wait: float) -> Matches | None:
        """Returns the next batch, None after `wait` seconds, and while the service is away. Raises
        what ended the session's stream."""
        if self._taking is None:
            if self._batches is None:
                self._batches = self._subscription.batches(manual=True)
            self._taking = asyncio.ensure_future(_take_next(self._batches))
        taking = self._taking
        await asyncio.wait({taking}, timeout=wait)
        if not taking.done():
            return None
        self._taking = None
        try:
            return taking.result()
        except (Unavailable, TimeoutError):
            self._batches = None  # the client has given up for now
            await asyncio.sleep(min(AGAIN_S, wait))
            return None

    def find_lost(self, batch: Matches) -> Gap | None:
        """Returns what is missing before a batch, as it was acknowledged too long ago: a reader
        with an old cursor wants it, and the service has it no more."""
        first = batch.first if batch.gap is None else batch.gap.first
        before, self._last = self.last, batch.last
        return Gap(before + 1, first - 1, 0) if first > before + 1 else None

    def note_written(self, last: int, size: int) -> None:
        """Notes that everything up to this number was written, in so many bytes."""
        until = self._clock() + KEEP_S
        if self._written and until - self._written[-1].keep_until < 1.0:
            part = self._written.pop()
            until, size = part.keep_until, part.size + size
            self._size -= part.size
        self._written.append(WrittenPart(until, last, size))
        self._size += size

    def acknowledge_old(self) -> None:
        """Acknowledges what was written KEEP_S ago, and what is more than KEEP_BYTES."""
        number, now = 0, self._clock()
        while self._written and (self._written[0].keep_until <= now or self._size > KEEP_BYTES):
            part = self._written.popleft()
            self._size -= part.size
            number = part.last
        if number:
            self._subscription.took(number)

    async def skip_waiting(self, quiet: float) -> None:
        """Acknowledges what waits, until nothing has come for `quiet` seconds."""
        while (batch := await self.take(quiet)) is not None:
            self._last = batch.last
            self._subscription.took(batch.last)

    def place(self) -> bytes:
        """Returns the service's cursor behind what was acknowledged."""
        return self._subscription.cursor

    async def close(self) -> None:
        """Ends the stream; what was not acknowledged comes again on the session's next one."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
        await self._subscription.close()


async def _take_next(batches: AsyncIterator[Matches]) -> Matches:
    try:
        return await anext(batches)
    except StopAsyncIteration:
        raise Unavailable("the subscription is closed") from None
