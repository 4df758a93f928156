"""What waits in a dispatcher for the streams of slow clients, within one bound for all.

Credits bound what one stream can hold. All together hold so many bytes: beyond that, the
stream that has taken nothing for longest is cut. But for one batch, so that it gets on, what it
held is let go of, for the match log has it; once its client takes again, it begins anew behind
what is acknowledged.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

HELD_BYTES = 16 << 20


class Cut(NamedTuple):
    """So many batches and bytes were let go of."""

    batches: int
    bytes: int


class End(NamedTuple):
    """Nothing follows."""

    error: Exception | None


class Inbox:
    """Of one stream. `ready` is called when there is something to take."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self.ready: Callable[[], None] = lambda: None
        self._items: deque[bytes] = deque()
        self._end: End | None = None
        self._cut: Cut | None = None
        self.size = 0
        self.moved = 0

    def put(self, data: bytes) -> bool:
        """Whether it was let go of, here or lately."""
        with self._held.lock:
            if self._cut is None:
                if not self._items:
                    self.moved = self._held.moment()
                self._items.append(data)
                self.size += len(data)
                self._held.grow(len(data))
            else:
                self._cut = Cut(self._cut.batches + 1, self._cut.bytes + len(data))
            cut = self._cut is not None
        self.ready()
        return cut

    def end(self, error: Exception | None = None) -> None:
        """Nothing follows; the first end counts."""
        with self._held.lock:
            if self._end is None:
                self._end = End(error)
        self.ready()

    def take(self) -> bytes | Cut | End | None:
        """The next batch; the End; a Cut, which stays until `go_on`; None where there is
        nothing yet."""
        with self._held.lock:
            if self._items:
                data = self._items.popleft()
                if self._cut is None:
                    self._release_bytes(len(data))
                self.moved = self._held.moment()
                return data
            return self._end or self._cut

    def go_on(self) -> Cut:
        """Take again; what was let go of meanwhile."""
        with self._held.lock:
            cut, self._cut = self._cut, None
            return cut or Cut(0, 0)

    def cut(self) -> None:
        """Let go of all but the first batch, which counts no more. Called under the lock."""
        first = self._items.popleft()
        self._cut = Cut(len(self._items), self.size - len(first))
        self._items = deque([first])
        self._release_bytes(self.size)

    def close(self) -> None:
        """The stream is gone."""
        with self._held.lock:
            self._items.clear()
            self._release_bytes(self.size)
            self._cut = Cut(0, 0)
            self._held.inboxes.discard(self)

    def _release_bytes(self, size: int) -> None:
        self.size -= size
        self._held.size -= size


class Held:
    """All inboxes of a server: together at most `limit` bytes, and a batch for each that is cut."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.lock = threading.Lock()
        self.inboxes: set[Inbox] = set()
        self.size = 0
        self.cuts = 0
        self._limit = limit
        self._moments = itertools.count()

    def open(self) -> Inbox:
        inbox = Inbox(self)
        with self.lock:
            self.inboxes.add(inbox)
        return inbox

    def moment(self) -> int:
        return next(self._moments)

    def grow(self, size: int) -> None:
        """Called under the lock."""
        self.size += size
        while self.size > self._limit:
            holding = [inbox for inbox in self.inboxes if inbox.size]
            min(holding, key=lambda inbox: inbox.moved).cut()
            self.cuts += 1
