"""Streams that keep no thread while nothing moves on them.

gRPC gives a stream a thread while it is open, and a second one is needed to read the client's
messages meanwhile. They take 50 KiB of memory, and their frames hold the last message besides. A
handler that is `experimental_non_blocking` returns while its call goes on. To read and write
without a thread it takes the parts that gRPC's own handlers are made of, in `grpc._server`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from grpc import _server
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from ps2stream.service.status import set_status

log = logging.getLogger("ps2stream.service")


class TaskThread(threading.Thread):
    """A thread that runs the tasks it is given, in order, until `close`."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.start()

    def do(self, task: Callable[[], None]) -> None:
        """Adds a task and returns at once."""
        self._tasks.put(task)

    def close(self) -> None:
        """Ends the thread once all tasks are done."""
        self._tasks.put(None)
        self.join()

    def run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("a stream's next step failed")
            del task  # it holds a message


class OpenCall:
    """A call that goes on after its handler. At most one `read` and one `write` may be under way.
    Their call-backs run on gRPC's thread, and must not block or raise."""

    def __init__(self, context: Any, send: Callable[[None], None], greet: bool = True) -> None:
        """Takes the call up; `greet` lets the client know at once that it was."""
        self._context = context
        self._state = context._state
        self._call = context._rpc_event.call
        self._send = send
        if greet:
            context.send_initial_metadata(())

    def read(self, then: Callable[[bytes | None], None]) -> bool:
        """Begins to read. `then` gets the next message, or None at the end of the client's side or
        of the call. Returns False, and never calls it, if the call is over."""
        state = self._state
        taken = _server._receive_message(state, self._call, None)

        def done(event: Any) -> Any:
            found = taken(event)
            data, state.request = state.request, None
            then(data)
            return found

        return self._begin_operation(
            cygrpc.ReceiveMessageOperation(0), done, _server._RECEIVE_MESSAGE_TOKEN
        )

    def write(self, data: bytes, then: Callable[[], None]) -> None:
        """Begins to write. `then` is called once HTTP/2 has let the message pass, or the call is
        over."""
        sent = _server._send_message(self._state, _server._SEND_MESSAGE_TOKEN)

        def done(event: Any) -> Any:
            found = sent(event)
            then()
            return found

        self._begin_operation(
            cygrpc.SendMessageOperation(data, 0), done, _server._SEND_MESSAGE_TOKEN
        )

    def answer(self, data: bytes) -> None:
        """Writes the only message and ends the call, in one step as gRPC's unary calls do."""
        _server._status(self._context._rpc_event, self._state, data)

    def cancel(self) -> None:
        """Ends the call without details."""
        self._context.cancel()

    def end(self, error: Exception | None) -> None:
        """Ends the call, successfully or with the status of `error`. Nothing may be under way but a
        read."""
        if error is not None:
            set_status(self._context, error)
        self._send(None)

    def _begin_operation(self, operation: Any, done: Callable[[Any], Any], token: str) -> bool:
        with self._state.condition:
            if not self._context.is_active():
                return False
            self._call.start_server_batch((operation,), done)
            self._state.due.add(token)
            return True
