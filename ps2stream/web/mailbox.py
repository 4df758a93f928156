"""Events that wait for a page, bounded: a slow page misses some and holds up no other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

LISTS = {
    "objects": 100,
    "matches": 100,
    "own": 200,
    "queries": 2000,
    "seconds": 10,
    "withdrawn": 10_000,
}
"""Values that are sent as lists, and how many of each may wait; of others the newest counts."""
PageEvent = dict[str, Any]


class PageMailbox:
    """Events between the hub, which must not wait, and the stream of one page."""

    def __init__(self) -> None:
        self.dropped = 0
        self._lists = {name: deque[Any](maxlen=most) for name, most in LISTS.items()}
        self._values: PageEvent = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._lists.values())) + len(self._values)

    def put(self, event: PageEvent) -> None:
        """Adds an event: any of LISTS, and other values by name."""
        for name, value in event.items():
            if name not in LISTS:
                self._values[name] = value
                continue
            waiting = self._lists[name]
            most = LISTS[name]
            self.dropped += max(0, len(waiting) + len(value) - most)
            waiting.extend(value)
        self._filled.set()

    async def take(self) -> PageEvent:
        """Returns all that waits, once something does, with the number of items dropped so far."""
        await self._filled.wait()
        self._filled.clear()
        event = self._values | {name: list(d) for name, d in self._lists.items() if d}
        self._values = {}
        for waiting in self._lists.values():
            waiting.clear()
        return event | {"dropped": self.dropped}
