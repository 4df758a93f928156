"""The choice among the dispatchers that a client knows: to which one a call goes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ps2stream.client.failures import AWAY_S
from ps2stream.errors import Unavailable


class DispatcherChoice:
    """The choice among so many dispatchers, for any thread. Of two that are drawn at random a call
    goes to the one with fewer calls of this client under way: two choices, as in Partial Key
    Grouping. Calls that last, such as subscriptions, are counted apart. One that was unavailable is
    passed over for AWAY_S while there are others."""

    def __init__(self, dispatchers: int) -> None:
        self._open = [[0] * dispatchers, [0] * dispatchers]
        self._away_until = [0.0] * dispatchers
        self._first: Sequence[int] = range(dispatchers)
        self._lock = threading.Lock()

    def prefer(self, first: Sequence[int], dispatchers: int) -> None:
        """Chooses from now on among `first`, of so many dispatchers; others only while all of these
        are away."""
        with self._lock:
            more = dispatchers - len(self._away_until)
            self._away_until += [0.0] * more
            for counts in self._open:
                counts += [0] * more
            self._first = first

    def begin_call(self, lasts: bool = False) -> ChosenCall:
        """Chooses a dispatcher, and counts a call to it, perhaps one that lasts, until it ends."""
        with self._lock:
            number = self._choose(self._open[lasts])
            self._open[lasts][number] += 1
        return ChosenCall(self, number, lasts)

    def _choose(self, counts: list[int]) -> int:
        if len(counts) == 1:
            return 0
        now = time.monotonic()
        near = [i for i in self._first if self._away_until[i] <= now]
        near = near or [i for i, until in enumerate(self._away_until) if until <= now]
        known = near or range(len(counts))
        return min(random.sample(known, min(2, len(known))), key=counts.__getitem__)

    def end_call(self, number: int, lasts: bool, error: BaseException | None) -> None:
        """Counts a call to this dispatcher no longer; error: what ended it, if that was one."""
        with self._lock:
            self._open[lasts][number] -= 1
            if isinstance(error, Unavailable):
                self._away_until[number] = time.monotonic() + AWAY_S


class ChosenCall:
    """A call to dispatcher `number` that is under way."""

    def __init__(self, choice: DispatcherChoice, number: int, lasts: bool) -> None:
        self._choice: DispatcherChoice | None = choice
        self.number = number
        self._lasts = lasts

    def end(self, error: BaseException | None = None) -> None:
        """Ends the call; any later end changes nothing."""
        choice, self._choice = self._choice, None
        if choice is not None:
            choice.end_call(self.number, self._lasts, error)

    def pass_on(self) -> ChosenCall:
        """Returns the call for someone else to end: the end of a `with` block does not."""
        choice, self._choice = self._choice, None
        assert choice is not None
        return ChosenCall(choice, self.number, self._lasts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(error)
