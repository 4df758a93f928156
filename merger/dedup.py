"""Exact dedupe (algorithms.md 6.6, 7.10): which batches are whole, which are done.

A batch (dispatcher, batch) is processed once, when its Payload and `expected` workers'
answers are there. Within it equal (query, object) pairs collapse. Afterwards it is
remembered until the dispatcher's watermark has passed its LSN; then the highest such
batch number stands for all of them, because a dispatcher's LSNs rise with its batches.
Where no watermark rises, the oldest done batches are forgotten without that: a repeat of
one would be delivered again, but a batch that is merely late is never taken for done.
"""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np

from ps2stream.batch import I64, U32
from ps2stream.merger.kernels import distinct_pairs
from ps2stream.messages import MatchBatch, Payload

WINDOW = 65_536  # done batches remembered at most, a dispatcher


@dataclasses.dataclass(slots=True)
class Pending:
    """What has come of one batch: its payload, each worker's answer."""

    payload: Payload | None = None
    answers: dict[int, MatchBatch] = dataclasses.field(default_factory=dict)

    def ready(self, applied: int) -> bool:
        """Whether it can be processed by one who knows all queries up to `applied`."""
        p = self.payload
        return p is not None and len(self.answers) >= p.expected and applied >= p.lsn

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
        return pairs


class Window:
    """The batches of one dispatcher: pending, done, forgotten."""

    def __init__(self, size: int = WINDOW) -> None:
        self.watermark = 0
        self._size = size
        self._floor = -1  # every batch up to here is done
        self._pending: dict[int, Pending] = {}
        self._done: set[int] = set()
        self._order: deque[tuple[int, int]] = deque()  # (lsn, batch) of those in _done

    def __len__(self) -> int:
        return len(self._pending)

    def remembered(self) -> int:
        """The number of done batches that are remembered one by one."""
        return len(self._done)

    def payload(self, payload: Payload) -> None:
        if (pending := self._open(payload.batch)) is not None:
            pending.payload = payload

    def answer(self, matches: MatchBatch) -> None:
        """Keeps the first answer of each worker."""
        if (pending := self._open(matches.batch)) is not None:
            pending.answers.setdefault(matches.worker, matches)

    def ready(self, applied: int, batch: int | None = None) -> list[Pending]:
        """Take out what can be processed, in batch order: of all, or of one batch."""
        asked = sorted(self._pending) if batch is None else [batch]
        out = []
        for number in asked:
            pending = self._pending.get(number)
            if pending is None or pending.payload is None or not pending.ready(applied):
                continue
            del self._pending[number]
            self._done.add(number)
            self._order.append((pending.payload.lsn, number))
            out.append(pending)
        while len(self._order) > self._size:
            self._forget()
        return out

    def advance(self, watermark: int) -> None:
        """The dispatcher will send nothing below this LSN, and all below it is done."""
        self.watermark = max(self.watermark, watermark)
        before = self._floor
        while self._order and self._order[0][0] < self.watermark:
            self._floor = max(self._floor, self._forget())
        if self._floor > before:  # what still waits below it are repeats
            self._pending = {b: p for b, p in self._pending.items() if b > self._floor}

    def _open(self, batch: int) -> Pending | None:
        pending = self._pending.get(batch)
        if pending is None and batch > self._floor and batch not in self._done:
            pending = self._pending[batch] = Pending()
        return pending

    def _forget(self) -> int:
        _, batch = self._order.popleft()
        self._done.discard(batch)
        return batch
