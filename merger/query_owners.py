"""The sessions that own queries, as a merger learns them from the ledger."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import I64

FOLD = 1 << 16  # numbers that may be kept besides the distinct ones


class QueryOwners:
    """Numbers of sessions that have inserted a query; they stay when the queries are deleted."""

    def __init__(self) -> None:
        self._numbers = np.zeros(0, np.int64)
        self._fresh: list[I64] = []
        self._size = 0

    def add(self, session: I64) -> None:
        """Adds the sessions of inserts, which may repeat."""
        self._fresh.append(session)
        self._size += len(session)
        if self._size > FOLD:
            self.find()

    def find(self) -> I64:
        """Returns the numbers, rising."""
        if self._fresh:
            self._numbers = np.unique(np.concatenate([self._numbers, *self._fresh]))
            self._fresh.clear()
            self._size = 0
        return self._numbers
