"""Exact dedupe (algorithms.md 6.6, 7.10): which releases can be processed, and what is done.

A release has what some workers found in a batch, or, if it is whole, what all of them did. Within
it equal (query, object) pairs collapse into one. After a whole one the batch's objects are done;
the pairs of others are recorded as reported. What is done is kept as ranges of offsets, so that a
batch that is received again whole, in halves, or whole after its halves adds no pair twice. Most
batches follow on one another, so their ranges join; batches without a match leave holes until the
dispatcher announces that everything before is done.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ps2stream.merger.intervals import OffsetIntervals
from ps2stream.merger.kernels import distinct_pairs, is_rising
from ps2stream.protocol.frame import I64, U32, sealed
from ps2stream.protocol.messages.objects import MatchRelease


class ReportedPairs(NamedTuple):
    """Reported pairs of a batch that is not done, and the range that their offsets span."""

    first: int
    stop: int
    offset: I64
    handle: I64


class DedupWindow:
    """The batches of one dispatcher: what of them waits, is done, or is reported in part."""

    def __init__(self) -> None:
        self.watermark = 0
        self.done = OffsetIntervals()
        self.collapsed = 0  # pairs that two workers sent
        self._collapses = 0  # the same, of the release that is processed
        self._oldest = 0
        self._pending: dict[int, MatchRelease] = {}  # by release
        self._reported: list[ReportedPairs] = []  # by `first`
        self._longest_span = 0  # of the ranges in `_reported`

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def in_part(self) -> bool:
        """True if pairs of batches that are not done have been reported."""
        return bool(self._reported)

    def add(self, release: MatchRelease) -> bool:
        """Takes a release; returns False if its batch is done, as all below the watermark are."""
        if release.lsn < self.watermark or self.done.covers(release.batch, release.end):
            self._pending.pop(release.release, None)
            return False
        self._pending[release.release] = release
        return True

    def ready(self, applied: int, release: int | None = None) -> list[MatchRelease]:
        """Returns the releases that can be processed once all queries up to `applied` are known: of
        all, in order, or this one."""
        numbers = sorted(self._pending) if release is None else [release]
        found = (self._pending.get(number) for number in numbers)
        return [each for each in found if each is not None and each.needs <= applied]

    def find_new(self, release: MatchRelease) -> tuple[U32, I64, I64]:
        """Returns the distinct (row, handle) of a release with their sessions, by rising row,
        without pairs that were reported and those of objects that are done. Rows count from the
        batch's first object."""
        if int(release.pair_row.max()) >= release.size:
            problem = f"a match names row {release.pair_row.max()} of a batch of {release.size}"
            raise ValueError(problem)
        pairs = (sealed(release.pair_row), sealed(release.handle), sealed(release.session))
        if release.answers == 1 and is_rising(pairs[0]):
            row, handle, session = pairs  # a worker finds no pair twice
        else:
            row, handle, session = distinct_pairs(*pairs, release.size)
        self._collapses = len(release.pair_row) - len(row)
        old = self.done.within(release.batch, release.end)
        if old:
            offset = release.batch + row.astype(np.int64)
            new = ~np.logical_or.reduce([(offset >= a) & (offset < b) for a, b in old])
            row, handle, session = row[new], handle[new], session[new]
        found = self._find_reported(release.batch, release.end)
        reported = [(known.offset, known.handle) for _, known in found]
        if reported:
            new = _find_unreported(release.batch + row.astype(np.int64), handle, reported)
            row, handle, session = row[new], handle[new], session[new]
        return row, handle, session

    def tell(self, offset: I64, handle: I64) -> None:
        """Records that these pairs have been reported, and the rest of their batch has not."""
        reported = ReportedPairs(int(offset.min()), int(offset.max()) + 1, offset, handle)
        insort(self._reported, reported, key=itemgetter(0))
        self._longest_span = max(self._longest_span, reported.stop - reported.first)

    def finish(self, batch: int, end: int) -> None:
        """Records that the objects of this batch are done."""
        self.done.add(batch, end)
        for at, reported in reversed(self._find_reported(batch, end)):
            if self.done.covers(reported.first, reported.stop):
                del self._reported[at]

    def drop(self, release: MatchRelease) -> None:
        """Drops the release of the last `find_new`, which was processed."""
        if self._pending.pop(release.release, None) is not None:
            self.collapsed += self._collapses

    def advance(self, watermark: int, oldest: int = 0) -> None:
        """Drops the dispatcher's batches below this LSN and below the offset `oldest`, which are
        completed or given up; objects below `oldest` count as done."""
        if watermark <= self.watermark and oldest <= self._oldest:
            return
        self.watermark = max(self.watermark, watermark)
        self._oldest = max(self._oldest, oldest)
        self.done.add(0, self._oldest)
        self._reported = [reported for reported in self._reported if reported.stop > self._oldest]
        for number, release in list(self._pending.items()):
            if release.batch < self._oldest or release.lsn < self.watermark:
                del self._pending[number]

    def _find_reported(self, start: int, stop: int) -> list[tuple[int, ReportedPairs]]:
        """Returns the entries of `_reported` that meet start..stop, each with its index."""
        a = bisect_left(self._reported, start - self._longest_span + 1, key=itemgetter(0))
        b = bisect_left(self._reported, stop, key=itemgetter(0))
        return [(at, self._reported[at]) for at in range(a, b) if self._reported[at].stop > start]


def _find_unreported(
    offset: I64, handle: I64, reported: list[tuple[I64, I64]]
) -> np.ndarray[Any, Any]:
    """Returns bool[n]: which of the pairs are none of the reported ones."""
    offsets = np.concatenate([*(o for o, _ in reported), offset])
    handles = np.concatenate([*(h for _, h in reported), handle])
    first = len(offsets) - len(offset)
    order = np.lexsort((np.arange(len(offsets)), handles, offsets))
    o, h = offsets[order], handles[order]
    repeated = np.zeros(len(order), bool)
    repeated[order[1:]] = (o[1:] == o[:-1]) & (h[1:] == h[:-1])
    return ~repeated[first:]
