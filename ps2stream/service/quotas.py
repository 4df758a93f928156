"""Rates: a token bucket that may be overdrawn by one batch, and refuses until it is even."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from ps2stream.errors import OverQuota
from ps2stream.rows import ObjectRows
from ps2stream.security import Quota

OBJECT_BYTES = 24
"""Position and time of an object."""


class Bucket:
    """Fills by `rate` a second and holds a second's worth. A batch larger than that passes
    too, and those after it wait the longer: the mean over time is at most `rate`."""

    def __init__(self, rate: float, clock_ms: Callable[[], int]) -> None:
        self._rate = rate
        self._clock_ms = clock_ms
        self._level = rate
        self._at = clock_ms()

    def wait_ms(self) -> int:
        """Milliseconds until something passes; 0: now."""
        now = self._clock_ms()
        passed, self._at = max(0, now - self._at), now
        self._level = min(self._rate, self._level + self._rate * passed / 1000)
        return 0 if self._level > 0 else 1 + math.ceil(-1000 * self._level / self._rate)

    def take(self, amount: int) -> None:
        """Once `wait_ms` has said 0."""
        self._level -= amount


class Rates:
    """A tenant's quotas on what it publishes, as far as they are this dispatcher's: each of
    `dispatchers` grants an equal share."""

    def __init__(self, quota: Quota, dispatchers: int, clock_ms: Callable[[], int]) -> None:
        self._limits = {
            name: limit
            for name in ("objects_per_s", "bytes_per_s")
            if (limit := getattr(quota, name)) is not None
        }
        self._buckets = {
            name: Bucket(limit / dispatchers, clock_ms) for name, limit in self._limits.items()
        }
        self._lock = threading.Lock()

    def take(self, rows: ObjectRows) -> None:
        """Let a batch pass. Raises OverQuota, naming the quota, when it may not; then
        nothing of it counts."""
        if not self._buckets:
            return
        amounts = {
            "objects_per_s": len(rows),
            "bytes_per_s": len(rows.text) + len(rows.id) + OBJECT_BYTES * len(rows),
        }
        with self._lock:
            for name, bucket in self._buckets.items():
                if wait := bucket.wait_ms():
                    problem = f"{self._limits[name]} is the tenant's quota ({name})"
                    raise OverQuota(problem, wait)
            for name, bucket in self._buckets.items():
                bucket.take(amounts[name])
