"""A dispatcher's requests to the sequencer or the controller, and the callers that wait for the
answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ps2stream.errors import ResourceExhausted
from ps2stream.limits import WAITING_QUESTIONS
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame

CONTROLLER = Address("controller", 0)
SEQUENCER = Address("sequencer", 0)


class OpenRequests:
    """The futures of requests, by number. Called under the edge's lock."""

    def __init__(self, send: Callable[[list[Send]], None]) -> None:
        self._send = send
        self._seq = 0
        self._waiting: dict[int, Future[Any]] = {}
        self._unanswered: dict[int, Send] = {}  # to be repeated until they are answered

    def expect(self) -> tuple[int, Future[Any]]:
        """Returns the next number, and the future of its answer."""
        self._seq += 1
        future: Future[Any] = Future()
        self._waiting[self._seq] = future
        return self._seq, future

    def ask(
        self, make: Callable[[int], Frame], bounded: bool = True, to: Address = SEQUENCER
    ) -> Future[Any]:
        """Sends the message that `make` makes from a number, repeatedly until it is answered. It
        may outlive its caller, so, if `bounded`, the future fails with ResourceExhausted while too
        many wait."""
        if bounded and len(self._unanswered) >= WAITING_QUESTIONS:
            full: Future[Any] = Future()
            problem = f"{WAITING_QUESTIONS} requests are waiting, the limit (waiting_questions)"
            full.set_exception(ResourceExhausted(problem))
            return full
        seq, future = self.expect()
        self._unanswered[seq] = Send(to, make(seq))
        self._send([self._unanswered[seq]])
        return future

    def repeat(self) -> None:
        """Sends all unanswered requests again, since any may have been lost."""
        self._send(list(self._unanswered.values()))

    def answered(self, seq: int) -> Future[Any] | None:
        """Removes and returns the future that waits for this answer."""
        self._unanswered.pop(seq, None)
        return self._waiting.pop(seq, None)
