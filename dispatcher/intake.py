"""The intake of publications: small batches join into larger ones while the service is busy.

A message between processes costs the same for one object as for thousands. So a batch that comes
while others are under way waits, as in a group commit, until one of those is complete or enough
rows have come; otherwise it leaves at once.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.protocol.rows import ObjectRows

EAGER = 2
"""Batches under way up to which the next leaves at once, however small."""
ROWS = 8192
"""The number of rows from which a batch leaves without waiting for more."""
TEXT_BYTES = 1 << 20


class WaitingPublication(NamedTuple):
    """A publication that came at `since`, monotonic seconds."""

    rows: ObjectRows
    durable: bool
    future: Future[AcceptedBatch]
    since: float


class PublicationIntake:
    """Publications in the order they came."""

    def __init__(self) -> None:
        self._waiting: deque[WaitingPublication] = deque()
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, rows: ObjectRows, durable: bool = True, since: float = 0.0
    ) -> Future[AcceptedBatch]:
        """Adds a publication. The future resolves when the rows are routed; before that, `cancel()`
        withdraws them."""
        future: Future[AcceptedBatch] = Future()
        self._waiting.append(WaitingPublication(rows, durable, future, since))
        self._rows += len(rows)
        self._bytes += len(rows.text)
        return future

    def take(self, in_flight: int) -> list[WaitingPublication]:
        """Returns the publications to route as one batch now, with `in_flight` under way."""
        if in_flight >= EAGER and self._rows < ROWS and self._bytes < TEXT_BYTES:
            return []
        taken: list[WaitingPublication] = []
        rows = size = 0
        while self._waiting and rows < ROWS and size < TEXT_BYTES:
            waiting = self._waiting.popleft()
            self._rows -= len(waiting.rows)
            self._bytes -= len(waiting.rows.text)
            if waiting.future.set_running_or_notify_cancel():
                taken.append(waiting)
                rows += len(waiting.rows)
                size += len(waiting.rows.text)
        return taken
