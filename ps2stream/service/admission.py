"""Who comes in next, and with how much: rows, bytes, turns, shares, rates.

Values and arithmetic alone. Nothing here waits, reads a clock or knows of threads; callers
pass the time, and gate.py blocks the threads that have to wait.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ps2stream.errors import OverQuota
from ps2stream.limits import BATCH_BYTES
from ps2stream.security import Quota

OBJECT_BYTES = 24
"""Position and time of an object."""
SMALL_BYTES = 128 << 10
"""A publication up to this size has a turn that larger ones leave free."""
LEAST_BYTES = 2 * BATCH_BYTES
"""The smallest budget that a batch of the largest size fits, leaving as much again."""


# --- shares -----------------------------------------------------------------


class ByteShares:
    """At most `limit_bytes`, held by callers. No caller holds more than it leaves free: alone it
    has half of them, one of n has 1/(n+1), and what is smaller still fits beside the largest
    (dynamic thresholds, Choudhury and Hahne 1998)."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.free_bytes = limit_bytes
        self._held_bytes: dict[Hashable, int] = {}

    def held_by(self, caller: Hashable) -> int:
        """Bytes that the caller holds."""
        return self._held_bytes.get(caller, 0)

    def fits(self, caller: Hashable, size_bytes: int) -> bool:
        """Whether the caller may hold so many bytes more."""
        return self.held_by(caller) + size_bytes <= self.free_bytes - size_bytes

    def take(self, caller: Hashable, size_bytes: int) -> None:
        """Hold these bytes; `fits` has allowed it."""
        self.free_bytes -= size_bytes
        self._held_bytes[caller] = self.held_by(caller) + size_bytes

    def give_back(self, caller: Hashable, size_bytes: int) -> None:
        """Hold these bytes no longer."""
        self.free_bytes += size_bytes
        left = self._held_bytes[caller] - size_bytes
        if left:
            self._held_bytes[caller] = left
        else:
            del self._held_bytes[caller]


# --- turns ------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class AdmissionTicket:
    """One publication of `caller`. `admitted`: its bytes are held; `working`: it has a turn."""

    caller: Hashable
    size_bytes: int
    finish: int
    number: int
    admitted: bool = False
    working: bool = False
    over: bool = field(default=False)

    @property
    def order(self) -> tuple[int, int]:
        """What comes first has less of it."""
        return self.finish, self.number


