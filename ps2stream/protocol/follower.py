"""The reader's end of the ledger: what is ahead waits, what is known is passed over."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

from ps2stream.protocol.addresses import ROLES, SEQUENCER, Role, Send
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerFetch
from ps2stream.protocol.ticks import NOTICE_TICKS

Item = TypeVar("Item")
PATIENCE = 2 * NOTICE_TICKS
"""Ticks that a reader waits for a notice whether what is new in the ledger concerns it."""


class LedgerTail(Generic[Item]):
    """A queue of LSN ranges, each with what happened in it; some may overlap or be lost."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, Item]] = []  # from, ticket, to, item
        self._ticket = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, lsn_from: int, lsn_to: int, item: Item) -> None:
        """Adds `item`, which holds all that happened in lsn_from..lsn_to."""
        heapq.heappush(self._waiting, (lsn_from, next(self._ticket), lsn_to, item))

    def next(self, applied: int) -> Item | None:
        """Removes and returns the item that continues after `applied`, and may begin before it;
        None where there is a gap."""
        while self._waiting and self._waiting[0][0] <= applied + 1:
            _, _, lsn_to, item = heapq.heappop(self._waiting)
            if lsn_to > applied:
                return item
        return None


class LedgerFollower(Generic[Item]):
    """A reader of the ledger as the sequencer sends it (docs/decisions/0006). It knows what to
    fetch, and begins after what was `applied` before.

    `applied` is the LSN up to which everything was taken by `next`. An item that overlaps with
    what is applied is returned whole: the reader passes over rows with an LSN <= `before`.
    """

    def __init__(self, role: Role, index: int, applied: int = 0) -> None:
        self.applied = applied
        self.before = applied
        self._first = applied
        self.tip = 0
        self._role = ROLES.index(role)
        self._index = index
        self._tail: LedgerTail[tuple[int, Item | LedgerBatch]] = LedgerTail()
        self._state = self._until = 0  # the state begun last, and the LSN at which it ends
        self._has_fetched = False
        self._before_answer = (0, 0)  # state and applied before the last answer
        self._needed = applied  # what is known to be missed if it is not applied
        self._last_tick = (0, 0, 0)  # applied, tip and what is needed at the last tick
        self._behind = 0  # ticks without progress while the tip was ahead

    def __len__(self) -> int:
        """Returns the number of items that wait."""
        return len(self._tail)

    @property
    def amid(self) -> bool:
        """Returns whether a state is being received, the rest of which is still to come."""
        return self.applied < self._until

    def forget(self) -> list[Send]:
        """Gives up all that was taken: everything is fetched anew, as a state."""
        self._state -= 1  # accept the last state again, but no log
        self.applied, self._until = 0, max(self.tip, 1)
        return [self._fetch_next()]

    def expect(self, lsn: int) -> None:
        """Notes that the ledger goes to `lsn` at least, where something concerns this reader."""
        self.tip = max(self.tip, lsn)
        self._needed = max(self._needed, lsn)

    def skip(self, after: int, lsn: int) -> bool:
        """Notes that nothing in after + 1..lsn concerns this reader, but perhaps what has the LSN
        `after`; returns whether more is applied now."""
        self.expect(after)
        self.tip = max(self.tip, lsn)
        if self.amid or not after <= self.applied < lsn:
            return False
        self.before, self.applied = self.applied, lsn
        return True

    def hear(self, lsn: int) -> list[Send]:
        """Notes that, by the sequencer, the ledger goes to `lsn`, perhaps with nothing that
        concerns this reader. A reader that has just begun fetches at once."""
        self.tip = max(self.tip, lsn)
        if self.applied > self._first or self._has_fetched or self.tip <= self.applied:
            return []
        return [self._fetch_next()]

    def add(self, lsn_from: int, lsn_to: int, item: Item | LedgerBatch) -> None:
        """Adds `item`, which holds all that happened in lsn_from..lsn_to."""
        self.expect(lsn_to)
        if lsn_to > max(self.applied, self._until):
            self._tail.add(lsn_from, lsn_to, (lsn_to, item))

    def fetched(self, frame: LedgerBatch) -> bool:
        """Takes the answer to a Fetch in. Returns True if the reader must drop all it has before
        it goes on."""
        self.expect(max(frame.lsn_to, frame.until))
        self._before_answer = self._state, self.applied
        begins = frame.state > self._state and frame.lsn_from == 1
        if begins:
            self._state, self._until, self.applied = frame.state, frame.until, 0
        if not frame.state or (frame.state == self._state and frame.lsn_from == self.applied + 1):
            self._tail.add(frame.lsn_from, frame.lsn_to, (frame.lsn_to, frame))
        return begins

    def next(self) -> Item | LedgerBatch | None:
        """Returns what is to be applied now; None where there is a gap."""
        while (found := self._tail.next(self.applied)) is not None:
            lsn_to, item = found
            state = item.state if isinstance(item, LedgerBatch) else 0
            if self.amid and state != self._state:
                continue  # it is in the state, or after it and will be fetched
            self.before, self.applied = self.applied, lsn_to
            return item
        return None

    def ask(self) -> list[Send]:
        """Fetches what follows, if the last answer was of use and more follows."""
        advanced = self._before_answer != (self._state, self.applied)
        return [self._fetch_next()] if advanced and self.applied < self.tip else []

    def tick(self) -> list[Send]:
        """Fetches if the reader misses something, and came no nearer since the last tick; or, if
        only the tip is ahead, for PATIENCE ticks: dispatchers give notice whether that concerns
        the reader."""
        before, tip, needed = self._last_tick
        self._last_tick = (self.applied, self.tip, self._needed)
        is_stuck = self.applied == before
        self._behind = self._behind + 1 if is_stuck and self.applied < tip else 0
        if is_stuck and (self.applied < needed or self._behind >= PATIENCE):
            return [self._fetch_next()]
        return []

    def _fetch_next(self) -> Send:
        """Returns a request for what follows `applied`."""
        self._has_fetched = True
        state = self._state if self.amid else 0
        return Send(SEQUENCER, LedgerFetch(self._role, self._index, self.applied, state))
