"""Exact dedupe (algorithms.md 6.6, 7.10): which batches can be processed, and which are done.

A batch (dispatcher, batch) is processed once, when its Payload and all its workers' answers
of one attempt have been received. While workers are silent, the answers of the others are
processed in part, so that a silent worker delays nobody else's matches; the pairs of these
answers are recorded as reported. Within a batch equal (query, object) pairs collapse into one.
What is done is kept as ranges of offsets, so that a batch that is received again whole, in
halves, or whole after its halves adds no pair twice. Most batches follow on one another, so
their ranges join; batches that no worker matches leave holes until the dispatcher announces that
everything before is done.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ps2stream.merger.intervals import OffsetIntervals
from ps2stream.merger.kernels import distinct_pairs
from ps2stream.protocol.frame import I64, U32
from ps2stream.protocol.messages.objects import BatchContent, MatchBatch

SILENT_TICKS = 2
"""Ticks after which a worker that owes an answer, and has answered no batch, is silent."""
EARLY = 1_024
"""The most batches that are kept without a payload. The oldest are dropped and requested again."""


@dataclasses.dataclass(slots=True)
class MergerPendingBatch:
    """The payload and the workers' answers that were received of one attempt at a batch."""

    attempt: int
    since: int  # tick
    payload: BatchContent | None = None
    answers: dict[int, MatchBatch] = dataclasses.field(default_factory=dict)
    collapsed: int = 0  # pairs that were equal to another one
    fresh: bool = True  # something was received since it was processed in part

    def ready(self, applied: int) -> bool:
        """Tells whether the batch can be processed once all queries up to `applied` are known."""
        p = self.payload
        return p is not None and len(self.answers) >= len(p.worker) and applied >= p.lsn

    def missing_workers(self) -> set[int]:
        """Returns the workers of the payload that have not answered; none without a payload."""
        return set() if self.payload is None else {*self.payload.worker.tolist()} - {*self.answers}

    def pairs(self) -> tuple[U32, I64, I64]:
        """Returns the distinct (row, handle) with their sessions, sorted by row and handle."""
        if self.payload is None:
            raise ValueError("a batch without payload has no pairs yet")
        parts = [a for a in self.answers.values() if len(a.row)]
        if not parts:
            empty = np.zeros(0, np.int64)
            return np.zeros(0, np.uint32), empty, empty
        row = np.concatenate([a.row for a in parts])
        rows = len(self.payload.time)
        if int(row.max()) >= rows:
            raise ValueError(f"a match names row {row.max()} of a batch of {rows}")
        handle = np.concatenate([a.handle for a in parts])
        session = np.concatenate([a.session for a in parts])
        pairs: tuple[U32, I64, I64] = distinct_pairs(row, handle, session, rows)
        self.collapsed = len(row) - len(pairs[0])
        return pairs


class ReportedPairs(NamedTuple):
    """Reported pairs of a batch that is not done, and the range that their offsets span."""

    first: int
    stop: int
    offset: I64
    handle: I64


