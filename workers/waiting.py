"""Deletes that wait for the watermark."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U32


class WaitingDeletes:
    """Slots of deleted queries, with their delete LSNs. No slot is used again for another query
    while it is in here."""

    def __init__(self) -> None:
        self._parts: deque[tuple[I64, I64]] = deque()  # (LSNs, slots): ascending, none empty
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, lsns: I64, slots: I64) -> None:
        """Adds slots with their LSNs in any order; cheap where none is below the highest here."""
        if len(slots) == 0:
            return
        if self._parts and lsns.min() < self._parts[-1][0][-1]:
            lsns, slots = np.concatenate([self.columns(), np.stack([lsns, slots])], axis=1)
            self._parts.clear()
            self._size = 0
        order = np.argsort(lsns, kind="stable")
        self._parts.append((lsns[order], slots[order]))
        self._size += len(slots)

    def take_ripe(self, watermark: int, most: int | None = None) -> I64:
        """Removes and returns the slots of queries deleted up to `watermark`, the earliest first;
        at most so many, if that is given."""
        out, left = [np.zeros(0, np.int64)], self._size if most is None else most
        while left > 0 and self._parts and self._parts[0][0][0] <= watermark:
            lsns, slots = self._parts.popleft()
            n = min(int(np.searchsorted(lsns, watermark, "right")), left)
            out.append(slots[:n])
            left -= n
            self._size -= n
            if n < len(lsns):
                self._parts.appendleft((lsns[n:], slots[n:]))
        return np.concatenate(out)

    def take_empty(self, left: U32) -> I64:
        """Removes and returns the slots that have no posting left (`left` by slot)."""
        return self.take_chosen(left[self.columns()[1]] == 0)

    def take_chosen(self, chosen: NDArray[np.bool_]) -> I64:
        """Removes and returns the slots where `chosen`, in the order of `columns`, is true."""
        lsns, slots = self.columns()
        gone: I64 = slots[chosen]
        self._parts.clear()
        self._size = 0
        self.add(lsns[~chosen], slots[~chosen])
        return gone

    def columns(self) -> I64:
        """Returns LSNs and slots, int64[2, n]."""
        return np.concatenate([np.zeros((2, 0), np.int64), *map(np.stack, self._parts)], axis=1)
