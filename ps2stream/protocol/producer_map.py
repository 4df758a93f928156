"""How many dispatchers there are, and so which of them remembers a producer.

The number changes by a record of the ledger with an LSN. A dispatcher that is new counts from then
on; one that leaves counts until another record, once nothing of it is under way. Producers move to
others, with the windows of their publications (docs/decisions/0037, 0038).
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from ps2stream.protocol.frame import I64

COUNTS = 128
"""Above any number of dispatchers."""


class ProducerMap(NamedTuple):
    """The number of dispatchers from the LSN `lsn` on, and the one before, which is the same once
    every producer is where it belongs, and nobody leaves any more. `configured` is the number in
    the settings of the start after which it was changed; `left_out` the latest end, Unix ms, of
    the valid objects of dispatchers that have left."""

    lsn: int
    dispatchers: int
    before: int
    configured: int
    left_out: int = 0

    @classmethod
    def first(cls, dispatchers: int) -> Self:
        """Returns the map of a service that has had this number since its start."""
        return cls(0, dispatchers, dispatchers, dispatchers)

    @classmethod
    def of_column(cls, column: I64) -> Self | None:
        """Reads what `column` returned; None if the column is empty."""
        return cls(*column.tolist()) if len(column) else None

    @property
    def column(self) -> I64:
        """The map as a column of a record, int64[5]."""
        return np.array(self, np.int64)

    @property
    def summary(self) -> str:
        """What a ledger notes for the next start."""
        return f"{self.counted} {self.configured}"

    @property
    def is_moving(self) -> bool:
        """True while some producers are not where they belong, or dispatchers leave."""
        return self.before != self.dispatchers

    @property
    def is_shrinking(self) -> bool:
        """True while dispatchers leave."""
        return self.before > self.dispatchers

    @property
    def counted(self) -> int:
        """The number of dispatchers that count: those that leave do until they have left."""
        return max(self.dispatchers, self.before)

    @property
    def mark(self) -> int:
        """What messages with a watermark say: `counted`, and above it a number that rises from one
        record to the next, so that whoever receives several knows the latest."""
        return (2 * self.lsn + (not self.is_moving)) * COUNTS + self.counted

    def leaves(self, dispatcher: int) -> bool:
        """Returns whether this dispatcher leaves, and has not left."""
        return self.dispatchers <= dispatcher < self.before

    def joins(self, dispatcher: int) -> bool:
        """Returns whether this dispatcher counts since the change that is under way."""
        return self.before <= dispatcher < self.dispatchers

    def sources_of(self, dispatcher: int) -> set[int]:
        """Returns the dispatchers from which this one gains producers, perhaps none of them."""
        if not self.is_moving or dispatcher >= self.dispatchers:
            return set()
        return set(range(self.before)) - {dispatcher}

    def changed(self, dispatchers: int, lsn: int) -> Self:
        """Returns the map for this number from the LSN on, while producers move."""
        return self._replace(lsn=lsn, dispatchers=dispatchers, before=self.dispatchers)

    def finished(self, left_out: int = 0) -> Self:
        """Returns the map once every producer is where it belongs, and those that leave have left;
        left_out: the latest end of their valid objects."""
        left_out = max(self.left_out, left_out)
        return self._replace(before=self.dispatchers, left_out=left_out)


def count_marked(mark: int) -> int:
    """Returns the number of dispatchers that a mark names; 0 for that of the service's start."""
    return mark % COUNTS
