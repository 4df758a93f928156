"""The end of a stream in LSN order: what comes early waits, what is known is passed over."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

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