class PublishAdmission:
    """One budget of bytes for all that is accepted and not yet routed and synced, and so many
    turns to parse and analyse.

    Those that wait are admitted by self-clocked fair queueing (Golestani 1994): each caller gets
    the same bytes, and a small publication comes before the large ones of others. What waits is
    bounded as well: half of the budget, in shares.
    """

    def __init__(self, limit_bytes: int, turns: int) -> None:
        self.held = ByteShares(limit_bytes)
        self.waiting = ByteShares(limit_bytes // 2)
        self._turns = turns
        self._working = 0
        self._queue: list[AdmissionTicket] = []
        self._finish: dict[Hashable, int] = {}  # of the last that waits, by caller
        self._virtual = 0  # the finish of the last that was admitted
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Publications that wait."""
        return len(self._queue)

    def request(self, caller: Hashable, size_bytes: int) -> AdmissionTicket | None:
        """A ticket that is admitted at once or waits; None where no more may wait."""
        finish = max(self._virtual, self._finish.get(caller, 0)) + size_bytes
        ticket = AdmissionTicket(caller, size_bytes, finish, next(self._numbers))
        if not self._queue and self._may_enter(ticket):
            self._enter(ticket)
            return ticket
        bisect.insort(self._queue, ticket, key=lambda t: t.order)
        self.waiting.take(caller, size_bytes)
        self._finish[caller] = finish
        self._enter_waiting()
        if not ticket.admitted and self.waiting.free_bytes < self.waiting.held_by(caller):
            self.leave(ticket)
            return None
        return ticket

    def end_turn(self, ticket: AdmissionTicket) -> list[AdmissionTicket]:
        """The publication is analysed; those that are admitted now."""
        if not ticket.working:
            return []
        ticket.working = False
        self._working -= 1
        return self._enter_waiting()

    def leave(self, ticket: AdmissionTicket) -> list[AdmissionTicket]:
        """The publication is routed and synced, or given up; those that are admitted now."""
        if ticket.over:
            return []
        ticket.over = True
        if ticket.admitted:
            self.held.give_back(ticket.caller, ticket.size_bytes)
            self._working -= ticket.working
            ticket.working = False
        else:
            self._queue.remove(ticket)
            self._forget(ticket)
        return self._enter_waiting()

    def _enter_waiting(self) -> list[AdmissionTicket]:
        entered: list[AdmissionTicket] = []
        at = 0
        while at < len(self._queue) and self._working <= self._turns:
            ticket = self._queue[at]
            if self._may_enter(ticket):
                del self._queue[at]
                self._forget(ticket)
                self._enter(ticket)
                entered.append(ticket)
                at = 0
            elif not self.held.held_by(ticket.caller) and not self._has_room(ticket):
                break  # it waits for others: who comes after it waits too, so that it gets on
            else:
                at += 1
        return entered

    def _may_enter(self, ticket: AdmissionTicket) -> bool:
        turns = self._turns + (ticket.size_bytes <= SMALL_BYTES)
        return self._working < turns and self._has_room(ticket)

    def _has_room(self, ticket: AdmissionTicket) -> bool:
        return self.held.fits(ticket.caller, ticket.size_bytes)

    def _enter(self, ticket: AdmissionTicket) -> None:
        self.held.take(ticket.caller, ticket.size_bytes)
        self._virtual = max(self._virtual, ticket.finish)
        self._working += 1
        ticket.admitted = ticket.working = True

    def _forget(self, ticket: AdmissionTicket) -> None:
        self.waiting.give_back(ticket.caller, ticket.size_bytes)
        if not self.waiting.held_by(ticket.caller):
            self._finish.pop(ticket.caller, None)


# --- rates ------------------------------------------------------------------


class TokenBucket:
    """Fills by `rate` a second and holds a second's worth. A batch larger than that passes too,
    and those after it wait the longer: the mean over time is at most `rate`."""

    def __init__(self, rate: float, now_ms: int) -> None:
        self._rate = rate
        self._level = rate
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until something passes; 0: now."""
        passed_ms, self._at_ms = max(0, now_ms - self._at_ms), now_ms
        self._level = min(self._rate, self._level + self._rate * passed_ms / 1000)
        return 0 if self._level > 0 else 1 + math.ceil(-1000 * self._level / self._rate)

    def take(self, amount: int) -> None:
        """Once `wait_ms` has said 0."""
        self._level -= amount


class PublishRates:
    """A tenant's quotas on what it publishes, as far as they are this dispatcher's: each of
    `dispatchers` grants an equal share."""

    def __init__(self, quota: Quota, dispatchers: int, now_ms: int) -> None:
        self._limits: Mapping[str, int] = {
            name: limit
            for name in ("objects_per_s", "bytes_per_s")
            if (limit := getattr(quota, name)) is not None
        }
        self._buckets = {
            name: TokenBucket(limit / dispatchers, now_ms) for name, limit in self._limits.items()
        }

    def check(self, now_ms: int) -> None:
        """Raises OverQuota, naming the quota, while nothing may pass."""
        for name, bucket in self._buckets.items():
            if wait := bucket.wait_ms(now_ms):
                problem = f"{self._limits[name]} is the tenant's quota ({name})"
                raise OverQuota(problem, wait)

    def take(self, rows: int, text_bytes: int, now_ms: int) -> None:
        """Let a batch of so many rows and bytes of texts and ids pass. Raises OverQuota when it
        may not; then nothing of it counts."""
        self.check(now_ms)
        amounts = {"objects_per_s": rows, "bytes_per_s": text_bytes + OBJECT_BYTES * rows}
        for name, bucket in self._buckets.items():
            bucket.take(amounts[name])
