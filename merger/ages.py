"""Estimates of how long ago the records of a log were written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

MOST = 512
"""The number of marks that are kept. When there are more, every second one is dropped."""


class LogAges:
    """Estimates the age of what a log holds, from marks: positions that the log had reached at
    some moments (Unix ms), in order."""

    def __init__(self, marks: Iterable[tuple[int, int]] = ()) -> None:
        self._marks = list(marks)
        self._spacing_ms = 0  # the least time between two marks

    def of(self, position: int | None, end: int, now: int) -> int:
        """Returns the milliseconds since the record at `position` was written, in a log that goes
        to `end` now; 0 for None. The estimate may be low by the time between two calls, and by a
        hundredth. Positions must not fall."""
        if position is None:
            self._marks.clear()
            return 0
        del self._marks[: bisect_right(self._marks, position, key=lambda mark: mark[0])]
        if not self._marks:
            self._spacing_ms = 0
        if not self._marks or (
            end > self._marks[-1][0] and now >= self._marks[-1][1] + self._spacing_ms
        ):
            self._marks.append((end, now))
        if len(self._marks) > MOST:
            self._marks = self._marks[::2]
            self._spacing_ms = (now - self._marks[0][1]) // (MOST // 2)
        return max(now - self._marks[0][1], 0)
