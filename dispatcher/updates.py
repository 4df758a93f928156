"""Inserts and deletes on their way to the sequencer."""

from __future__ import annotations

import functools
from concurrent.futures import Future
from typing import Any

from ps2stream.dispatcher.open_requests import OpenRequests
from ps2stream.errors import ResourceExhausted
from ps2stream.limits import WAITING_BYTES, WAITING_UPDATES
from ps2stream.protocol.messages.updates import UpdateRequest

LANES = ("deletes", "inserts")


class UpdateQueue:
    """A queue of updates; those that come while the sequencer is busy leave together. Called under
    the edge's lock, except the futures' call-backs, which take it."""

    def __init__(self, questions: OpenRequests, lock: Any) -> None:
        self._questions = questions
        self._lock = lock
        self._queue: list[UpdateRequest] = []  # not yet sent
        self._rows = [0, 0]  # by lane: not yet answered
        self._bytes = [0, 0]

    def add(self, request: UpdateRequest, rows: int, inserts: bool) -> Future[Any]:
        """Adds a request and returns the future of its answer, which fails with ResourceExhausted
        if too much waits. Deletes have a limit of their own, since they end an overload."""
        lane, size = int(inserts), len(request.rows)
        for waiting, more, limit, unit, name in (
            (self._rows[lane], rows, WAITING_UPDATES, "", "waiting_updates"),
            (self._bytes[lane], size, WAITING_BYTES, "bytes of ", "waiting_bytes"),
        ):
            if waiting and waiting + more > limit:
                full: Future[Any] = Future()
                problem = f"{waiting} {unit}{LANES[lane]} are waiting, the limit {limit} ({name})"
                full.set_exception(ResourceExhausted(f"update: {problem}"))
                return full
        self._rows[lane] += rows
        self._bytes[lane] += size
        seq, future = self._questions.expect()
        future.add_done_callback(functools.partial(self._release_room, lane, rows, size))
        self._queue.append(request.numbered(seq))
        return future

    def take(self) -> list[UpdateRequest]:
        """Removes and returns the requests to send now."""
        queue, self._queue = self._queue, []
        return queue

    def _release_room(self, lane: int, rows: int, size: int, _: Future[Any]) -> None:
        with self._lock:
            self._rows[lane] -= rows
            self._bytes[lane] -= size
