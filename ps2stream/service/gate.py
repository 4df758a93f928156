"""The threads of calls at the door of PublishAdmission: they wait for their turn here."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable

from ps2stream.errors import ResourceExhausted
from ps2stream.service.admission import AdmissionTicket, PublishAdmission, RefusalPace

RETRY_MS = 200
"""When to send a batch again that the budget had no room for."""
REFUSED_BYTES_PER_S = 32 << 20
"""What may come of publications that are refused: to read it takes from those that are not."""
HOLD_S = 5.0


class PublishGate:
    """The one admission of a server. Safe for threads. `limit_bytes`: the budget."""

    def __init__(self, limit_bytes: int, turns: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._admission = PublishAdmission(limit_bytes, turns or max(2, os.cpu_count() or 1))
        self._pace = RefusalPace(REFUSED_BYTES_PER_S, HOLD_S)
        self._lock = threading.Lock()
        self._waiting: dict[AdmissionTicket, threading.Event] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes that are accepted and not yet routed and synced."""
        return self._admission.held_bytes

    def enter(self, caller: Hashable, size_bytes: int, wait_s: float) -> AdmissionTicket:
        """A ticket once `caller` may go on, which then parses and analyses until `end_turn`, and
        holds its bytes until `leave`. Raises ResourceExhausted, naming the limit, when it is not
        admitted within `wait_s` seconds."""
        with self._lock:
            ticket = self._admission.request(caller, size_bytes)
            if ticket is not None and ticket.admitted:
                return ticket
            if ticket is not None:
                admitted = self._waiting[ticket] = threading.Event()
        if ticket is not None:
            admitted.wait(wait_s)
            with self._lock:
                del self._waiting[ticket]
                if ticket.admitted:
                    return ticket
                self._wake_admitted(self._admission.leave(ticket))
        raise ResourceExhausted(
            f"publish: the caller's share of {self._limit_bytes} bytes on their way is taken, "
            "the limit (intake_bytes)",
            RETRY_MS,
        )

    def set_congested(self, congested: bool) -> None:
        """Whether what is routed waits for workers or mergers; then only small ones enter."""
        with self._lock:
            if congested != self._admission.congested:
                self._wake_admitted(self._admission.set_congested(congested))

    def begin_refusal(self, size_bytes: int) -> float:
        """A publication is refused; seconds to hold the answer back, until `end_refusal`."""
        with self._lock:
            return self._pace.begin(size_bytes)

    def end_refusal(self) -> None:
        """The answer is on its way."""
        with self._lock:
            self._pace.end()

    def end_turn(self, ticket: AdmissionTicket) -> None:
        """The publication is analysed, or refused before."""
        with self._lock:
            self._wake_admitted(self._admission.end_turn(ticket))

    def leave(self, ticket: AdmissionTicket) -> None:
        """The publication is on its way, or was given up; once is enough."""
        with self._lock:
            self._wake_admitted(self._admission.leave(ticket))

    def _wake_admitted(self, admitted: list[AdmissionTicket]) -> None:
        for ticket in admitted:
            self._waiting[ticket].set()
