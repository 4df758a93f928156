"""The intake of publications: small batches join into larger ones while the service is busy.

A message between processes costs the same for one object as for thousands. So a batch that comes
while others are under way waits, as in a group commit, until one of those is complete or enough
rows have come; otherwise it leaves at once.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ps2stream.dispatcher.gateway import PublicationIdentity
from ps2stream.errors import ResourceExhausted
from ps2stream.protocol.rows import ObjectRows

EAGER = 1
"""The batches under way from which on publications wait, so that they join."""
ROWS = 8192
"""The number of rows from which a batch leaves without waiting for more."""
TEXT_BYTES = 1 << 20


class WaitingPublication(NamedTuple):
    """A publication that came at `since`; if there is no room for it, it waits `until` then. Times
    are monotonic seconds. One with an identity is synced before it is routed."""

    call: Any
    rows: ObjectRows
    durable: bool = True
    since: float = 0.0
    until: float = 0.0
    identity: PublicationIdentity | None = None


class PublicationIntake:
    """Publications in the order they came: at most `limit` wait to be routed, and behind them
    others wait for room."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._waiting: deque[WaitingPublication] = deque()
        self._outside: deque[WaitingPublication] = deque()
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Returns whether no publication waits, to be routed or for room."""
        return not (self._waiting or self._outside)

    def add(self, publication: WaitingPublication) -> bool:
        """Adds a publication; returns False if there is no room and it does not wait for any."""
        if len(self._waiting) < self.limit:
            self._admit(publication)
        elif publication.until > publication.since:
            self._outside.append(publication)
        else:
            return False
        return True

    def make_refusal(self) -> ResourceExhausted:
        """Returns the error of a publication for which there is no room."""
        problem = f"publish: {self.limit} batches are waiting, the limit (max_in_flight)"
        return ResourceExhausted(problem)

    def withdraw(self, call: Any) -> bool:
        """Removes the publication of this call; returns False if it was routed before."""
        for queue in (self._waiting, self._outside):
            for publication in queue:
                if publication.call is call:
                    queue.remove(publication)
                    if queue is self._waiting:
                        self._count(publication, -1)
                        self._fill()
                    return True
        return False

    def take_expired(self, now: float) -> list[WaitingPublication]:
        """Removes and returns the publications that have waited for room for too long."""
        if not self._outside:
            return []
        expired = [waiting for waiting in self._outside if waiting.until <= now]
        self._outside = deque(waiting for waiting in self._outside if waiting.until > now)
        return expired

    def take(self, in_flight: int) -> list[WaitingPublication]:
        """Returns the publications to route as one batch now, with `in_flight` under way. All of
        them have an identity, or none: those that have none need not wait for a sync."""
        if in_flight >= EAGER and self._rows < ROWS and self._bytes < TEXT_BYTES:
            return []
        taken: list[WaitingPublication] = []
        passed: list[WaitingPublication] = []
        rows = size = 0
        while self._waiting and rows < ROWS and size < TEXT_BYTES:
            waiting = self._waiting.popleft()
            if taken and (waiting.identity is None) != (taken[0].identity is None):
                passed.append(waiting)
                continue
            self._count(waiting, -1)
            taken.append(waiting)
            rows += len(waiting.rows)
            size += _count_bytes(waiting.rows)
        self._waiting.extendleft(reversed(passed))
        self._fill()
        return taken

    def _admit(self, publication: WaitingPublication) -> None:
        self._waiting.append(publication)
        self._count(publication, 1)

    def _fill(self) -> None:
        while self._outside and len(self._waiting) < self.limit:
            self._admit(self._outside.popleft())

    def _count(self, publication: WaitingPublication, sign: int) -> None:
        self._rows += sign * len(publication.rows)
        self._bytes += sign * _count_bytes(publication.rows)


def _count_bytes(rows: ObjectRows) -> int:
    """Returns the bytes that a batch counts with."""
    return len(rows.text) + len(rows.opaque)
