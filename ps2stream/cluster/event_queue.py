"""A queue of events that come from many threads and are handled by one at a time.

No thread waits for another: whoever puts an event and finds nobody at work handles all that is in
the queue, so that a single event is handled at once and on its own thread; others leave their
events to the one at work, who takes all that have gathered together. So that nobody is kept at work
while others go on bringing events, a thread of the queue's own takes over after a while.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E")
MOST = 256
"""Events that are taken together, so that the answers to the first need not wait for the last."""
TENURE_S = 0.005
"""The time after which whoever is at work is relieved: more than one event takes."""


class EventQueue(Generic[E]):
    """Events for `handle`, which is called by one thread at a time and never within itself. While
    it returns True it is called again, also without events."""

    def __init__(self, handle: Callable[[list[E]], bool]) -> None:
        self._handle = handle
        self._events: deque[E] = deque()
        self._at_work = threading.Lock()
        self._tenure_s = math.inf
        self._relief = threading.Event()
        self._is_closed = False

    def start_relief(self, name: str) -> None:
        """Starts the thread of this name that takes over from whoever is at work for TENURE_S.
        `handle` must raise nothing from now on."""
        threading.Thread(target=self._relieve_others, daemon=True, name=name).start()
        self._tenure_s = TENURE_S

    def close(self) -> None:
        """Ends the thread of the queue's own; events are handled by those who bring them."""
        self._tenure_s, self._is_closed = math.inf, True
        self._relief.set()

    def put(self, *events: E) -> None:
        """Adds events; their handling may end later, on another thread. Raises what `handle` does,
        of any events."""
        self._events.extend(events)
        # What comes between the last look and the release has found somebody at work.
        while self._events and self._at_work.acquire(blocking=False):
            try:
                is_done = self._handle_all(time.monotonic() + self._tenure_s)
            finally:
                self._at_work.release()
            if not is_done:
                self._relief.set()
                return

    def _handle_all(self, until: float) -> bool:
        """Handles events while there are any, up to this monotonic time; returns whether none is
        left."""
        more = True
        while more or self._events:
            if time.monotonic() >= until:
                return False
            many = min(len(self._events), MOST)
            more = self._handle([self._events.popleft() for _ in range(many)])
        return True

    def _relieve_others(self) -> None:
        while True:
            self._relief.wait()
            self._relief.clear()
            if not self._is_closed:
                with self._at_work:
                    self._handle_all(math.inf)
            self.put()  # what came before the release
            if self._is_closed:
                return
