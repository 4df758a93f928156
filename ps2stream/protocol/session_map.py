"""Which merger has a session: a table of slots, and how it changes while the service runs.

A session is in the slot `session % len(table)`, and the table has the merger of each slot. A ledger
without a record of it has the table of its first number of mergers, by which the merger is
`session % mergers`. A change of the table has an LSN: a pair belongs to the merger that the table
gives for the LSN as of which its batch is matched, so that a batch that is sent again finds the
merger that has its pairs already (docs/decisions/0036).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import I64, U8, Frame, sealed
from ps2stream.protocol.producer_map import ProducerMap

SLOTS = 1024
"""The slots of a table, at least: a multiple of the first number of mergers."""
MAX_MERGERS = 64


def _no_producers() -> I64:
    return np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class SessionMapRecord(Frame):
    """The table from the LSN `lsn` on, which is that of the record or of an earlier one; `before`
    is the table until then, from the LSN `lsn_before` on, and empty once every session is where the
    table says. producers: the columns of the ProducerMap; empty if the number of dispatchers is
    that of the service's start."""

    KIND = 94
    ADDED = 1
    lsn: int
    lsn_before: int
    table: U8
    before: U8
    producers: I64 = dataclasses.field(default_factory=_no_producers)


class SessionMap(NamedTuple):
    """A table, uint8[slots], of the merger of each slot, from the LSN `lsn` on."""

    lsn: int
    table: U8

    @classmethod
    def first(cls, mergers: int) -> SessionMap:
        """Returns the table of a ledger that has had this number of mergers since it was made."""
        slots = mergers * -(-SLOTS // mergers)
        return cls(0, sealed((np.arange(slots) % mergers).astype(np.uint8)))

    @property
    def mergers(self) -> int:
        """The number of mergers: one more than the highest in the table."""
        return int(self.table.max()) + 1

    def merger_of(self, session: int) -> int:
        """Returns the merger of a session."""
        return int(self.table[session % len(self.table)])

    def mergers_of(self, session: I64) -> U8:
        """Returns the merger of each session, uint8[n]."""
        found: U8 = self.table[session % len(self.table)]
        return found

    def owned_by(self, merger: int) -> U8:
        """Returns for each slot, uint8[slots], whether it is this merger's."""
        return sealed((self.table == merger).view(np.uint8))

    def spread(self, mergers: int, lsn: int) -> SessionMap:
        """Returns the table for this number of mergers from the LSN on. Among the slots up to any
        one, no merger has more than its share by two, so that few sessions are spread as well;
        and hardly more slots get another merger than must."""
        table = self.table.tolist()
        held = [0] * mergers
        for slot, owner in enumerate(table):
            share = -(-(slot + 1) // mergers)
            if owner >= mergers or held[owner] > share:
                table[slot] = owner = held.index(min(held))
            held[owner] += 1
        return SessionMap(lsn, sealed(np.array(table, np.uint8)))


class SessionMaps(NamedTuple):
    """The table in force, and the one before it while sessions move; and the number of dispatchers,
    None if it is that of the service's start."""

    now: SessionMap
    before: SessionMap | None = None
    producers: ProducerMap | None = None

    @classmethod
    def of_record(cls, record: U8) -> SessionMaps:
        """Reads what a SessionMapRecord has."""
        found = SessionMapRecord.decode(record.tobytes())
        before = SessionMap(found.lsn_before, found.before) if len(found.before) else None
        producers = ProducerMap.of_column(found.producers)
        return cls(SessionMap(found.lsn, found.table), before, producers)

    def record(self) -> U8:
        """Returns them as an encoded SessionMapRecord."""
        lsn, table = (0, nothing()) if self.before is None else self.before
        producers = _no_producers() if self.producers is None else self.producers.column
        frame = SessionMapRecord(self.now.lsn, lsn, self.now.table, table, producers)
        return np.frombuffer(frame.encode(), np.uint8)

    @property
    def mergers(self) -> int:
        """The number of mergers that run."""
        before = 0 if self.before is None else self.before.mergers
        return max(self.now.mergers, before)

    @property
    def is_changing(self) -> bool:
        """True while sessions or producers move."""
        return self.before is not None or (self.producers is not None and self.producers.is_moving)

    @property
    def complete_below(self) -> int:
        """The LSN below which every batch is complete: a move ends only then, and the next one
        begins only after it."""
        return (self.before or self.now).lsn

    @property
    def step(self) -> tuple[int, bool]:
        """What tells them from those before and after: the LSN of the table, and whether sessions
        still move."""
        return self.now.lsn, self.before is not None

    @property
    def order(self) -> tuple[int, bool]:
        """A key that rises from one change to the next."""
        return self.now.lsn, self.before is None

    def at(self, lsn: int) -> SessionMap:
        """Returns the table by which pairs of a batch of this LSN belong to mergers."""
        if self.before is not None and lsn < self.now.lsn:
            return self.before
        return self.now

    def sources_of(self, merger: int) -> list[int]:
        """Returns the mergers from which this one gains slots."""
        if self.before is None:
            return []
        gained = self.before.table[self.now.table == merger]
        return sorted(set(gained.tolist()) - {merger})

    def moved(self, source: int, target: int) -> U8:
        """Returns for each slot, uint8[slots], whether it moves from one merger to the other."""
        assert self.before is not None
        leaves = self.before.owned_by(source)
        moved: U8 = leaves & self.now.owned_by(target)
        return moved

    def needed_by(self, merger: int) -> U8:
        """Returns for each slot, uint8[slots], whether this merger needs the names of its
        queries."""
        owned = self.now.owned_by(merger)
        return owned if self.before is None else sealed(owned | self.before.owned_by(merger))

    def finished(self) -> SessionMaps:
        """Returns them once every session is where the table says."""
        return self._replace(before=None)
