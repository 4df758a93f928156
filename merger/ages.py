"""How long ago what stands in a log was written, about."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

MOST = 512
"""Marks that are kept; of more, every second one."""


class Ages:
    """`marks`: of some moments (Unix ms) how far the log went then, in order."""

    def __init__(self, marks: Iterable[tuple[int, int]] = ()) -> None:
        self._marks = list(marks)
        self._apart = 0  # ms between two marks at least

    def of(self, position: int | None, end: int, now: int) -> int:
        """Milliseconds since what begins at `position` of a log that goes to `end` now was
        written, 0 for nothing; too few by what passed between two calls, and by a hundredth.
        Positions must not fall."""
        if position is None:
            self._marks.clear()
            return 0
        del self._marks[: bisect_right(self._marks, position, key=lambda mark: mark[0])]
        if not self._marks:
            self._apart = 0
        if not self._marks or (
            end > self._marks[-1][0] and now >= self._marks[-1][1] + self._apart
        ):
            self._marks.append((end, now))
        if len(self._marks) > MOST:
            self._marks = self._marks[::2]
            self._apart = (now - self._marks[0][1]) // (MOST // 2)
        return max(now - self._marks[0][1], 0)
