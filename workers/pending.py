"""Batches of objects that a worker has and does not match yet.

Most wait for the updates up to their LSN. Suspects, of which an earlier incarnation may have died,
come one by one, announced, with nothing else between (contract.md 4).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from ps2stream.protocol.messages.objects import RoutedObjects


class Pending:
    """What waits; of a batch that came again, only the newest attempt."""

    def __init__(self) -> None:
        self._held: list[tuple[int, int, RoutedObjects]] = []
        self._newest: dict[tuple[int, int], RoutedObjects] = {}  # of `_held`, by batch
        self._ticket = itertools.count()  # heap order among equal LSNs: arrival
        self._suspects: dict[tuple[int, int], RoutedObjects] = {}
        self._begun: RoutedObjects | None = None  # the suspect that comes at the next tick
        self._behind: list[RoutedObjects] = []  # what came since it was announced

    def __len__(self) -> int:
        begun = self._begun is not None
        return len(self._newest) + len(self._suspects) + len(self._behind) + begun

    def sets_aside(self, objects: RoutedObjects) -> bool:
        """Whether they are to be looked at later, for there are suspects."""
        if objects.suspect:
            self._suspects[objects.dispatcher, objects.batch] = objects
        elif self._begun is not None:
            self._behind.append(objects)
        else:
            return False
        return True

    def wait(self, objects: RoutedObjects) -> None:
        """Until `due` gives them."""
        self._newest[objects.dispatcher, objects.batch] = objects
        heapq.heappush(self._held, (objects.lsn, next(self._ticket), objects))

    def due(self, applied: int) -> Iterator[RoutedObjects]:
        """Take those up to this LSN."""
        while self._held and self._held[0][0] <= applied:
            objects = heapq.heappop(self._held)[2]
            if self._newest.get((objects.dispatcher, objects.batch)) is objects:
                del self._newest[objects.dispatcher, objects.batch]
                yield objects

    def announce(self, ready: int) -> RoutedObjects | None:
        """A suspect below the LSN `ready`, which `take_announced` gives at the next tick."""
        for key, objects in self._suspects.items():
            if objects.lsn < ready:
                self._begun = self._suspects.pop(key)
                return self._begun
        return None

    def take_announced(self) -> RoutedObjects | None:
        """The suspect that was announced."""
        begun, self._begun = self._begun, None
        return begun

    def take_behind(self) -> list[RoutedObjects]:
        """What came since then."""
        behind, self._behind = self._behind, []
        return behind
