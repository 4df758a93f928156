"""Admission of publications: which comes next, and how much of it, in rows, bytes, turns, shares
and rates.

This module holds values and arithmetic alone. Nothing here waits, reads a clock or knows of
threads; callers pass the time, and gate.py blocks the threads that have to wait.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from ps2stream.errors import OverQuota
from ps2stream.security import TenantQuota

OBJECT_BYTES = 24
"""The bytes of an object's position and time."""
SMALL_BYTES = 128 << 10
"""A publication up to this size is a small one."""
SMALL_PART = 4
"""The part of the budget that is for small publications, as a divisor."""
WAITING = 2
"""How much may wait for a budget, as a multiple of it."""


# --- shares -----------------------------------------------------------------


class ByteShares:
    """A budget of `limit_bytes` that callers share. No caller may hold more than it leaves free:
    alone it gets half of the bytes, one of n callers gets 1/(n+1), and what is smaller still fits
    beside the largest (dynamic thresholds, Choudhury and Hahne 1998)."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.free_bytes = limit_bytes
        self._held_bytes: dict[Hashable, int] = {}

    def held_by(self, caller: Hashable) -> int:
        """Returns the bytes that the caller holds."""
        return self._held_bytes.get(caller, 0)

    def fits(self, caller: Hashable, size_bytes: int) -> bool:
        """Returns whether the caller may hold this many more bytes."""
        return self.held_by(caller) + size_bytes <= self.free_bytes - size_bytes

    def take(self, caller: Hashable, size_bytes: int) -> None:
        """Holds these bytes for the caller, after `fits` has allowed it."""
        self.free_bytes -= size_bytes
        self._held_bytes[caller] = self.held_by(caller) + size_bytes

    def give_back(self, caller: Hashable, size_bytes: int) -> None:
        """Frees bytes that the caller held."""
        self.free_bytes += size_bytes
        left = self._held_bytes[caller] - size_bytes
        if left:
            self._held_bytes[caller] = left
        else:
            del self._held_bytes[caller]


# --- turns ------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class AdmissionTicket:
    """The ticket of one publication of `caller`. `admitted` means that its bytes are held,
    `working` that it has a turn, `over` that it has left."""

    caller: Hashable
    size_bytes: int
    finish: int
    number: int
    admitted: bool = False
    working: bool = False
    over: bool = field(default=False)

    @property
    def order(self) -> tuple[int, int]:
        """The key by which the queue is sorted; the smallest comes first."""
        return self.finish, self.number


class FairAdmission:
    """A budget of bytes, and a number of turns to parse and analyse.

    Waiting publications are admitted by self-clocked fair queueing (Golestani 1994): each caller
    gets the same bytes. What may wait is bounded too: WAITING times the budget, in shares.
    """

    def __init__(self, limit_bytes: int, turns: int) -> None:
        self.held = ByteShares(limit_bytes)
        self.waiting = ByteShares(WAITING * limit_bytes)
        self.closed = False
        self._turns = turns
        self._working = 0
        self._queue: list[AdmissionTicket] = []
        self._finish: dict[Hashable, int] = {}  # finish of the last ticket that waits, by caller
        self._virtual = 0  # finish of the last ticket that was admitted
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Returns the number of publications that wait."""
        return len(self._queue)

    def request(self, caller: Hashable, size_bytes: int) -> AdmissionTicket | None:
        """Returns a ticket that is admitted at once or waits, or None where no more may wait."""
        # An empty one counts too, for a caller is known by the bytes that it holds.
        size_bytes = max(size_bytes, 1)
        finish = max(self._virtual, self._finish.get(caller, 0)) + size_bytes
        ticket = AdmissionTicket(caller, size_bytes, finish, next(self._numbers))
        if not self._queue and self._may_admit(ticket):
            self._admit_ticket(ticket)
            return ticket
        bisect.insort(self._queue, ticket, key=lambda t: t.order)
        self.waiting.take(caller, size_bytes)
        self._finish[caller] = finish
        self._admit_waiting()
        if not ticket.admitted and self.waiting.free_bytes < self.waiting.held_by(caller):
            self.leave(ticket)
            return None
        return ticket

    def set_closed(self, closed: bool) -> list[AdmissionTicket]:
        """Sets whether admission is closed, and returns the tickets that are admitted now."""
        self.closed = closed
        return self._admit_waiting()

    def end_turn(self, ticket: AdmissionTicket) -> list[AdmissionTicket]:
        """Notes that the publication is analysed, and returns the tickets that are admitted now."""
        if not ticket.working:
            return []
        ticket.working = False
        self._working -= 1
        return self._admit_waiting()

    def leave(self, ticket: AdmissionTicket) -> list[AdmissionTicket]:
        """Notes that the publication is routed and synced, or given up, and returns the tickets
        that are admitted now."""
        if ticket.over:
            return []
        ticket.over = True
        if ticket.admitted:
            self.held.give_back(ticket.caller, ticket.size_bytes)
            self._working -= ticket.working
            ticket.working = False
        else:
            self._queue.remove(ticket)
            self._move_later_up(ticket)
            self._leave_queue(ticket)
        return self._admit_waiting()

    def _move_later_up(self, gone: AdmissionTicket) -> None:
        """Moves the later publications of the same caller up, for one that is given up takes
        nothing of its caller's share."""
        self._finish[gone.caller] -= gone.size_bytes
        for ticket in self._queue:
            if ticket.caller == gone.caller and ticket.number > gone.number:
                ticket.finish -= gone.size_bytes
        self._queue.sort(key=lambda t: t.order)

    def _admit_waiting(self) -> list[AdmissionTicket]:
        entered: list[AdmissionTicket] = []
        at = 0
        while at < len(self._queue) and self._is_open:
            ticket = self._queue[at]
            if self._may_admit(ticket):
                del self._queue[at]
                self._leave_queue(ticket)
                self._admit_ticket(ticket)
                entered.append(ticket)
                at = 0
            elif not self.held.held_by(ticket.caller) and not self._has_room(ticket):
                break  # it waits for others, and later ones wait too, or it might never get in
            else:
                at += 1
        return entered

    def _may_admit(self, ticket: AdmissionTicket) -> bool:
        return self._is_open and self._has_room(ticket)

    @property
    def _is_open(self) -> bool:
        return not self.closed and self._working < self._turns

    def _has_room(self, ticket: AdmissionTicket) -> bool:
        return self.held.fits(ticket.caller, ticket.size_bytes)

    def _admit_ticket(self, ticket: AdmissionTicket) -> None:
        self.held.take(ticket.caller, ticket.size_bytes)
        self._virtual = max(self._virtual, ticket.finish)
        self._working += 1
        ticket.admitted = ticket.working = True

    def _leave_queue(self, ticket: AdmissionTicket) -> None:
        self.waiting.give_back(ticket.caller, ticket.size_bytes)
        if not self.waiting.held_by(ticket.caller):
            self._finish.pop(ticket.caller, None)


