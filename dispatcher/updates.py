"""Inserts and deletes on their way to the sequencer."""

from __future__ import annotations

from typing import NamedTuple

from ps2stream.dispatcher.events import UpdateRequested
from ps2stream.dispatcher.open_requests import OpenRequests
from ps2stream.errors import ResourceExhausted
from ps2stream.limits import WAITING_BYTES, WAITING_UPDATES
from ps2stream.protocol.messages.updates import UpdateRequest

LANES = ("deletes", "inserts")


class OpenUpdate(NamedTuple):
    """The room that an update takes until it is answered."""

    lane: int
    rows: int
    size_bytes: int


class UpdateQueue:
    """A queue of updates; those that come while the sequencer is busy leave together."""

    def __init__(self, requests: OpenRequests) -> None:
        self._requests = requests
        self._queue: list[UpdateRequest] = []  # not yet sent
        self._open: dict[int, OpenUpdate] = {}  # not yet answered, by number
        self._rows = [0, 0]  # of those, by lane
        self._bytes = [0, 0]

    def __len__(self) -> int:
        """The number of updates that are not answered."""
        return len(self._open)

    def add(self, event: UpdateRequested) -> None:
        """Adds an update. Raises ResourceExhausted if too much waits. Deletes have a limit of their
        own, since they end an overload."""
        lane, size = int(event.inserts), len(event.request.rows)
        for waiting, more, limit, unit, name in (
            (self._rows[lane], event.rows, WAITING_UPDATES, "", "waiting_updates"),
            (self._bytes[lane], size, WAITING_BYTES, "bytes of ", "waiting_bytes"),
        ):
            if waiting and waiting + more > limit:
                problem = f"{waiting} {unit}{LANES[lane]} are waiting, the limit {limit} ({name})"
                raise ResourceExhausted(f"update: {problem}")
        seq = self._requests.expect(event.call)
        self._count(seq, OpenUpdate(lane, event.rows, size))
        self._queue.append(event.request.numbered(seq))

    def take(self) -> list[UpdateRequest]:
        """Removes and returns the requests to send now."""
        queue, self._queue = self._queue, []
        return queue

    def answered(self, seq: int) -> None:
        """Releases the room of an update that is answered."""
        if (done := self._open.pop(seq, None)) is not None:
            self._rows[done.lane] -= done.rows
            self._bytes[done.lane] -= done.size_bytes

    def _count(self, seq: int, update: OpenUpdate) -> None:
        self._open[seq] = update
        self._rows[update.lane] += update.rows
        self._bytes[update.lane] += update.size_bytes
