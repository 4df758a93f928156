"""A queue of events that come from many threads and are handled by one at a time.

No thread waits for another: whoever puts an event and finds nobody at work handles all that is in
the queue, so that a single event is handled at once and on its own thread; others leave their
events to the one at work, who takes all that have gathered together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

E = TypeVar("E")
MOST = 256
"""Events that are taken together, so that the answers to the first need not wait for the last."""


class EventQueue(Generic[E]):
    """Events for `handle`, which is called by one thread at a time and never within itself. While
    it returns True it is called again, also without events. `refuse` is called for each event that
    comes after the end, on any thread."""

    def __init__(
        self,
        handle: Callable[[list[E]], bool],
        refuse: Callable[[E], object] = lambda _: None,
    ) -> None:
        self._handle = handle
        self._refuse = refuse
        self._has_ended = False
        self._events: deque[E] = deque()
        self._at_work = threading.Lock()

    def put(self, *events: E) -> None:
        """Adds events; their handling may end later, on another thread. Raises what `handle` does,
        of any events."""
        self._events.extend(events)
        # What comes between the last look and the release has found somebody at work.
        while self._events and self._at_work.acquire(blocking=False):
            try:
                self._handle_all()
            finally:
                self._at_work.release()
        if self._has_ended:
            self._refuse_all()

    def end(self, *events: E) -> None:
        """Handles these events and all that came before, waiting for a thread that is at work.
        Afterwards nothing is handled any more, and `put` refuses."""
        self._events.extend(events)
        self._at_work.acquire()  # and never released: later events find somebody at work
        try:
            self._handle_all()
        finally:
            self._has_ended = True
            self._refuse_all()  # what came after the last look, and before `put` could know

    def _refuse_all(self) -> None:
        with suppress(IndexError):  # another thread has taken the last one
            while self._events:
                self._refuse(self._events.popleft())

    def _handle_all(self) -> None:
        more = True
        while more or self._events:
            many = min(len(self._events), MOST)
            more = self._handle([self._events.popleft() for _ in range(many)])
