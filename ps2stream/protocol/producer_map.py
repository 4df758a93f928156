"""How many dispatchers there are, and so which of them remembers a producer.

The number changes by a record of the ledger with an LSN. A dispatcher that is new counts from then
on, and producers move to others, with the windows of their publications (docs/decisions/0037).
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from ps2stream.protocol.frame import I64


class ProducerMap(NamedTuple):
    """The number of dispatchers from the LSN `lsn` on, and the one before, which is the same once
    every producer is where it belongs. `configured` is the number in the settings of the start
    after which it was changed."""

    lsn: int
    dispatchers: int
    before: int
    configured: int

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
        """The map as a column of a record, int64[4]."""
        return np.array(self, np.int64)

    @property
    def summary(self) -> str:
        """What a ledger notes for the next start."""
        return f"{self.dispatchers} {self.configured}"

    @property
    def is_moving(self) -> bool:
        """True while some producers are not where they belong."""
        return self.before != self.dispatchers

    def sources_of(self, dispatcher: int) -> set[int]:
        """Returns the dispatchers from which this one gains producers, perhaps none of them."""
        return set(range(self.before)) - {dispatcher} if self.is_moving else set()

    def grown(self, dispatchers: int, lsn: int) -> Self:
        """Returns the map for this number from the LSN on, while producers move."""
        return self._replace(lsn=lsn, dispatchers=dispatchers, before=self.dispatchers)

    def finished(self) -> Self:
        """Returns the map once every producer is where it belongs."""
        return self._replace(before=self.dispatchers)
