"""The end of a stream in LSN order: what comes early waits, what is known is passed over."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

from ps2stream.protocol.addresses import ROLES, Address, Role, Send
from ps2stream.protocol.messages.updates import Applied, Fetch

SEQUENCER = Address("sequencer", 0)

Item = TypeVar("Item")


class Tail(Generic[Item]):
    """Ranges of LSNs, each with what happened in it, of which some may overlap or be lost."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, Item]] = []  # from, ticket, to, item
        self._ticket = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, lsn_from: int, lsn_to: int, item: Item) -> None:
        """`item` says all that happened in lsn_from..lsn_to."""
        heapq.heappush(self._waiting, (lsn_from, next(self._ticket), lsn_to, item))

    def next(self, applied: int) -> Item | None:
        """Take what goes on from `applied`, perhaps from below; None where there is a gap."""
        while self._waiting and self._waiting[0][0] <= applied + 1:
            _, _, lsn_to, item = heapq.heappop(self._waiting)
            if lsn_to > applied:
                return item
        return None


class Follower(Generic[Item]):
    """A reader of the sequencer's stream, and what it is to ask for (docs/decisions/0006);
    it begins with what was `applied` before.

    `applied` is the LSN up to which everything was taken by `next`. What overlaps with what
    is applied is handed out whole: the reader passes over rows with an LSN <= `before`.
    """

    def __init__(self, role: Role, index: int, applied: int = 0) -> None:
        self.applied = applied
        self.before = applied
        self._first = applied
        self.tip = 0
        self._role = ROLES.index(role)
        self._index = index
        self._tail: Tail[tuple[int, Item | Applied]] = Tail()
        self._state = self._until = 0  # the state last begun, the LSN that it ends at
        self._asked = False
        self._stood = (0, 0)  # state and applied before the last answer
        self._seen = (0, 0)  # applied and tip at the last tick

    def __len__(self) -> int:
        """What waits to be taken."""
        return len(self._tail)

    @property
    def amid(self) -> bool:
        """Whether a state is being received, of which the rest is still to come."""
        return self.applied < self._until

    def forget(self) -> list[Send]:
        """What was taken is of no use: all is to come anew, as a state."""
        self._state -= 1  # the last one is as good as any, and the log is none
        self.applied, self._until = 0, max(self.tip, 1)
        return [self._fetch()]

    def expect(self, lsn: int) -> None:
        """The stream goes to `lsn` at least."""
        self.tip = max(self.tip, lsn)

    def hear(self, lsn: int) -> list[Send]:
        """The sequencer says that the stream goes to `lsn`. Who has just begun asks at once."""
        self.expect(lsn)
        if self.applied > self._first or self._asked or self.tip <= self.applied:
            return []
        return [self._fetch()]

    def add(self, lsn_from: int, lsn_to: int, item: Item | Applied) -> None:
        """`item` says what happened in lsn_from..lsn_to."""
        self.tip = max(self.tip, lsn_to)
        if lsn_to > max(self.applied, self._until):
            self._tail.add(lsn_from, lsn_to, (lsn_to, item))

    def fetched(self, frame: Applied) -> bool:
        """Take an answer to a Fetch. True: forget everything, then go on."""
        self.tip = max(self.tip, frame.lsn_to, frame.until)
        self._stood = self._state, self.applied
        begins = frame.state > self._state and frame.lsn_from == 1
        if begins:
            self._state, self._until, self.applied = frame.state, frame.until, 0
        if not frame.state or (frame.state == self._state and frame.lsn_from == self.applied + 1):
            self._tail.add(frame.lsn_from, frame.lsn_to, (frame.lsn_to, frame))
        return begins

    def next(self) -> Item | Applied | None:
        """What is to be applied now; None where there is a gap."""
        while (found := self._tail.next(self.applied)) is not None:
            lsn_to, item = found
            state = item.state if isinstance(item, Applied) else 0
            if self.amid and state != self._state:
                continue  # it is in the state, or behind it and will be fetched
            self.before, self.applied = self.applied, lsn_to
            return item
        return None

    def ask(self) -> list[Send]:
        """After `fetched`: ask for what follows, if it was of use and more follows."""
        moved = self._stood != (self._state, self.applied)
        return [self._fetch()] if moved and self.applied < self.tip else []

    def tick(self) -> list[Send]:
        """Ask again, if behind for a whole tick and no nearer."""
        before, self._seen = self._seen, (self.applied, self.tip)
        if self.applied < before[1] and self.applied == before[0]:
            return [self._fetch()]
        return []

    def _fetch(self) -> Send:
        self._asked = True
        state = self._state if self.amid else 0
        return Send(SEQUENCER, Fetch(self._role, self._index, self.applied, state))
