"""The rules for how long the supervisor waits for an actor, and how often it replaces one. They
have no clock and no I/O.

Beside busy programs a process may get so little of the processors that it answers late, and its
replacement would only add work. So silence is measured in time that the process could have used:
the time that its longest waiting thread spent runnable, without a processor, is subtracted. A
stopped or deadlocked process does not wait for a processor, and one in an endless loop gets some.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LATE_S = 1.0
"""Silence from which on an actor is late, and its wait for processors is measured."""
FREE_REPLACEMENTS = 3
WINDOW_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class ActorSilence:
    """The silence of an actor that is late. delays_s: by thread, how long each has waited for a
    processor since it began; empty where the system does not count that."""

    def __init__(self, delays_s: Mapping[int, float]) -> None:
        """Begins once the actor is late; earlier waits are not subtracted."""
        self._before_s = dict(delays_s)

    def starved_s(self, delays_s: Mapping[int, float]) -> float:
        """Returns how long the actor has since waited for a processor."""
        waited = (s - self._before_s.get(thread, 0.0) for thread, s in delays_s.items())
        return max(waited, default=0.0)


class ReplacementPace:
    """The pace at which one actor may be replaced: a few times at once, then ever later."""

    def __init__(self) -> None:
        self._replaced_at: list[float] = []

    def next_at(self, now: float) -> float:
        """Returns the time from which on it may be replaced; -inf: at any time."""
        recent = [at for at in self._replaced_at if now - at < WINDOW_S]
        if len(recent) < FREE_REPLACEMENTS:
            return -math.inf
        pause_s = FIRST_PAUSE_S * 2.0 ** (len(recent) - FREE_REPLACEMENTS)
        return recent[-1] + min(pause_s, LONGEST_PAUSE_S)

    def replace(self, now: float) -> None:
        """Notes that it is replaced now."""
        self._replaced_at = [at for at in self._replaced_at if now - at < WINDOW_S] + [now]
