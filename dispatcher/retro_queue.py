"""The new queries that are to be matched against the objects still valid (retro), in the order of
their LSNs, and what of that is not yet durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import NEVER, QueryRows
from ps2stream.protocol.validity import find_validity
from ps2stream.routing.tags import QueryTags

TOGETHER = 1024
"""The queries that are matched together, at most."""


class RetroQueries(NamedTuple):
    """Inserts with retro, their tags, and the sequencer's time at each, Unix ms."""

    rows: QueryRows
    tags: QueryTags
    inserted: I64

    def split(self, size: int) -> list[RetroQueries]:
        """Returns the queries in groups of so many."""
        number = np.arange(len(self.rows)) // size
        return [
            RetroQueries(
                self.rows.take(np.flatnonzero(number == k)),
                self.tags.of(number == k),
                self.inserted[number == k],
            )
            for k in range(int(number[-1]) + 1)
        ]

    @property
    def first(self) -> int:
        """The lowest handle."""
        return int(self.rows.handle[0])

    @property
    def last(self) -> int:
        """The highest handle."""
        return int(self.rows.handle[-1])


class RetroQueue:
    """The inserts with retro of one dispatcher, of which those up to the LSN `done` were matched
    by an earlier incarnation. One group is under way at a time."""

    def __init__(self, done: int = 0) -> None:
        self._known = done  # the highest that is done, under way or due
        self._due: deque[RetroQueries] = deque()
        self._under_way: RetroQueries | None = None
        self._below = NEVER  # inserts from this LSN on are others' concern
        self._open: dict[int, int] = {}  # by batch of matches that are not kept: the first LSN

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing is due, under way or open."""
        return not (self._due or self._under_way or self._open)

    @property
    def has_due(self) -> bool:
        """Returns whether a group may be taken."""
        return bool(self._due) and self._under_way is None

    @property
    def due_last(self) -> int:
        """The highest LSN of the group that is due."""
        return self._due[0].last

    @property
    def open(self) -> int:
        """The number of batches of matches that are not kept."""
        return len(self._open)

    def find_lowest(self, otherwise: int) -> int:
        """Returns the lowest LSN of a query that is not done, or `otherwise` if that is lower."""
        lowest = min(self._open.values(), default=otherwise)
        if self._under_way is not None:
            lowest = min(lowest, self._under_way.first)
        elif self._due:
            lowest = min(lowest, self._due[0].first)
        return min(lowest, otherwise)

    def find_oldest(self, otherwise: int) -> int:
        """Returns the lowest offset of a batch that is not kept, or `otherwise` if that is
        lower."""
        return min(*self._open, otherwise) if self._open else otherwise

    def follow(self, producers: ProducerMap, index: int) -> None:
        """Follows the number of dispatchers. One that leaves is not concerned with the inserts from
        then on, one that is not there with none, and one that joins with none of before."""
        if index < producers.dispatchers:
            self._below = NEVER
            if producers.joins(index):
                self._known = max(self._known, producers.lsn)
        elif producers.leaves(index):
            self._below = producers.lsn
        else:
            self._below = 0
            self._due.clear()

    def note(self, rows: QueryRows, tags: QueryTags) -> None:
        """Takes inserts in LSN order; those with retro that are not known are due. A state repeats
        what was there before."""
        validity = find_validity(rows)
        if not len(validity.row):
            return
        handle = rows.handle[validity.row]
        wanted = validity.retro & (handle > self._known) & (handle < self._below)
        at, inserted = validity.row[wanted], validity.inserted[wanted]
        for first in range(0, len(at), TOGETHER):
            some = at[first : first + TOGETHER]
            mask = np.zeros(len(rows), np.bool_)
            mask[some] = True
            times = inserted[first : first + TOGETHER]
            self._due.append(RetroQueries(rows.take(some), tags.of(mask), times))
            self._known = int(rows.handle[some[-1]])

    def take(self) -> RetroQueries:
        """Returns the next group, which is under way until `finish`."""
        self._under_way = self._due.popleft()
        return self._under_way

    def split(self, size: int) -> None:
        """Makes groups of at most so many queries of the one under way, which are due anew."""
        if self._under_way is not None:
            self._due.extendleft(reversed(self._under_way.split(size)))
            self._under_way = None

    def open_batch(self, batch: int, lsn: int) -> None:
        """Notes a batch of matches that is to be released."""
        self._open[batch] = lsn

    def finish(self) -> None:
        """Notes that the matches of the group under way are durable."""
        self._under_way = None

    def close(self, batches: Iterable[int]) -> None:
        """Notes that batches are complete, of which some may be matches."""
        if self._open:
            for batch in batches:
                self._open.pop(batch, None)
