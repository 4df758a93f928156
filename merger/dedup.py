"""Exact dedupe (algorithms.md 6.6, 7.10): which batches are whole, which are done.

A batch (dispatcher, batch) is processed once, when its Payload and all its workers' answers
of one attempt are there. While workers are silent, what the others answered is processed in
part, so that they hold up nobody else's matches; those pairs are told. Within a batch equal
(query, object) pairs collapse. Done are ranges of offsets, so that a batch which comes again
whole, in halves, or whole after its halves, brings nothing twice. Most batches follow on one
another, so that the ranges join; those that nobody wants leave holes until the dispatcher
says that all before is done.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ps2stream.merger.intervals import Intervals
from ps2stream.merger.kernels import distinct_pairs
from ps2stream.protocol.frame import I64, U32
from ps2stream.protocol.messages.objects import MatchBatch, Payload

SILENT_TICKS = 2
"""Ticks after which a worker that owes an answer and has given none of any batch is silent."""
EARLY = 1_024  # batches of which answers alone are kept; the oldest go, and are asked for again


@dataclasses.dataclass(slots=True)
class Pending:
    """What has come of one attempt at a batch: its payload, each worker's answer."""

    attempt: int
    since: int  # tick
    payload: Payload | None = None
    answers: dict[int, MatchBatch] = dataclasses.field(default_factory=dict)
    collapsed: int = 0  # pairs that were equal to others
    fresh: bool = True  # something has come since it was processed in part

    def ready(self, applied: int) -> bool:
        """Whether it can be processed by one who knows all queries up to `applied`."""
        p = self.payload
        return p is not None and len(self.answers) >= len(p.worker) and applied >= p.lsn

    def missing(self) -> set[int]:
        """The workers that have not answered, as far as the payload tells."""
        return set() if self.payload is None else {*self.payload.worker.tolist()} - {*self.answers}

    def pairs(self) -> tuple[U32, I64, I64]:
        """The distinct (row, handle), each with its session, sorted so."""
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


class Told(NamedTuple):
    """Pairs whose batch is not done, and the range that their offsets span."""

    first: int
    stop: int
    offset: I64
    handle: I64


