"""A call of gRPC in progress, as the service's own code sees it.

A call holds no thread: it is a coroutine of the service's loop, which waits for messages. Only
`OpenCall.peer`, `time_remaining` and `is_active` may be used by other threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import grpc
import grpc.aio

from ps2stream.service.half_open import HalfOpenCalls
from ps2stream.service.status import find_status


class OpenCall:
    """The call that the current task handles; `context` is gRPC's."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._peer = str(context.peer())
        self._task = asyncio.current_task()
        self._first: tuple[HalfOpenCalls, Exception] | None = None
        self._is_refused = False
        self.has_begun = False
        """True once the service has begun to answer."""
        self.is_broken = False
        """True once gRPC could not read or write, because the call has ended."""

    def peer(self) -> str:
        """Returns the address of the client as gRPC writes it: `ipv4:10.0.0.7:4711`."""
        return self._peer

    def time_remaining(self) -> float | None:
        """Returns the seconds until the deadline, 0 for a call that has ended, or None without
        one."""
        context = self._context
        left: float | None = 0.0 if context is None else context.time_remaining()
        return left

    def is_active(self) -> bool:
        """Returns whether somebody still waits for the answer."""
        return self._context is not None

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Returns what the client sent before its messages."""
        return self._context.invocation_metadata() or ()

    def certificate(self) -> Mapping[str, Sequence[bytes]]:
        """Returns what TLS says of the client, by name."""
        shown: Mapping[str, Sequence[bytes]] = self._context.auth_context()
        return shown

    def limit_first(self, half_open: HalfOpenCalls, late: Exception) -> None:
        """Ends the call with the error `late` if its first message does not come soon."""
        self._first = half_open, late

    async def read(self) -> bytes | None:
        """Returns the next message, or None at the end of the client's side."""
        first, self._first = self._first, None
        if first is not None:
            first[0].add(self, partial(self.end, first[1]))
        try:
            data = await self._context.read()
        except Exception:
            self.is_broken = True
            raise
        finally:
            if first is not None:
                first[0].drop(self)
        return None if data is grpc.aio.EOF else data

    async def write(self, data: bytes) -> None:
        """Writes a message; returns once HTTP/2 has let it pass."""
        try:
            await self._context.write(data)
        except Exception:
            self.is_broken = True
            raise

    async def refuse(self, status: grpc.Status) -> None:
        """Ends the call with this status, by raising what gRPC expects; the first status counts."""
        if self._is_refused:
            return
        self._is_refused = True
        await self._context.abort(status.code, status.details, status.trailing_metadata)

    def end(self, error: Exception) -> None:
        """Ends the call from another task, with the status of `error`."""
        ending = asyncio.get_running_loop().create_task(self._end_soon(find_status(error)))
        ending.add_done_callback(_forget_error)

    def close(self) -> None:
        """Notes that the call has ended."""
        self._context = self._task = self._first = None  # errors have frames that hold the call

    async def _end_soon(self, status: grpc.Status) -> None:
        task = self._task
        try:
            if self.is_active():
                await self.refuse(status)
        finally:
            if task is not None:
                task.cancel()


def _forget_error(done: asyncio.Task[None]) -> None:
    """Marks the error as seen by which gRPC says that a call is refused."""
    if not done.cancelled():
        done.exception()
