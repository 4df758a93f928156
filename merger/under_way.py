"""The bound on bytes that are on their way from a merger to each dispatcher.

Credits are per stream: without this bound, a thousand streams that are all sent something at
once would put a gibibyte between two processes.
"""

from __future__ import annotations

from collections import defaultdict

PATIENCE = 10  # ticks without a report after which bytes count as lost


class DeliveryAllowance:
    """Counts the bytes on their way to each dispatcher, of which there are at most `limit` and one
    delivery. Bytes are given up after PATIENCE ticks without a report of the dispatcher."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes: dict[int, int] = defaultdict(int)
        self._arrived: dict[int, int] = defaultdict(int)  # the total that the dispatcher reported
        self._silent: dict[int, int] = defaultdict(int)  # ticks

    def room(self, dispatcher: int) -> bool:
        """Tells whether a delivery, which may exceed the limit, may be sent to a dispatcher."""
        return self._bytes[dispatcher] < self._limit

    def sent(self, dispatcher: int, size: int) -> None:
        self._bytes[dispatcher] += size

    def arrived(self, dispatcher: int, total: int) -> None:
        """Takes the bytes that a dispatcher has received since it, or this merger, started."""
        new = max(total - self._arrived[dispatcher], 0)
        self._arrived[dispatcher] += new
        self._bytes[dispatcher] = max(self._bytes[dispatcher] - new, 0)
        self._silent[dispatcher] = 0

    def left(self, dispatcher: int) -> None:
        """Starts to count anew for a dispatcher that was replaced."""
        self._bytes[dispatcher] = self._arrived[dispatcher] = 0

    def tick(self) -> set[int]:
        """Counts a tick, and returns the dispatchers whose bytes were given up."""
        freed = set()
        for dispatcher, size in self._bytes.items():
            self._silent[dispatcher] = self._silent[dispatcher] + 1 if size else 0
            if self._silent[dispatcher] >= PATIENCE:
                self._bytes[dispatcher] = self._silent[dispatcher] = 0
                freed.add(dispatcher)
        return freed
