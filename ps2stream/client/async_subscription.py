"""The subscription of the asynchronous client."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from ps2stream.client import failures
from ps2stream.client.async_channel import (
    AsyncChannel,
    AsyncEvent,
    AsyncLock,
    AsyncStream,
    wait_until_set,
)
from ps2stream.client.matches import Match, Matches, MatchReceiver
from ps2stream.errors import FailedPrecondition, Ps2StreamError, Unavailable

log = logging.getLogger("ps2stream.client")
CLOSING_S = 0.5
DELIVER = "/ps2stream.v1.PubSub/Deliver"


class AsyncSubscription:
    """The matches of one session as they come. Iterate over the subscription or over `batches()`,
    or ask with `next` and `get_nowait`; closing it ends the iteration. A match or a batch counts as
    taken when the next one is asked for. What was not taken comes again on the session's next
    stream."""

    def __init__(
        self, channel: AsyncChannel, receiver: MatchReceiver, reconnect: bool, timeout: float
    ) -> None:
        self._channel = channel
        self._receiver = receiver
        self._reconnect = reconnect
        self._timeout = timeout
        self._stream: AsyncStream | None = None
        self._opened = False
        self._closed = AsyncEvent()
        self._lock = AsyncLock()
        self._batch: Matches | None = None
        self._rest: Iterator[Match] = iter(())
        self._shown = 0  # the last pair handed out, not yet known to be taken
        self._tries = 0  # to open a stream that broke
        self._give_up = 0.0
        self._retry_at = 0.0

    @property
    def cursor(self) -> bytes:
        """The place up to which matches were handed out, including the match or batch in hand.
        Store it in the same transaction as the results of those matches, before you ask for the
        next one, and pass it to the next subscription: then each match counts once, whatever
        fails."""
        return self._receiver.cursor(self._shown)

    @property
    def missed(self) -> int:
        """The number of pairs that the service dropped because nobody took them in time."""
        return self._receiver.missed

    @property
    def acked(self) -> int:
        """The session_seq of the last match that had been acknowledged when the stream was opened;
        the stream begins after it."""
        return self._receiver.acked

    async def open(self) -> None:
        """Opens the stream. Raises Unavailable when the service cannot be reached, and
        FailedPrecondition when the cursor comes from another service."""
        if not self._opened:
            await self._open_stream(self._timeout)
            self._opened = True

    async def __aenter__(self) -> Self:
        await self.open()
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
        """Acknowledges what was handed out and ends the stream."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            self._receiver.took(self._shown)
            last, stream = self._receiver.credit(flush=True), self._stream
        if stream is None:
            return
        if last is not None:
            stream.write(last)
        stream.end_requests()
        await stream.finish(CLOSING_S)  # what is under way comes again on the next stream

    async def next(self, timeout: float | None = None) -> Match:
        """Returns the next match. Raises TimeoutError when none comes within `timeout` seconds,
        after which it may be asked for again, and FailedPrecondition when the subscription is
        closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        match = await self._take_match(deadline)
        if match is not None:
            return match
        if self._closed.is_set():
            raise FailedPrecondition("the subscription is closed")
        raise TimeoutError(f"no match came within {timeout} s")

    async def get_nowait(self) -> Match | None:
        """Returns the next match if it is here, else None. Raises FailedPrecondition when the
        subscription is closed."""
        match = await self._take_match(time.monotonic())
        if match is None and self._closed.is_set():
            raise FailedPrecondition("the subscription is closed")
        return match

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Match:
        match = await self._take_match(None)
        if match is None:
            raise StopAsyncIteration
        return match

    async def batches(self, *, manual: bool = False) -> AsyncIterator[Matches]:
        """Yields whole batches as columns, also those that hold only a gap. With `manual`, a batch
        counts as taken only when `took` is called with its last number, however many batches
        later."""
        while (batch := await self._take_batch(None, manual)) is not None:
            if not manual:
                self._shown = batch.last
            yield batch

    def took(self, number: int) -> None:
        """Acknowledges everything up to this pair now."""
        with self._lock:
            self._receiver.took(number)
            acknowledgement, stream = self._receiver.acknowledgement(), self._stream
        if stream is not None:
            stream.write(acknowledgement)

    def cursor_at(self, number: int) -> bytes:
        """Returns the `cursor` as it is once everything up to this pair was taken."""
        return self._receiver.cursor(number)

    async def _take_match(self, deadline: float | None) -> Match | None:
        """Returns the next match, None at the deadline or when the subscription is closed."""
        while not self._closed.is_set():
            match = next(self._rest, None)
            if match is not None:
                self._shown += 1
                return match
            batch = await self._take_batch(deadline)
            if batch is None:
                break
            self._rest = iter(batch)
            self._shown = batch.last if batch.gap is not None else batch.first - 1
        return None

    async def _take_batch(self, deadline: float | None, manual: bool = False) -> Matches | None:
        """Returns what is left of the batch in hand or the next batch, None at the deadline or when
        the subscription is closed."""
        if self._batch is not None and self._shown < self._batch.last:
            return self._hand_over(self._batch.after(self._shown), manual)
        if self._batch is not None:
            self._receiver.took(self._batch.last)
            self._batch, self._shown = None, 0
        while True:
            if (credit := self._receiver.credit()) is not None and self._stream is not None:
                self._stream.write(credit)
            data = await self._read_message(deadline)
            if data is None:
                return None
            found = self._receiver.on(data)
            if found is not None:
                if found.gap is not None:
                    log.warning("%s", found.gap)
                return self._hand_over(found, manual)

    def _hand_over(self, batch: Matches, manual: bool) -> Matches:
        self._rest = iter(())
        if manual:
            self._receiver.handed(batch.last)
            self._batch, self._shown = None, 0
        else:
            self._batch = batch
        return batch

    async def _read_message(self, deadline: float | None) -> bytes | None:
        """Returns the next message, None at the deadline or when the subscription is closed."""
        await self.open()
        while not self._closed.is_set():
            try:
                if self._stream is None and not await self._reopen_stream(deadline):
                    return None
                assert self._stream is not None
                data = await self._stream.read_within(_compute_left(deadline))
                return None if self._closed.is_set() else data
            except Unavailable as error:
                if not self._closed.is_set():
                    self._plan_reopening(error)
            except Ps2StreamError:
                if not self._closed.is_set():
                    raise
        return None

    def _plan_reopening(self, error: Unavailable) -> None:
        """Notes when to open a stream that broke again. Raises the error when that is not wanted,
        or has failed for `timeout` seconds."""
        if not self._reconnect:
            raise error
        now = time.monotonic()
        if not self._tries:
            log.info("the stream broke, and is opened again: %s", error)
            self._give_up = now + self._timeout
        pause = failures.pause_before(error, self._tries, True)
        if pause is None or now + pause >= self._give_up:
            self._tries = 0
            raise error
        self._tries += 1
        self._retry_at = now + pause
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _reopen_stream(self, deadline: float | None) -> bool:
        """Opens the stream when it is time to, and returns whether it did; it does not at the
        deadline and when the subscription is closed."""
        left = _compute_left(deadline)
        pause = max(0.0, self._retry_at - time.monotonic())
        if await wait_until_set(self._closed, pause if left is None else min(pause, left)):
            return False
        if left is not None and left < pause:
            return False
        await self._open_stream(self._timeout if left is None else min(self._timeout, left + 1))
        return True

    async def _open_stream(self, limit: float) -> None:
        """Opens the stream and waits at most `limit` seconds for the service to say so."""
        await self._channel.find_dispatchers()
        with self._lock:
            stream = self._channel.open_stream(DELIVER, buffered=True)
            stream.write(self._receiver.start())
            self._stream = stream
        started = await stream.read_within(limit)
        if started is None:
            raise Unavailable(f"the service did not open the stream within {limit:g} s")
        self._receiver.on(started)
        self._tries = 0


def _compute_left(deadline: float | None) -> float | None:
    """Returns the seconds until the deadline, 0 when it has passed."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
