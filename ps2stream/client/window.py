"""The requests of a stream that have no answer yet."""

from __future__ import annotations

from collections import deque

WINDOW = 8
"""The requests that may be unanswered, whatever their size."""
SMALL_WINDOW = 64
"""The same for small ones: for those that hold SMALL_BYTES together."""
SMALL_BYTES = 1 << 20


class SendWindow:
    """Counts the requests without an answer: at most `in_flight`; without it, WINDOW, or up to
    SMALL_WINDOW small ones, so that the service can join them."""

    def __init__(self, in_flight: int | None = None) -> None:
        self._in_flight = in_flight
        self._sizes: deque[int] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def is_full(self) -> bool:
        """Whether an answer must come before the next request."""
        count = len(self._sizes)
        if self._in_flight is not None:
            return count >= max(self._in_flight, 1)
        return count >= (SMALL_WINDOW if self._bytes < SMALL_BYTES else WINDOW)

    def note_sent(self, size_bytes: int) -> None:
        """Notes that a request was sent."""
        self._sizes.append(size_bytes)
        self._bytes += size_bytes

    def note_answered(self) -> None:
        """Notes the answer to the oldest request."""
        self._bytes -= self._sizes.popleft()