class PublishAdmission:
    """The admission of all that is accepted and not yet routed and synced, within `limit_bytes`.

    Small publications have a part of the bytes and turns of their own, so that they do not wait for
    large ones. Those have half as many turns, which leaves a core for the others. While routed
    batches wait for workers or mergers, no large publication is admitted.
    """

    def __init__(self, limit_bytes: int, turns: int) -> None:
        small_bytes = limit_bytes // SMALL_PART
        self._small = FairAdmission(small_bytes, turns)
        self._large = FairAdmission(limit_bytes - small_bytes, max(1, turns // 2))
        self.limit_bytes = limit_bytes

    @property
    def held_bytes(self) -> int:
        """The bytes that are accepted and not yet routed and synced."""
        free_bytes = self._small.held.free_bytes + self._large.held.free_bytes
        return self.limit_bytes - free_bytes

    @property
    def congested(self) -> bool:
        """True while no large publication is admitted."""
        return self._large.closed

    def set_congested(self, congested: bool) -> list[AdmissionTicket]:
        """Sets whether routed batches wait, and returns the tickets that are admitted now."""
        return self._large.set_closed(congested)

    def request(self, caller: Hashable, size_bytes: int) -> AdmissionTicket | None:
        """Returns a ticket that is admitted at once or waits, or None where no more may wait."""
        return self._choose_budget(size_bytes).request(caller, size_bytes)

    def end_turn(self, ticket: AdmissionTicket) -> list[AdmissionTicket]:
        """Notes that the publication is analysed, and returns the tickets that are admitted now."""
        return self._choose_budget(ticket.size_bytes).end_turn(ticket)

    def leave(self, ticket: AdmissionTicket) -> list[AdmissionTicket]:
        """Notes that the publication is routed and synced, or given up, and returns the tickets
        that are admitted now."""
        return self._choose_budget(ticket.size_bytes).leave(ticket)

    def _choose_budget(self, size_bytes: int) -> FairAdmission:
        return self._small if size_bytes <= SMALL_BYTES else self._large


class RefusalPace:
    """The time that refusals are held back, so that all refused callers together send at most
    `bytes_per_s`. A refusal waits for its own bytes, once for each refusal that is held back, at
    most `most_s`. A caller that waits for a refusal sends nothing more meanwhile, and a refusal of
    a few bytes hardly waits."""

    def __init__(self, bytes_per_s: int, most_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._most_s = most_s
        self.held = 0

    def begin(self, size_bytes: int) -> float:
        """Notes that a publication of this size is refused, and returns the seconds until the
        refusal is to be sent."""
        self.held += 1
        return min(self._most_s, size_bytes * self.held / self._bytes_per_s)

    def end(self) -> None:
        """Notes that a refusal has been sent."""
        self.held -= 1


# --- rates ------------------------------------------------------------------


class TokenBucket:
    """A bucket that fills by `rate` a second and holds a second's worth. A batch larger than that
    passes too, and those after it wait longer: the mean over time is at most `rate`."""

    def __init__(self, rate: float, now_ms: int) -> None:
        self._rate = rate
        self._level = rate
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until something passes, 0 for now."""
        passed_ms, self._at_ms = max(0, now_ms - self._at_ms), now_ms
        self._level = min(self._rate, self._level + self._rate * passed_ms / 1000)
        return 0 if self._level > 0 else 1 + math.ceil(-1000 * self._level / self._rate)

    def change_rate(self, rate: float) -> None:
        """Lets the bucket fill by another rate from now on."""
        self._rate = rate

    def take(self, amount: int) -> None:
        """Takes an amount, after `wait_ms` has returned 0."""
        self._level -= amount


class PublishRates:
    """A tenant's quotas on what it publishes, as far as they are this dispatcher's: each of
    `dispatchers()` dispatchers grants an equal share."""

    def __init__(self, quota: TenantQuota, dispatchers: Callable[[], int], now_ms: int) -> None:
        self._count, self._among = dispatchers, dispatchers()
        self._limits: Mapping[str, int] = {
            name: limit
            for name in ("objects_per_s", "bytes_per_s")
            if (limit := getattr(quota, name)) is not None
        }
        self._buckets = {
            name: TokenBucket(limit / self._among, now_ms) for name, limit in self._limits.items()
        }

    def check(self, now_ms: int) -> None:
        """Raises OverQuota, naming the quota, while nothing may pass."""
        if not self._buckets:
            return  # most tenants: it would be asked with every publication how many dispatchers
        if (among := self._count()) != self._among:
            self._among = among
            for name, bucket in self._buckets.items():
                bucket.change_rate(self._limits[name] / among)
        for name, bucket in self._buckets.items():
            if wait := bucket.wait_ms(now_ms):
                problem = f"{self._limits[name]} is the tenant's quota ({name})"
                raise OverQuota(problem, wait)

    def take(self, rows: int, text_bytes: int, now_ms: int) -> None:
        """Lets a batch of so many rows and bytes of texts and ids pass. Raises OverQuota when it
        may not pass; then nothing of it counts."""
        self.check(now_ms)
        amounts = {"objects_per_s": rows, "bytes_per_s": text_bytes + OBJECT_BYTES * rows}
        for name, bucket in self._buckets.items():
            bucket.take(amounts[name])
