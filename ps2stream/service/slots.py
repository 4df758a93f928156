"""How many streams there are, and how many there may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ps2stream.errors import ResourceExhausted
from ps2stream.security import QUOTA_RETRY_MS


class Slots:
    """At most `limit` at a time, which also count among those of `outer`. `name` is the
    limit's."""

    def __init__(self, limit: int, name: str, outer: Slots | None = None) -> None:
        self._limit = limit
        self._name = name
        self._outer = outer
        self._used = 0
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """One of them, for a while. Raises ResourceExhausted when all are taken."""
        with self._lock:
            if self._used >= self._limit:
                raise ResourceExhausted(
                    f"{self._limit} streams are open, the limit ({self._name})", QUOTA_RETRY_MS
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
