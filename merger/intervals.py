"""A set of integers as disjoint ranges: a dispatcher's offsets that are done."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class OffsetIntervals:
    """A set of half-open ranges; those that touch are joined."""

    def __init__(self) -> None:
        self._start: list[int] = []
        self._stop: list[int] = []

    def __len__(self) -> int:
        return len(self._start)

    def items(self) -> list[tuple[int, int]]:
        """Returns the ranges (start, stop), rising."""
        return list(zip(self._start, self._stop, strict=True))

    def add(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        a = bisect_left(self._stop, start)  # the first that touches or follows
        b = bisect_right(self._start, stop)  # behind the last that touches
        if a < b:
            start, stop = min(start, self._start[a]), max(stop, self._stop[b - 1])
        self._start[a:b] = [start]
        self._stop[a:b] = [stop]

    def covers(self, start: int, stop: int) -> bool:
        """Tells whether the set has all of start..stop; for an empty range, start alone."""
        at = bisect_right(self._start, start) - 1
        return at >= 0 and max(stop, start + 1) <= self._stop[at]

    def within(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the ranges of start..stop that the set has."""
        a, b = bisect_right(self._stop, start), bisect_left(self._start, stop)
        return [
            (max(start, x), min(stop, y))
            for x, y in zip(self._start[a:b], self._stop[a:b], strict=True)
        ]
