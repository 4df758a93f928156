"""Threads for calls, in lanes: what floods one holds up no other.

Streams that publish or update keep a thread while they are open, other calls while they are
answered, Deliver while it is opened. Deletes have threads of their own, for they are what ends
an overload; what explains and estimates takes long, and has few.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from ps2stream.errors import ResourceExhausted
from ps2stream.service.half_open import PeerLimits, PeerShares

P = ParamSpec("P")
T = TypeVar("T")
MAX_STREAMS = 1024
CONNECTION_STREAMS = 512
HOST_STREAMS = 1000
"""Open streams that one connection and one host may have."""
MAX_BULK_STREAMS = 768
"""Of them may publish or insert; so there is always room to delete and to acknowledge."""
REFUSALS = 4096
"""Calls that wait for their refusal; those beyond are ended by gRPC, without details."""
REFUSAL_S = 0.004
"""Between two refusals of a full service, for one costs as much as many objects, and who waits
for one asks no more meanwhile. Beyond so many that wait they are not held back:"""
HELD_REFUSALS = 1024


class Lane(ThreadPoolExecutor):
    """So many threads, and so many calls `waiting` for one; `name` is the limit's."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        super().__init__(threads, thread_name_prefix=f"ps2stream-{name}")
        self._name = name
        self.waiting = waiting
        self.limit = threads + waiting
        # Of the calls in progress, those that wait for their message among them.
        self.shares = PeerShares(
            PeerLimits(max(16, self.limit // 2), max(24, self.limit * 3 // 4)), f"peer_{name}"
        )
        self.calls = 0  # under way and waiting
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            self.calls += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._count_ended)
        return future

    def check(self) -> None:
        """Raises ResourceExhausted when as many calls wait as may."""
        if self.calls >= self.limit:
            raise ResourceExhausted(f"{self.waiting} calls are waiting, the limit ({self._name})")

    def _count_ended(self, _: Future[Any]) -> None:
        with self._lock:
            self.calls -= 1


class Lanes:
    """Those of a server. `threads` and `waiting` are of the calls that are no deletes."""

    def __init__(self, threads: int = 64, waiting: int = 256) -> None:
        # The threads beyond MAX_STREAMS refuse, and answer strangers.
        self.streams = Lane("stream_calls", MAX_STREAMS + 32, 256)
        self.calls = Lane("calls", threads, waiting)
        self.deletes = Lane("delete_calls", 16, 256)
        self.inquiries = Lane("inquiry_calls", 2, 64)
        self._pace = threading.Lock()
        self.refusals = Lane("refusals", 2, REFUSALS)

    @property
    def limit(self) -> int:
        """Calls at a time."""
        lanes = (self.streams, self.calls, self.deletes, self.inquiries, self.refusals)
        return sum(lane.limit for lane in lanes)

    def hold_back(self) -> None:
        """Let a refusal of a full service take its time."""
        with self._pace:
            if self.refusals.calls < HELD_REFUSALS:
                time.sleep(REFUSAL_S)

    def of(self, method: str, streaming: bool) -> Lane:
        """The lane of a method."""
        if streaming:
            return self.streams
        own = {"DeleteQuery": self.deletes, "ExplainMatch": self.inquiries}
        own["PriceQuery"] = self.inquiries
        return own.get(method.rpartition("/")[2], self.calls)
