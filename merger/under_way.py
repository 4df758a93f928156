"""What is on its way from a merger to each dispatcher, within a bound.

Credits are per stream: without this, a thousand streams that are all sent something at once
would be a gibibyte between two processes.
"""

from __future__ import annotations

from collections import defaultdict

PATIENCE = 10  # ticks


class UnderWay:
    """At most `limit` bytes and a delivery to a dispatcher. What none has told of for so long
    got lost."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes: dict[int, int] = defaultdict(int)
        self._told: dict[int, int] = defaultdict(int)  # the total that had arrived
        self._silent: dict[int, int] = defaultdict(int)  # ticks

    def room(self, dispatcher: int) -> bool:
        """Whether a delivery may be sent there; it may overdraw."""
        return self._bytes[dispatcher] < self._limit

    def sent(self, dispatcher: int, size: int) -> None:
        self._bytes[dispatcher] += size

    def arrived(self, dispatcher: int, total: int) -> None:
        """The dispatcher has got so much since it, or this merger, began."""
        new = max(total - self._told[dispatcher], 0)
        self._told[dispatcher] += new
        self._bytes[dispatcher] = max(self._bytes[dispatcher] - new, 0)
        self._silent[dispatcher] = 0

    def left(self, dispatcher: int) -> None:
        """Another one is there."""
        self._bytes[dispatcher] = self._told[dispatcher] = 0

    def tick(self) -> set[int]:
        """The dispatchers that have room again."""
        freed = set()
        for dispatcher, size in self._bytes.items():
            self._silent[dispatcher] = self._silent[dispatcher] + 1 if size else 0
            if self._silent[dispatcher] >= PATIENCE:
                self._bytes[dispatcher] = self._silent[dispatcher] = 0
                freed.add(dispatcher)
        return freed
