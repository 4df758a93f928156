"""Calls in progress by connection and host, and calls whose message has not come.

A call is opened by a few bytes. This module decides what it may hold until its message is there,
and how many of them one peer may open. That takes no thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from ps2stream.errors import ResourceExhausted

log = logging.getLogger("ps2stream.service")
HALF_OPEN_S: Final = 5.0
HALF_OPEN_CALLS: Final = 4096


class PeerLimits(NamedTuple):
    """The number of calls in progress that one connection and one host may have."""

    connection: int
    host: int


class PeerShares:
    """The calls in progress of each peer, which is named as by gRPC: `ipv4:10.0.0.7:4711`."""

    def __init__(self, limits: PeerLimits, name: str) -> None:
        """Makes the shares; `name` is that of the limit, in errors."""
        self.limits = limits
        self._name = name
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, peer: str) -> None:
        """Counts one more call. Raises ResourceExhausted where the peer has its share."""
        with self._lock:
            for key, limit, kind in self._list_keys(peer):
                if self._calls[key] >= limit:
                    raise ResourceExhausted(
                        f"{limit} calls of this {kind} are in progress, the limit ({self._name})"
                    )
            for key, _, _ in self._list_keys(peer):
                self._calls[key] += 1

    def leave(self, peer: str) -> None:
        """Counts one call of the peer less."""
        with self._lock:
            for key, _, _ in self._list_keys(peer):
                self._calls[key] -= 1
                if not self._calls[key]:
                    del self._calls[key]

    def __len__(self) -> int:
        """Returns the number of peers with calls in progress: connections and hosts."""
        return len(self._calls)

    def _list_keys(self, peer: str) -> list[tuple[str, int, str]]:
        """Returns what the peer is counted under: all peers of a Unix socket are one host without a
        name."""
        if not peer.startswith("ip"):
            return [(peer, self.limits.host, "host")]
        host = peer.rpartition(":")[0]
        return [
            (peer, self.limits.connection, "connection"),
            (host, self.limits.host, "host"),
        ]


class HalfOpenCalls:
    """The calls that wait for their message. Each is ended after `limit_s` seconds, and the oldest
    one earlier when there are more than `most`. For the service's loop alone."""

    def __init__(self, limit_s: float = HALF_OPEN_S, most: int = HALF_OPEN_CALLS) -> None:
        self.limit_s = limit_s
        self._most = most
        self._calls: OrderedDict[Hashable, tuple[float, Callable[[], object]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Hashable, end: Callable[[], object]) -> None:
        """Starts to wait for `call`'s message; `end` ends the call, and must not block."""
        self._calls[call] = time.monotonic() + self.limit_s, end
        if len(self._calls) > self._most:
            self._end_oldest()
        if self._timer is None:
            self._start_timer(self.limit_s)

    def drop(self, call: Hashable) -> bool:
        """Stops waiting for the call, because its message has come or it has ended. Returns False
        when it has been dropped or ended before."""
        return self._calls.pop(call, None) is not None

    def _start_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._end_overdue_calls)

    def _end_overdue_calls(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._calls:
            deadline, _ = next(iter(self._calls.values()))
            if deadline > now:
                self._start_timer(deadline - now)
                return
            self._end_oldest()

    def _end_oldest(self) -> None:
        _, (_, end) = self._calls.popitem(last=False)
        try:
            end()
        except Exception:
            log.exception("a call that sent nothing could not be ended")
