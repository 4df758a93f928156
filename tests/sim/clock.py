"""Virtual time: events in order of their time, and tasks that wait for time or for answers."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from ps2stream.errors import Unavailable

EPOCH_MS = 1_700_000_000_000  # what the clock on the wall says at the start

Task = Generator["int | Wait", Any, None]


class Wait:
    """What a task yields to get a future's result, or its exception; `give_up` ends the wait
    with Unavailable."""

    def __init__(self, clock: Clock, future: Future[Any], rtt: int) -> None:
        self._clock = clock
        self._future = future
        self._rtt = rtt
        self._resume: Callable[[Any, BaseException | None], None] | None = None

    def begin(self, resume: Callable[[Any, BaseException | None], None]) -> None:
        self._resume = resume
        self._future.add_done_callback(self._done)

    def give_up(self, why: str) -> None:
        self._end(None, Unavailable(why))

    def _done(self, future: Future[Any]) -> None:
        error = future.exception()
        self._end(None if error else future.result(), error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        resume, self._resume = self._resume, None
        if resume is not None:
            self._clock.after(self._rtt, resume, value, error)


class Clock:
    """`now` in ms since the start."""

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self.skews: dict[str, int] = {}  # by whose clock it is: ms ahead
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._ticket = itertools.count()

    def wall_ms(self, whose: str = "") -> int:
        """Unix time in ms, by somebody's clock."""
        return EPOCH_MS + self.now + self.skews.get(whose, 0)

    def monotonic(self) -> float:
        """Seconds, as time.monotonic says them."""
        return self.now / 1000

    def at(self, when: int, call: Callable[..., object], *args: Any) -> None:
        heapq.heappush(self._heap, (max(when, self.now), next(self._ticket), call, args))

    def after(self, ms: int, call: Callable[..., object], *args: Any) -> None:
        heapq.heappush(self._heap, (self.now + ms, next(self._ticket), call, args))

    def run(self, until: int) -> None:
        """All events up to this time."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, call, args = heapq.heappop(self._heap)
            self.events += 1
            call(*args)
        self.now = until

    def spawn(self, task: Task) -> None:
        """Run a task: it yields how many ms to sleep, or a Wait."""
        self._go_on(task, None, None)

    def _go_on(self, task: Task, value: Any, error: BaseException | None) -> None:
        try:
            asked = task.send(value) if error is None else task.throw(error)
        except StopIteration:
            return
        if isinstance(asked, int):
            self.after(asked, self._go_on, task, None, None)
        else:
            asked.begin(lambda value, error: self._go_on(task, value, error))
