"""Limits on the number of open streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ps2stream.errors import ResourceExhausted
from ps2stream.security import QUOTA_RETRY_MS


class StreamSlots:
    """The slots of open streams: at most `limit` are taken at a time, and each also takes one of
    `outer`. `name` is the name of the limit, which `among` divides, rounded up."""

    def __init__(
        self,
        limit: int,
        name: str,
        outer: StreamSlots | None = None,
        among: Callable[[], int] = lambda: 1,
    ) -> None:
        self._limit = limit
        self._among = among
        self._name = name
        self._outer = outer
        self._used = 0
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Takes a slot for as long as the context lasts. Raises ResourceExhausted when all are
        taken."""
        with self._lock:
            limit = -(-self._limit // self._among())
            if self._used >= limit:
                raise ResourceExhausted(
                    f"{limit} streams are open, the limit ({self._name})", QUOTA_RETRY_MS
                )
            self._used += 1
        try:
            if self._outer is None:
                yield
            else:
                with self._outer.one():
                    yield
        finally:
            with self._lock:
                self._used -= 1
