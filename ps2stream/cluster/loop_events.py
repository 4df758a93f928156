"""The events of a machine that lives on the service's loop.

What the loop itself brings, a message of a client or of a peer, is handled at once: no other thread
is woken for it. Other threads leave their events to the loop. One group of events is handled at a
time, and in between the loop moves messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ps2stream.service.service_loop import ServiceLoop

E = TypeVar("E")
MOST = 256
"""Events that are taken together, so that the answers to the first need not wait for the last."""


class LoopEvents(Generic[E]):
    """Events for `handle`, which is called on the loop and never within itself, and must raise
    nothing. While it returns True it is called again, also without events."""

    def __init__(self, handle: Callable[[list[E]], bool], loop: ServiceLoop) -> None:
        self._handle = handle
        self._loop = loop
        self._events: deque[E] = deque()
        self._is_handling = False
        self._is_posted = False  # the loop will look

    def put(self, *events: E) -> None:
        """Adds events, for any thread. On the loop they are handled before this returns, unless
        more than MOST wait, or the handler itself puts them."""
        self._events.extend(events)
        if not self._loop.is_here:
            self._post_look()
        elif not self._is_handling:
            self._handle_some()

    def finish(self, *events: E) -> None:
        """Adds events and returns once there is nothing more to do; for other threads."""
        self._loop.run(self._handle_all(*events))

    def _post_look(self) -> None:
        if not self._is_posted:
            self._is_posted = True
            self._loop.post(self._look)

    def _look(self) -> None:
        self._is_posted = False  # what comes from now on is posted again
        self._handle_some()

    def _handle_some(self) -> None:
        if self._handle_group():
            self._post_look()

    def _handle_group(self) -> bool:
        """Handles the events that are taken together; returns whether there is more to do."""
        self._is_handling = True
        try:
            many = min(len(self._events), MOST)
            more = self._handle([self._events.popleft() for _ in range(many)])
        finally:
            self._is_handling = False
        return more or len(self._events) > 0

    async def _handle_all(self, *events: E) -> None:
        self._events.extend(events)
        more = len(self._events) > 0
        while more:
            more = self._handle_group()
