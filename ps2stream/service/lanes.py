"""Threads for calls, in lanes: what floods one holds up no other.

Streams that publish or update keep a thread while they are open, other calls while they are
answered, Deliver while it is opened. Deletes have threads of their own, for they are what ends
an overload.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from ps2stream.errors import ResourceExhausted

P = ParamSpec("P")
T = TypeVar("T")
MAX_STREAMS = 1024
MAX_BULK_STREAMS = 768
"""Of them may publish or insert; so there is always room to delete and to acknowledge."""
REFUSALS = 4096
"""Calls that wait for their refusal; those beyond are ended by gRPC, without details."""


class Lane(ThreadPoolExecutor):
    """So many threads, and so many calls `waiting` for one; `name` is the limit's."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        super().__init__(threads, thread_name_prefix=f"ps2stream-{name}")
        self._name = name
        self.waiting = waiting
        self.limit = threads + waiting
        self._calls = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            self._calls += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._done)
        return future

    def check(self) -> None:
        """Raises ResourceExhausted when as many calls wait as may."""
        if self._calls >= self.limit:
            raise ResourceExhausted(f"{self.waiting} calls are waiting, the limit ({self._name})")

    def _done(self, _: Future[Any]) -> None:
        with self._lock:
            self._calls -= 1


class Lanes:
    """Those of a server. `threads` and `waiting` are of the calls that are no deletes."""

    def __init__(self, threads: int = 64, waiting: int = 256) -> None:
        # The threads beyond MAX_STREAMS refuse, and answer strangers.
        self.streams = Lane("stream_calls", MAX_STREAMS + 32, 256)
        self.calls = Lane("calls", threads, waiting)
        self.deletes = Lane("delete_calls", 16, 256)
        self.refusals = Lane("refusals", 2, REFUSALS)

    @property
    def limit(self) -> int:
        """Calls at a time."""
        lanes = (self.streams, self.calls, self.deletes, self.refusals)
        return sum(lane.limit for lane in lanes)

    def of(self, method: str, streaming: bool) -> Lane:
        """The lane of a method."""
        if streaming:
            return self.streams
        return self.deletes if method.endswith("/DeleteQuery") else self.calls
