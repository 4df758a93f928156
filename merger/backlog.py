"""A session's backlog: the places in the match log of its unacknowledged pairs.

A row is (position of a Matched record, number of the session's first pair there, number of
its last, bytes). A session that nobody reads for a day must take no more memory than one that
stalls for a minute, so rows are written to the log as well: whenever a run of one level reaches
2 * BLOCK rows, BLOCK of them become a Places record and one row of the level above, whose
position is that record's. Rows of the oldest level-0 run, where acknowledgements and gaps
remove pairs, are always in memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import PlacesRecord

BLOCK = 128


class BacklogPlace(NamedTuple):
    """The pairs first..last of a session, which take `size` bytes at `position` of the log."""

    position: int
    first: int
    last: int
    size: int


class _PlaceRun:
    """Rows of one level, in order. Those before `start` have been dropped."""

    def __init__(self, level: int, rows: array[int]) -> None:
        self.level = level
        self.rows = rows
        self.start = 0

    def __len__(self) -> int:
        return len(self.rows) // 4 - self.start

    def at(self, i: int) -> BacklogPlace:
        return BacklogPlace(*self.rows[4 * i : 4 * i + 4])

    @property
    def head(self) -> BacklogPlace:
        return self.at(self.start)

    @property
    def last(self) -> int:
        """The number of the run's last pair."""
        return self.rows[-2]

    def search(self, number: int) -> int:
        """Returns the index of the first row whose last pair is `number` or above."""
        rows = self.rows
        at = range(self.start, len(rows) // 4)
        return self.start + bisect_left(at, number, key=lambda i: rows[4 * i + 2])

    def skip(self, start: int) -> int:
        """Drops the rows before `start` and returns the bytes of their pairs."""
        size = sum(self.rows[4 * self.start + 3 : 4 * start : 4])
        self.start = start
        if start >= BLOCK:
            del self.rows[: 4 * start]
            self.start = 0
        return size


class SessionBacklog:
    """The unacknowledged pairs of one session, by number; they take `size` bytes of the log."""

    __slots__ = ("_journal", "_runs", "_session", "size")

    def __init__(self, session: int, journal: MatchJournal) -> None:
        self._session = session
        self._journal = journal
        self._runs: list[_PlaceRun] = []  # oldest first; the first is of level 0
        self.size = 0

    @property
    def oldest(self) -> BacklogPlace | None:
        return self._runs[0].head if self._runs else None

    @property
    def held_bytes(self) -> int:
        """The memory that the rows take."""
        return sum(160 + 8 * len(run.rows) for run in self._runs)

    def append(self, position: int, first: int, last: int, size: int) -> None:
        run = self._ensure_last_run(0)
        run.rows.extend((position, first, last, size))
        self.size += size
        if len(run) >= 2 * BLOCK:
            self._fold_long_run(len(self._runs) - 1)

    def restore(self, rows: Iterable[tuple[int, BacklogPlace]]) -> None:
        """Fills an empty backlog with rows and their levels, the oldest first."""
        for level, place in rows:
            if level:
                self._ensure_last_run(level).rows.extend(place)
                self.size += place.size
            else:
                self.append(*place)
        self.drop(0)

    def find(self, number: int) -> BacklogPlace:
        """Returns the place of the pair of this number. Raises KeyError when it has none."""
        run = next((r for r in self._runs if r.last >= number), None)
        while run is not None:
            place = run.at(run.search(number))
            if number < place.first:
                break
            if run.level == 0:
                return place
            run = self._read_block(run.level, place)
        raise KeyError(number)

    def drop(self, number: int) -> None:
        """Drops the rows whose pairs are all at or below `number`."""
        while self._runs:
            run = self._runs[0]
            if run.last <= number:
                self.size -= run.skip(run.start + len(run))
                del self._runs[0]
            elif run.head.last <= number:
                self.size -= run.skip(run.search(number + 1))
            elif run.level:
                block = self._read_block(run.level, run.head)
                run.skip(run.start + 1)
                self._runs[:1] = [block, run] if len(run) else [block]
            else:
                return

    def _ensure_last_run(self, level: int) -> _PlaceRun:
        """Returns the last run, a new one unless the last is of this level."""
        if not self._runs or self._runs[-1].level != level:
            self._runs.append(_PlaceRun(level, array("q")))
        return self._runs[-1]

    def _read_block(self, level: int, place: BacklogPlace) -> _PlaceRun:
        """Reads the rows that a row of this level replaces."""
        rows = self._journal.read(place.position, PlacesRecord).row
        return _PlaceRun(level - 1, array("q", rows.tobytes()))

    def _fold_long_run(self, at: int) -> None:
        """Replaces half of a long run by one row of the run before it, a level above."""
        run = self._runs[at]
        half = run.start + BLOCK
        rows = run.rows[4 * run.start : 4 * half]
        if at == 0:
            self._runs.insert(0, _PlaceRun(run.level, rows))
            run.skip(half)
            return
        row = np.frombuffer(rows, np.int64)
        position = self._journal.append(PlacesRecord(self._session, run.level, row))
        if position is None:
            return  # the log took nothing: the next row tries again
        before = self._runs[at - 1]
        if before.level != run.level + 1:
            before = _PlaceRun(run.level + 1, array("q"))
            self._runs.insert(at, before)
            at += 1
        before.rows.extend((position, rows[1], rows[-2], run.skip(half)))
        if len(before) >= 2 * BLOCK:
            self._fold_long_run(at - 1)
