"""The subscription of the asynchronous client, and the reading of a stream's answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from ps2stream.client import answers
from ps2stream.client.matches import Match, Matches, MatchReceiver
from ps2stream.errors import Ps2StreamError, Unavailable

log = logging.getLogger("ps2stream.client")


class AsyncSubscription:
    """The matches of one session as they come. Iterate over the subscription or over `batches()`. A
    batch counts as taken when the next one is asked for. What was not taken comes again on the
    session's next stream."""

    def __init__(self, stub: Any, receiver: MatchReceiver, reconnect: bool, timeout: float) -> None:
        self._stub = stub
        self._receiver = receiver
        self._reconnect = reconnect
        self._timeout = timeout
        self._call: Any = None
        self._closed = False
        self._shown = 0  # the last pair handed out, not yet known to be taken

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

    async def __aenter__(self) -> Self:
        await self._open_stream()
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
        async for batch in self._read_batches():
            for number, match in enumerate(batch, batch.first):
                self._shown = number
                yield match

    async def batches(self) -> AsyncIterator[Matches]:
        """Yields whole batches as columns, also those that hold only a gap."""
        async for batch in self._read_batches():
            self._shown = batch.last
            yield batch

    async def _read_batches(self) -> AsyncIterator[Matches]:
        while (data := await self._read_message()) is not None:
            found = self._receiver.on(data)
            if found is not None:
                if found.gap is not None:
                    log.warning("%s", found.gap)
                yield found
                self._receiver.took(found.last)
                self._shown = 0
            if (credit := self._receiver.credit()) is not None:
                try:
                    await self._call.write(credit)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    continue  # the next read says why

    async def _read_message(self) -> bytes | None:
        """Returns the next message, or None when the subscription has been closed."""
        if self._call is None and not self._closed:
            await self._open_stream()
        while not self._is_closed():
            try:
                return await next_answer(self._call)
            except (Ps2StreamError, TimeoutError) as error:
                if self._is_closed():
                    break
                if not (self._reconnect and isinstance(error, Unavailable)):
                    raise
                await self._reopen_stream(error)
        return None

    def _is_closed(self) -> bool:
        """Returns whether `close` was called, perhaps while something was awaited."""
        return self._closed

    async def _reopen_stream(self, error: Exception) -> None:
        """Opens the stream again; raises the error when that fails for `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        count = 0
        while True:
            pause = answers.pause_before(error, count, True)
            if pause is None or loop.time() + pause >= deadline:
                raise error
            await asyncio.sleep(pause)
            count += 1
            if self._closed:
                return
            try:
                await self._open_stream()
                return
            except Unavailable as again:
                error = again

    async def _open_stream(self) -> None:
        self._call = self._stub()
        try:
            await self._call.write(self._receiver.start())
        except grpc.aio.AioRpcError as error:
            raise rpc_error(error) from None
        self._receiver.on(await next_answer(self._call))


async def next_answer(call: Any) -> bytes:
    """Returns the next answer of a stream. Raises the stream's status, or Unavailable at its
    end."""
    try:
        data = await call.read()
    except grpc.aio.AioRpcError as error:
        raise rpc_error(error) from None
    if data is grpc.aio.EOF:
        raise Unavailable("the service ended the stream")
    return bytes(data)


def rpc_error(error: grpc.aio.AioRpcError) -> Exception:
    """Returns the exception for a call that failed."""
    trailing: dict[str, Any] = dict(error.trailing_metadata() or ())
    return answers.error_of(
        error.code().name, error.details() or "", trailing.get(answers.DETAILS_KEY)
    )
