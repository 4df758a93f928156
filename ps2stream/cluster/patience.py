"""How long the supervisor waits for an actor, and how often it replaces one. No clock, no I/O.

Beside busy programs a process may get so little of the processors that it answers late. To
replace it would only add work. So silence counts in time that the process could have used:
what its thread that waited longest spent runnable, without a processor, is taken off. A stopped
or deadlocked process does not wait for a processor, and one that runs in circles gets some.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LATE_S = 1.0
"""Who has not answered for so long is looked at more closely."""
FREE_REPLACEMENTS = 3
WINDOW_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class Silence:
    """The time since an actor was last heard. delays_s: by thread, how long each has waited for
    a processor since it began; empty where the system does not tell."""

    def __init__(self, delays_s: Mapping[int, float]) -> None:
        """Begins once the actor is late; what it waited before is not taken off."""
        self._before_s = dict(delays_s)

    def starved_s(self, delays_s: Mapping[int, float]) -> float:
        """Returns how long the actor has wanted a processor since, and got none."""
        waited = (s - self._before_s.get(thread, 0.0) for thread, s in delays_s.items())
        return max(waited, default=0.0)


class Pace:
    """When one actor may be replaced again: at once a few times, then ever later."""

    def __init__(self) -> None:
        self._replaced_at: list[float] = []

    def next_at(self, now: float) -> float:
        """Returns the time from which it may be replaced; -inf: at any time."""
        recent = [at for at in self._replaced_at if now - at < WINDOW_S]
        if len(recent) < FREE_REPLACEMENTS:
            return -math.inf
        pause_s = FIRST_PAUSE_S * 2.0 ** (len(recent) - FREE_REPLACEMENTS)
        return recent[-1] + min(pause_s, LONGEST_PAUSE_S)

    def replace(self, now: float) -> None:
        """Note that it is replaced now."""
        self._replaced_at = [at for at in self._replaced_at if now - at < WINDOW_S] + [now]
