"""The batches that wait in a dispatcher for the streams of slow clients, within one bound for all.

Credits bound what one stream can hold. All streams together hold at most a number of bytes: beyond
that, the stream that has taken nothing for longest is cut. It keeps one batch, so that it gets on;
the others are dropped, for the match log has them. Once its client takes again, the stream begins
anew behind what is acknowledged.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

HELD_BYTES = 16 << 20


class InboxCut(NamedTuple):
    """The number of batches and bytes that were dropped."""

    batches: int
    bytes: int


class InboxEnd(NamedTuple):
    """The end of a stream: nothing follows. `error` is what it ends with."""

    error: Exception | None


class StreamInbox:
    """The inbox of one stream. `ready` is called when there is something to take."""

    def __init__(self, held: StreamInboxes) -> None:
        self._held = held
        self.ready: Callable[[], None] = lambda: None
        self._items: deque[bytes] = deque()
        self._end: InboxEnd | None = None
        self._cut: InboxCut | None = None
        self.size = 0
        self.moved = 0

    @property
    def waiting(self) -> int:
        """The number of batches to take."""
        return len(self._items)

    def put(self, data: bytes) -> bool:
        """Stores a batch, or drops it while the inbox is cut. Returns whether it is cut."""
        with self._held.lock:
            if self._cut is None:
                if not self._items:
                    self.moved = self._held.moment()
                self._items.append(data)
                self.size += len(data)
                self._held.grow(len(data))
            else:
                self._cut = InboxCut(self._cut.batches + 1, self._cut.bytes + len(data))
            cut = self._cut is not None
        self.ready()
        return cut

    def end(self, error: Exception | None = None) -> None:
        """Ends the inbox, so that nothing follows; the first end counts."""
        with self._held.lock:
            if self._end is None:
                self._end = InboxEnd(error)
        self.ready()

    def take(self) -> bytes | InboxCut | InboxEnd | None:
        """Returns the next batch, or the End, or a Cut, which stays until `go_on`, or None where
        there is nothing yet."""
        with self._held.lock:
            if self._items:
                data = self._items.popleft()
                if self._cut is None:
                    self._release_bytes(len(data))
                self.moved = self._held.moment()
                return data
            return self._end or self._cut

    def go_on(self) -> InboxCut:
        """Stores batches again, and returns what was dropped meanwhile."""
        with self._held.lock:
            cut, self._cut = self._cut, None
            return cut or InboxCut(0, 0)

    def cut(self) -> None:
        """Drops all but the first batch, whose bytes count no more. Called under the lock."""
        first = self._items.popleft()
        self._cut = InboxCut(len(self._items), self.size - len(first))
        self._items = deque([first])
        self._release_bytes(self.size)

    def close(self) -> None:
        """Empties the inbox of a stream that is gone."""
        with self._held.lock:
            self._items.clear()
            self._release_bytes(self.size)
            self._cut = InboxCut(0, 0)
            self._held.inboxes.discard(self)

    def _release_bytes(self, size: int) -> None:
        self.size -= size
        self._held.size -= size


class StreamInboxes:
    """All inboxes of a server. Together they hold at most `limit` bytes, and a batch for each that
    is cut."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.lock = threading.Lock()
        self.inboxes: set[StreamInbox] = set()
        self.size = 0
        self.cuts = 0
        self._limit = limit
        self._moments = itertools.count()

    def open(self) -> StreamInbox:
        inbox = StreamInbox(self)
        with self.lock:
            self.inboxes.add(inbox)
        return inbox

    def moment(self) -> int:
        return next(self._moments)

    def grow(self, size: int) -> None:
        """Counts more bytes, and cuts inboxes while they are over the limit. Called under the
        lock."""
        self.size += size
        while self.size > self._limit:
            holding = [inbox for inbox in self.inboxes if inbox.size]
            min(holding, key=lambda inbox: inbox.moved).cut()
            self.cuts += 1