class DedupWindow:
    """The batches of one dispatcher: pending, done, withdrawn, reported in part."""

    def __init__(self) -> None:
        self.watermark = 0
        self.done = OffsetIntervals()
        self.collapsed = 0  # pairs of done batches that two workers sent
        self._oldest = 0
        self._pending: dict[int, MergerPendingBatch] = {}
        self._early: OrderedDict[int, None] = OrderedDict()  # pending without payload
        self._withdrawn: OrderedDict[int, int] = OrderedDict()  # batch: the last such attempt
        self._reported: list[ReportedPairs] = []  # by `first`
        self._longest_span = 0  # of the ranges in `_reported`
        self._ticks = 0
        self._answered: dict[int, int] = {}  # worker: the tick of its last answer
        self._silent: set[int] = set()
        self._suspects: set[int] = set()  # silent workers that seem to have died

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def in_part(self) -> bool:
        """True if pairs of batches that are not done have been reported."""
        return bool(self._reported)

    def tick(self) -> None:
        """Finds out which workers are silent. Called ten times a second."""
        self._ticks += 1
        before = self._ticks - SILENT_TICKS
        owing = (p.missing_workers() for p in self._pending.values() if p.since <= before)
        silent = set().union(*owing)
        silent = {worker for worker in silent if self._answered.get(worker, 0) <= before}
        self._silent = silent | self._suspects

    def suspect_worker(self, worker: int) -> None:
        """Counts a worker that seems to have died as silent, until it answers again."""
        self._suspects.add(worker)
        self._silent.add(worker)

    def payload(self, payload: BatchContent) -> bool:
        """Takes a payload; returns False if its batch is done, as all below the watermark are."""
        end = payload.batch + len(payload.time)
        if payload.lsn < self.watermark or self.done.covers(payload.batch, end):
            self._drop_pending(payload.batch)
            return False
        if (pending := self._ensure_pending(payload.batch, payload.attempt)) is not None:
            pending.payload, pending.fresh = payload, True
            self._early.pop(payload.batch, None)
        return True

    def answer(self, matches: MatchBatch) -> None:
        """Keeps the first answer of each worker. If the batch's first object is done, the answer
        is kept only where the batch is pending already."""
        self._answered[matches.worker] = self._ticks
        self._silent.discard(matches.worker)
        self._suspects.discard(matches.worker)
        if matches.batch in self._pending or not self.done.covers(matches.batch, matches.batch):
            pending = self._ensure_pending(matches.batch, matches.attempt)
            if pending is not None:
                pending.answers.setdefault(matches.worker, matches)
                pending.fresh = True

    def withdraw(self, batch: int, attempt: int) -> None:
        """Drops what was received of the attempts up to this one, which will not be completed,
        and ignores what is still received of them."""
        pending = self._pending.get(batch)
        if pending is not None and pending.attempt <= attempt:
            self._drop_pending(batch)
        self._withdrawn[batch] = max(attempt, self._withdrawn.pop(batch, 0))
        if len(self._withdrawn) > EARLY:
            self._withdrawn.popitem(last=False)

    def ready(self, applied: int, batch: int | None = None) -> list[BatchContent]:
        """Returns the payloads that can be processed, in batch order: of all batches or of one."""
        return self._select_payloads(lambda pending: pending.ready(applied), batch)

    def ready_in_part(self, applied: int, batch: int | None = None) -> list[BatchContent]:
        """Returns the payloads that lack only silent workers' answers and have something new."""
        if not self._silent:
            return []

        def lacks_silent_alone(pending: MergerPendingBatch) -> bool:
            p = pending.payload
            due = pending.fresh and p is not None and applied >= p.lsn
            return due and not pending.ready(applied) and pending.missing_workers() <= self._silent

        return self._select_payloads(lacks_silent_alone, batch)

    def _select_payloads(
        self, test: Callable[[MergerPendingBatch], bool], batch: int | None
    ) -> list[BatchContent]:
        batches = sorted(self._pending) if batch is None else [batch]
        found = (self._pending.get(number) for number in batches)
        return [p.payload for p in found if p is not None and p.payload and test(p)]

    def pairs(self, payload: BatchContent) -> tuple[U32, I64, I64]:
        """Returns the rows, handles and sessions of a batch's pairs, sorted by row and handle,
        without pairs that were reported and those of objects that are done."""
        row, handle, session = self._pending[payload.batch].pairs()
        old = self.done.within(payload.batch, payload.batch + len(payload.time))
        if old:
            offset = payload.batch + row.astype(np.int64)
            new = ~np.logical_or.reduce([(offset >= a) & (offset < b) for a, b in old])
            row, handle, session = row[new], handle[new], session[new]
        end = payload.batch + len(payload.time)
        reported = [(t.offset, t.handle) for _, t in self._find_reported(payload.batch, end)]
        if reported:
            new = _find_unreported(payload.batch + row.astype(np.int64), handle, reported)
            row, handle, session = row[new], handle[new], session[new]
        return row, handle, session

    def tell(self, offset: I64, handle: I64) -> None:
        """Records that these pairs have been reported, and the rest of their batch has not."""
        reported = ReportedPairs(int(offset.min()), int(offset.max()) + 1, offset, handle)
        insort(self._reported, reported, key=itemgetter(0))
        self._longest_span = max(self._longest_span, reported.stop - reported.first)

    def mark_processed(self, batch: int) -> None:
        """Records that this batch has been processed in part and has nothing new."""
        self._pending[batch].fresh = False

    def finish(self, batch: int, end: int) -> None:
        """Records that the objects of this batch are done."""
        self.done.add(batch, end)
        for at, reported in reversed(self._find_reported(batch, end)):
            if self.done.covers(reported.first, reported.stop):
                del self._reported[at]
        if (pending := self._pending.get(batch)) is not None:
            self.collapsed += pending.collapsed
        self._drop_pending(batch)

    def advance(self, watermark: int, oldest: int = 0) -> None:
        """Drops the dispatcher's batches below this LSN and below the offset `oldest`, which are
        completed or given up; objects below `oldest` count as done."""
        if watermark <= self.watermark and oldest <= self._oldest:
            return
        self.watermark = max(self.watermark, watermark)
        self._oldest = max(self._oldest, oldest)
        self.done.add(0, self._oldest)
        self._reported = [reported for reported in self._reported if reported.stop > self._oldest]
        for batch, pending in list(self._pending.items()):
            payload = pending.payload
            if batch < self._oldest or (payload is not None and payload.lsn < self.watermark):
                self._drop_pending(batch)

    def _find_reported(self, start: int, stop: int) -> list[tuple[int, ReportedPairs]]:
        """Returns the entries of `_reported` that meet start..stop, each with its index."""
        a = bisect_left(self._reported, start - self._longest_span + 1, key=itemgetter(0))
        b = bisect_left(self._reported, stop, key=itemgetter(0))
        return [(at, self._reported[at]) for at in range(a, b) if self._reported[at].stop > start]

    def _ensure_pending(self, batch: int, attempt: int) -> MergerPendingBatch | None:
        """Returns the batch's Pending of this attempt, None if the attempt is a former one."""
        if attempt <= self._withdrawn.get(batch, -1):
            return None
        pending = self._pending.get(batch)
        if pending is None or attempt > pending.attempt:
            pending = self._pending[batch] = MergerPendingBatch(attempt, self._ticks)
            self._early[batch] = None
            if len(self._early) > EARLY:
                self._drop_pending(next(iter(self._early)))
        return pending if attempt == pending.attempt else None

    def _drop_pending(self, batch: int) -> None:
        self._pending.pop(batch, None)
        self._early.pop(batch, None)


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