class Window:
    """The batches of one dispatcher: pending, done, withdrawn, told in part."""

    def __init__(self) -> None:
        self.watermark = 0
        self.done = Intervals()
        self.collapsed = 0  # pairs of batches that are done, which came from two workers
        self._oldest = 0
        self._pending: dict[int, Pending] = {}
        self._early: OrderedDict[int, None] = OrderedDict()  # pending without payload
        self._withdrawn: OrderedDict[int, int] = OrderedDict()  # batch: attempts up to this
        self._told: list[Told] = []  # by `first`
        self._longest = 0  # of their ranges
        self._ticks = 0
        self._heard: dict[int, int] = {}  # worker: tick
        self._silent: set[int] = set()
        self._lost: set[int] = set()  # of them those that have died, as far as is known

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def in_part(self) -> bool:
        """Whether batches that are not done have been told in part."""
        return bool(self._told)

    def tick(self) -> None:
        """Which workers are silent."""
        self._ticks += 1
        before = self._ticks - SILENT_TICKS
        owing = (p.missing() for p in self._pending.values() if p.since <= before)
        silent = set().union(*owing)
        silent = {worker for worker in silent if self._heard.get(worker, 0) <= before}
        self._silent = silent | self._lost

    def lose(self, worker: int) -> None:
        """This worker has died, as it seems: until it is heard again it is silent."""
        self._lost.add(worker)
        self._silent.add(worker)

    def payload(self, payload: Payload) -> bool:
        """Take it, unless the batch is done: then False. LSNs below the watermark are."""
        end = payload.batch + len(payload.time)
        if payload.lsn < self.watermark or self.done.covers(payload.batch, end):
            self._drop(payload.batch)
            return False
        if (pending := self._open(payload.batch, payload.attempt)) is not None:
            pending.payload, pending.fresh = payload, True
            self._early.pop(payload.batch, None)
        return True

    def answer(self, matches: MatchBatch) -> None:
        """Keeps the first answer of each worker. Where its first object is done, a batch is
        open if its payload says so."""
        self._heard[matches.worker] = self._ticks
        self._silent.discard(matches.worker)
        self._lost.discard(matches.worker)
        if matches.batch in self._pending or not self.done.covers(matches.batch, matches.batch):
            pending = self._open(matches.batch, matches.attempt)
            if pending is not None:
                pending.answers.setdefault(matches.worker, matches)
                pending.fresh = True

    def withdraw(self, batch: int, attempt: int) -> None:
        """The attempts up to this one will not be completed: what came of them goes, and what
        still comes."""
        pending = self._pending.get(batch)
        if pending is not None and pending.attempt <= attempt:
            self._drop(batch)
        self._withdrawn[batch] = max(attempt, self._withdrawn.pop(batch, 0))
        if len(self._withdrawn) > EARLY:
            self._withdrawn.popitem(last=False)

    def ready(self, applied: int, batch: int | None = None) -> list[Payload]:
        """What can be processed, in batch order: of all, or of one batch."""
        return self._which(lambda pending: pending.ready(applied), batch)

    def partial(self, applied: int, batch: int | None = None) -> list[Payload]:
        """What lacks the answers of silent workers alone, and has something new."""
        if not self._silent:
            return []

        def partial(pending: Pending) -> bool:
            p = pending.payload
            due = pending.fresh and p is not None and applied >= p.lsn
            return due and not pending.ready(applied) and pending.missing() <= self._silent

        return self._which(partial, batch)

    def _which(self, test: Callable[[Pending], bool], batch: int | None) -> list[Payload]:
        asked = sorted(self._pending) if batch is None else [batch]
        found = (self._pending.get(number) for number in asked)
        return [p.payload for p in found if p is not None and p.payload and test(p)]

    def pairs(self, payload: Payload) -> tuple[U32, I64, I64]:
        """The pairs of a batch, sorted by row and handle: rows, handles, sessions; those alone
        that are not told and whose objects are not done."""
        row, handle, session = self._pending[payload.batch].pairs()
        old = self.done.within(payload.batch, payload.batch + len(payload.time))
        if old:
            offset = payload.batch + row.astype(np.int64)
            new = ~np.logical_or.reduce([(offset >= a) & (offset < b) for a, b in old])
            row, handle, session = row[new], handle[new], session[new]
        end = payload.batch + len(payload.time)
        told = [(t.offset, t.handle) for _, t in self._met(payload.batch, end)]
        if told:
            new = _others(payload.batch + row.astype(np.int64), handle, told)
            row, handle, session = row[new], handle[new], session[new]
        return row, handle, session

    def tell(self, offset: I64, handle: I64) -> None:
        """These pairs are told; the rest of their batch is not."""
        told = Told(int(offset.min()), int(offset.max()) + 1, offset, handle)
        insort(self._told, told, key=itemgetter(0))
        self._longest = max(self._longest, told.stop - told.first)

    def wait(self, batch: int) -> None:
        """This batch has been processed in part."""
        self._pending[batch].fresh = False

    def finish(self, batch: int, end: int) -> None:
        """The objects of this batch are done."""
        self.done.add(batch, end)
        for at, told in reversed(self._met(batch, end)):
            if self.done.covers(told.first, told.stop):
                del self._told[at]
        if (pending := self._pending.get(batch)) is not None:
            self.collapsed += pending.collapsed
        self._drop(batch)

    def advance(self, watermark: int, oldest: int = 0) -> None:
        """The dispatcher's batches below this LSN, and those below offset `oldest`, are done or
        given up."""
        if watermark <= self.watermark and oldest <= self._oldest:
            return
        self.watermark = max(self.watermark, watermark)
        self._oldest = max(self._oldest, oldest)
        self.done.add(0, self._oldest)
        self._told = [told for told in self._told if told.stop > self._oldest]
        for batch, pending in list(self._pending.items()):
            payload = pending.payload
            if batch < self._oldest or (payload is not None and payload.lsn < self.watermark):
                self._drop(batch)

    def _met(self, start: int, stop: int) -> list[tuple[int, Told]]:
        """What was told of start..stop, with its places."""
        a = bisect_left(self._told, start - self._longest + 1, key=itemgetter(0))
        b = bisect_left(self._told, stop, key=itemgetter(0))
        return [(at, self._told[at]) for at in range(a, b) if self._told[at].stop > start]

    def _open(self, batch: int, attempt: int) -> Pending | None:
        """The batch's Pending of this attempt, or none when it is one of the past."""
        if attempt <= self._withdrawn.get(batch, -1):
            return None
        pending = self._pending.get(batch)
        if pending is None or attempt > pending.attempt:
            pending = self._pending[batch] = Pending(attempt, self._ticks)
            self._early[batch] = None
            if len(self._early) > EARLY:
                self._drop(next(iter(self._early)))
        return pending if attempt == pending.attempt else None

    def _drop(self, batch: int) -> None:
        self._pending.pop(batch, None)
        self._early.pop(batch, None)


def _others(offset: I64, handle: I64, told: list[tuple[I64, I64]]) -> np.ndarray[Any, Any]:
    """bool[n]: which of the pairs are none of those told."""
    offsets = np.concatenate([*(o for o, _ in told), offset])
    handles = np.concatenate([*(h for _, h in told), handle])
    first = len(offsets) - len(offset)
    order = np.lexsort((np.arange(len(offsets)), handles, offsets))
    o, h = offsets[order], handles[order]
    repeated = np.zeros(len(order), bool)
    repeated[order[1:]] = (o[1:] == o[:-1]) & (h[1:] == h[:-1])
    return ~repeated[first:]
