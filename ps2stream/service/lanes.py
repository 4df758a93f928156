"""Threads for calls, in lanes, so that a flood in one does not hold up the others.

A call or stream takes a thread only while one of its messages is handled. Deletes have threads of
their own, for they are what ends an overload. Explanations and estimates take long, and have few
threads. Streams have as many as there may be streams, since each handles one message at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from ps2stream.errors import ResourceExhausted
from ps2stream.service.half_open import PeerLimits, PeerShares

MAX_STREAMS = 1024
CONNECTION_STREAMS = 512
HOST_STREAMS = 1000
"""The number of open streams that one connection and one host may have."""
MAX_BULK_STREAMS = 768
"""The number of streams that may publish or insert, so that there is always room to delete and to
acknowledge."""
REFUSALS = 4096
"""The number of calls that may wait for their refusal; those beyond end without details."""
REFUSAL_S = 0.004
"""The pause between two refusals of a full service: a refusal costs as much as many objects, and a
caller that waits for one sends nothing meanwhile. There is no pause while HELD_REFUSALS wait."""
HELD_REFUSALS = 1024


class CallerThread(Executor):
    """Stands for threads where nothing blocks: the caller does the work."""

    def submit(self, do: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(do(*args, **kwargs))
        return done


class CallLane:
    """A pool of `threads`, and at most `waiting` calls beyond those. `name` is the name of the
    limit."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix=f"ps2stream-{name}")
        self._name = name
        self.waiting = waiting
        self.limit = threads + waiting
        # These count all calls in progress, also those that wait for their message.
        self.shares = PeerShares(
            PeerLimits(max(16, self.limit // 2), max(24, self.limit * 3 // 4)), f"peer_{name}"
        )
        self.calls = 0  # whose message is there, and whose answer is not

    def check(self) -> None:
        """Raises ResourceExhausted when as many calls wait as may."""
        if self.calls >= self.limit:
            raise ResourceExhausted(f"{self.waiting} calls are waiting, the limit ({self._name})")

    @contextmanager
    def count_one(self) -> Iterator[None]:
        """Counts a call for as long as the context lasts. Raises ResourceExhausted when as many
        wait as may."""
        self.check()
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1


class RefusalPacer:
    """The refusals of a full service, one after another with a pause."""

    def __init__(self) -> None:
        self.waiting = 0
        self._pace = asyncio.Lock()

    async def hold_back(self) -> bool:
        """Waits until a refusal may be sent. Returns False at once where too many wait already."""
        if self.waiting >= REFUSALS:
            return False
        self.waiting += 1
        try:
            async with self._pace:
                if self.waiting <= HELD_REFUSALS:
                    await asyncio.sleep(REFUSAL_S)
        finally:
            self.waiting -= 1
        return True


class CallLanes:
    """The lanes of a server. `threads` and `waiting` apply to the ordinary calls: all but deletes,
    inquiries and streams."""

    def __init__(self, threads: int = 64, waiting: int = 256) -> None:
        self.streams = ThreadPoolExecutor(MAX_STREAMS, thread_name_prefix="ps2stream-stream_calls")
        self.calls = CallLane("calls", threads, waiting)
        self.deletes = CallLane("delete_calls", 16, 256)
        self.inquiries = CallLane("inquiry_calls", 2, 64)
        self.refusals = RefusalPacer()

    @property
    def limit(self) -> int:
        """The number of calls that may be in progress at a time."""
        lanes = (self.calls, self.deletes, self.inquiries)
        return MAX_STREAMS + sum(lane.limit for lane in lanes) + REFUSALS

    def of(self, method: str) -> CallLane:
        """Returns the lane of a unary method."""
        own = {"DeleteQuery": self.deletes, "ExplainMatch": self.inquiries}
        own["PriceQuery"] = self.inquiries
        return own.get(method.rpartition("/")[2], self.calls)
