"""Pauses before another try: exponential backoff with jitter, no shorter than asked for."""

from __future__ import annotations

import random
from collections.abc import Callable


class ConnectorAbandoned(Exception):
    """Raised when the connector ends and leaves something for its next run."""


class RetryBackoff:
    """Pauses in seconds. The pause after attempt n, 0 for the first, is drawn between half and all
    of `base * 2**n`, or of `cap` where that is less, so that it never is next to nothing."""

    def __init__(
        self,
        base: float = 0.1,
        cap: float = 30.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._base = base
        self._cap = cap
        self._chance = chance

    def pause(self, attempt: int, at_least: float = 0.0) -> float:
        """Returns the pause after an attempt. `at_least`: what the other side asked for; the pause
        is added to it, so that clients sent away together do not return together."""
        whole = min(self._cap, self._base * 2.0 ** min(attempt, 32))
        return at_least + whole * (1 + self._chance()) / 2
