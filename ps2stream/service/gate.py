"""The gate before PublishAdmission, at which the threads of calls wait for their turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable

from ps2stream.errors import ResourceExhausted
from ps2stream.service.admission import AdmissionTicket, PublishAdmission, RefusalPace

RETRY_MS = 200
"""The time after which to send a batch again that the budget had no room for."""
REFUSED_BYTES_PER_S = 32 << 20
"""The rate at which refused publications may come, for reading them slows the others down."""
HOLD_S = 5.0


class PublishGate:
    """The one admission of a server, with a budget of `limit_bytes`. It is safe for threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._admission = PublishAdmission(limit_bytes, max(2, os.cpu_count() or 1))
        self._pace = RefusalPace(REFUSED_BYTES_PER_S, HOLD_S)
        self._lock = threading.Lock()
        self._waiting: dict[AdmissionTicket, threading.Event] = {}

    @property
    def held_bytes(self) -> int:
        """The bytes that are accepted and not yet routed and synced."""
        return self._admission.held_bytes

    def try_to_enter(self, caller: Hashable, size_bytes: int) -> AdmissionTicket | None:
        """Returns a ticket if `caller` may go on at once, as from `enter`, and otherwise None."""
        with self._lock:
            ticket = self._admission.request(caller, size_bytes)
            if ticket is None or ticket.admitted:
                return ticket
            self._wake_admitted(self._admission.leave(ticket))
            return None

    def enter(self, caller: Hashable, size_bytes: int, wait_s: float) -> AdmissionTicket:
        """Returns a ticket once `caller` may go on. It then parses and analyses until `end_turn`,
        and holds its bytes until `leave`. Raises ResourceExhausted, naming the limit, when the
        caller is not admitted within `wait_s` seconds."""
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
            f"publish: this caller has used its share of the {self._limit_bytes} bytes that may be "
            "under way, the limit (intake_bytes)",
            RETRY_MS,
        )

    def set_congested(self, congested: bool) -> None:
        """Sets whether routed batches wait for workers or mergers; while they do, only small
        publications enter."""
        with self._lock:
            if congested != self._admission.congested:
                self._wake_admitted(self._admission.set_congested(congested))

    def begin_refusal(self, size_bytes: int) -> float:
        """Notes that a publication is refused, and returns the seconds to hold the answer back,
        until `end_refusal`."""
        with self._lock:
            return self._pace.begin(size_bytes)

    def end_refusal(self) -> None:
        """Notes that the answer is on its way."""
        with self._lock:
            self._pace.end()

    def end_turn(self, ticket: AdmissionTicket) -> None:
        """Notes that the publication is analysed, or was refused before."""
        with self._lock:
            self._wake_admitted(self._admission.end_turn(ticket))

    def leave(self, ticket: AdmissionTicket) -> None:
        """Notes that the publication is on its way, or was given up. It may be called again."""
        with self._lock:
            self._wake_admitted(self._admission.leave(ticket))

    def _wake_admitted(self, admitted: list[AdmissionTicket]) -> None:
        for ticket in admitted:
            self._waiting[ticket].set()
