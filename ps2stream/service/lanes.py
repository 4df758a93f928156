"""Threads for calls, in lanes, so that a flood in one does not hold up the others.

Streams that publish or update keep a thread while they are open, other calls while they are
answered, Deliver while it is opened. Deletes have threads of their own, for they are what ends an
overload. Explanations and estimates take long, and have few threads.
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
"""The number of open streams that one connection and one host may have."""
MAX_BULK_STREAMS = 768
"""The number of streams that may publish or insert, so that there is always room to delete and to
acknowledge."""
REFUSALS = 4096
"""The number of calls that may wait for their refusal; gRPC ends those beyond, without details."""
REFUSAL_S = 0.004
"""The pause between two refusals of a full service: a refusal costs as much as many objects, and a
caller that waits for one sends nothing meanwhile. There is no pause while HELD_REFUSALS wait."""
HELD_REFUSALS = 1024


class CallLane(ThreadPoolExecutor):
    """A pool of threads, and at most `waiting` calls that wait for one. `name` is the name of the
    limit."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        super().__init__(threads, thread_name_prefix=f"ps2stream-{name}")
        self._name = name
        self.waiting = waiting
        self.limit = threads + waiting
        # These count all calls in progress, also those that wait for their message.
        self.shares = PeerShares(
            PeerLimits(max(16, self.limit // 2), max(24, self.limit * 3 // 4)), f"peer_{name}"
        )
        self.calls = 0  # under way and waiting
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            self.calls += 1
        try:
            return super().submit(self._run_counted, fn, *args, **kwargs)
        except BaseException:
            self._count_ended()
            raise

    def check(self) -> None:
        """Raises ResourceExhausted when as many calls wait as may."""
        if self.calls >= self.limit:
            raise ResourceExhausted(f"{self.waiting} calls are waiting, the limit ({self._name})")

    def _run_counted(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        try:
            return fn(*args, **kwargs)
        finally:
            self._count_ended()

    def _count_ended(self) -> None:
        with self._lock:
            self.calls -= 1


class CallLanes:
    """The lanes of a server. `threads` and `waiting` apply to the ordinary calls: all but deletes,
    inquiries and streams."""

    def __init__(self, threads: int = 64, waiting: int = 256) -> None:
        # The threads beyond MAX_STREAMS refuse, and answer strangers.
        self.streams = CallLane("stream_calls", MAX_STREAMS + 32, 256)
        self.calls = CallLane("calls", threads, waiting)
        self.deletes = CallLane("delete_calls", 16, 256)
        self.inquiries = CallLane("inquiry_calls", 2, 64)
        self._pace = threading.Lock()
        self.refusals = CallLane("refusals", 2, REFUSALS)

    @property
    def limit(self) -> int:
        """The number of calls that may be in progress at a time."""
        lanes = (self.streams, self.calls, self.deletes, self.inquiries, self.refusals)
        return sum(lane.limit for lane in lanes)

    def hold_back(self) -> None:
        """Delays a refusal of a full service."""
        with self._pace:
            if self.refusals.calls < HELD_REFUSALS:
                time.sleep(REFUSAL_S)

    def of(self, method: str, streaming: bool) -> CallLane:
        """Returns the lane of a method."""
        if streaming:
            return self.streams
        own = {"DeleteQuery": self.deletes, "ExplainMatch": self.inquiries}
        own["PriceQuery"] = self.inquiries
        return own.get(method.rpartition("/")[2], self.calls)
