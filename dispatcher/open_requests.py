"""A dispatcher's requests to the sequencer or the controller, and who waits for the answers."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps2stream.dispatcher.instructions import Instruction
from ps2stream.errors import ResourceExhausted
from ps2stream.limits import WAITING_QUESTIONS
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.frame import Frame


class OpenRequests:
    """The callers of requests, by number; messages go to `out`."""

    def __init__(self, out: list[Instruction]) -> None:
        self._out = out
        self._seq = 0
        self._waiting: dict[int, Any] = {}
        self._unanswered: dict[int, Send] = {}  # to be repeated until they are answered

    def expect(self, caller: Any) -> int:
        """Returns the next number; its answer is for `caller`."""
        self._seq += 1
        self._waiting[self._seq] = caller
        return self._seq

    def ask(
        self, caller: Any, request: Frame, to: Address = SEQUENCER, bounded: bool = True
    ) -> None:
        """Numbers the message and sends it, repeatedly until it is answered. It may outlive its
        caller, so, if `bounded`, this raises ResourceExhausted while too many wait."""
        if bounded and len(self._unanswered) >= WAITING_QUESTIONS:
            problem = f"{WAITING_QUESTIONS} requests are waiting, the limit (waiting_questions)"
            raise ResourceExhausted(problem)
        seq = self.expect(caller)
        numbered: Any = request
        self._unanswered[seq] = Send(to, dataclasses.replace(numbered, seq=seq))
        self._out.append(self._unanswered[seq])

    def repeat(self) -> None:
        """Sends all unanswered requests again, since any may have been lost."""
        self._out.extend(self._unanswered.values())

    def take(self, seq: int) -> Any:
        """Removes and returns who waits for this answer; None if nobody does."""
        self._unanswered.pop(seq, None)
        return self._waiting.pop(seq, None)
