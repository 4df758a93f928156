"""Batches of objects that a worker has not matched yet.

Most wait for the updates that they need. Suspects, which may have killed an earlier
incarnation, are matched one by one, each announced before, with nothing else between
(contract.md 4).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from ps2stream.protocol.messages.objects import RoutedObjects


class WaitingObjects:
    """The batches that wait: of a batch that was sent again, only the newest attempt."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, RoutedObjects]] = []
        self._newest: dict[tuple[int, int], RoutedObjects] = {}  # of `_heap`, by batch
        self._ticket = itertools.count()  # heap order among equal LSNs: arrival
        self._suspects: dict[tuple[int, int], RoutedObjects] = {}
        self._announced: RoutedObjects | None = None  # the suspect to match at the next tick
        self._deferred: list[RoutedObjects] = []  # what came since it was announced

    def __len__(self) -> int:
        announced = self._announced is not None
        return len(self._newest) + len(self._suspects) + len(self._deferred) + announced

    def set_aside(self, objects: RoutedObjects) -> bool:
        """Keeps suspects, and what comes behind an announced one, for later; returns whether it
        did."""
        if objects.suspect:
            self._suspects[objects.dispatcher, objects.batch] = objects
        elif self._announced is not None:
            self._deferred.append(objects)
        else:
            return False
        return True

    def add(self, objects: RoutedObjects) -> None:
        """Adds a batch that waits until `take_due` returns it."""
        self._newest[objects.dispatcher, objects.batch] = objects
        heapq.heappush(self._heap, (objects.needs, next(self._ticket), objects))

    def take_due(self, applied: int) -> Iterator[RoutedObjects]:
        """Removes and yields the batches that need nothing beyond this LSN."""
        while self._heap and self._heap[0][0] <= applied:
            objects = heapq.heappop(self._heap)[2]
            if self._newest.get((objects.dispatcher, objects.batch)) is objects:
                del self._newest[objects.dispatcher, objects.batch]
                yield objects

    def announce_suspect(self, ready: int) -> RoutedObjects | None:
        """Returns a suspect that needs only what is below the LSN `ready`; `take_announced` returns
        it at the next tick."""
        for key, objects in self._suspects.items():
            if objects.needs < ready:
                self._announced = self._suspects.pop(key)
                return self._announced
        return None

    def take_announced(self) -> RoutedObjects | None:
        """Removes and returns the suspect that was announced."""
        announced, self._announced = self._announced, None
        return announced

    def take_deferred(self) -> list[RoutedObjects]:
        """Removes and returns what came since a suspect was announced."""
        deferred, self._deferred = self._deferred, []
        return deferred
