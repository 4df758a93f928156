"""A Deliver stream as its dispatcher holds it."""

from __future__ import annotations

import dataclasses
import threading
from typing import Protocol

from ps2stream.messages import Attach, Credit, Detach
from ps2stream.service.gateway import Sink


class Edge(Protocol):
    """What a stream needs of its dispatcher's edge."""

    lock: threading.RLock

    def to_merger(self, frame: Attach | Credit | Detach) -> None: ...
    def drop(self, stream: Stream) -> None: ...


@dataclasses.dataclass(eq=False)
class Stream:
    """One Deliver stream of a session; a later stream of the same session ends it.

    Credits are gathered until they are a quarter of the window, or for one tick.
    """

    edge: Edge
    session: int
    epoch: int
    sink: Sink
    window_batches: int
    window_bytes: int
    _batches: int = 0
    _bytes: int = 0
    _ack: int = 0
    _told: int = 0

    def credit(self, batches: int, size: int, ack: int) -> None:
        """The client took `batches` batches of `size` bytes, and acknowledges `ack`."""
        with self.edge.lock:
            self._batches += batches
            self._bytes += size
            self._ack = max(self._ack, ack)
            if 4 * self._batches >= self.window_batches or 4 * self._bytes >= self.window_bytes:
                self.flush()

    def flush(self) -> None:
        """Tell the merger what was gathered."""
        if self._batches or self._bytes or self._ack > self._told:
            self._told = self._ack
            self.edge.to_merger(
                Credit(self.session, self.epoch, self._batches, self._bytes, self._ack)
            )
            self._batches = self._bytes = 0

    def close(self) -> None:
        """The stream is gone: what comes now goes to the session's backlog."""
        self.edge.drop(self)
