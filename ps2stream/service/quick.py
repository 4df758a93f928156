"""What may be handled on the service's loop: messages that take a few milliseconds at most.

Most do, for their size. But some texts take fifty times as long to analyse, so the time that
messages took is remembered: after a slow one, only smaller ones are taken for quick, until quick
ones have come again.
"""

from __future__ import annotations

import time

QUICK_S = 0.004
"""The processor time that a message may take on the loop."""
FORGETTING = 0.9
"""What is left of the time per byte that is expected, with each message."""

SMALL_BYTES = 16 << 10
"""The size of messages below which their bytes hardly matter."""


class QuickReading:
    """Messages of one kind, of at most `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._s_per_byte = 0.0

    def expects(self, size_bytes: int) -> bool:
        """Returns whether a message of this size should be quick."""
        return size_bytes <= self._most_bytes and size_bytes * self._s_per_byte <= QUICK_S

    def note(self, size_bytes: int, seconds: float) -> None:
        """Notes the processor time that a message took."""
        # Threads note without a lock: what one of two overwrites matters little.
        found = seconds / max(size_bytes, SMALL_BYTES)
        self._s_per_byte = max(found, FORGETTING * self._s_per_byte)


class QuickTime:
    """The time of one message on the thread that makes this."""

    def __init__(self, is_limited: bool) -> None:
        self._since = time.thread_time()
        self._is_limited = is_limited

    @property
    def taken_s(self) -> float:
        """The processor time since then."""
        return time.thread_time() - self._since

    def is_left(self) -> bool:
        """Returns whether the message may take more time."""
        return not self._is_limited or self.taken_s <= QUICK_S
