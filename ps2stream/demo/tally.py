"""A record of what was published and delivered: latencies, and the sample to verify."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ps2stream.demo.verify import Place, SampledObject
from ps2stream.protocol.frame import I64


class PublishedBatch(NamedTuple):
    """An acknowledged record batch. `due` is the monotonic second at which it was to be sent; NaN:
    its latency does not count."""

    partition: int
    offset: int
    lsn: int
    due: float
    rows: Any


class DeliveryTally:
    """Counts objects and matches, and keeps the newest `keep` objects with their deliveries. Safe
    for several threads."""

    def __init__(self, keep: int) -> None:
        self.delivered: dict[Place, list[str]] = {}
        self.objects = self.matches = 0
        self._keep = keep
        self._kept = 0
        self._sent: deque[PublishedBatch] = deque()
        self._latency: list[float] = []
        self._early: list[tuple[Place, float]] = []  # delivered before they were acknowledged
        self._lock = threading.Lock()

    def published(self, batch: PublishedBatch) -> None:
        """Records an acknowledged batch."""
        with self._lock:
            self._sent.append(batch)
            self.objects += len(batch.rows)
            self._kept += len(batch.rows)
            early, self._early = self._early, []
            for place, at in early:
                self._record_latency(place, at)
            while self._kept > self._keep and len(self._sent) > 1:
                old = self._sent.popleft()
                self._kept -= len(old.rows)
                for offset in range(old.offset, old.offset + len(old.rows)):
                    self.delivered.pop((old.partition, offset), None)

    def received(self, place: Place, query_id: str, at: float) -> None:
        """Records a match that was received at this monotonic second."""
        with self._lock:
            self.matches += 1
            self.delivered.setdefault(place, []).append(query_id)
            self._record_latency(place, at)

    def _record_latency(self, place: Place, at: float) -> None:
        for batch in reversed(self._sent):
            if batch.partition == place[0] and 0 <= place[1] - batch.offset < len(batch.rows):
                self._latency.append(at - batch.due)
                return
            if batch.partition == place[0] and place[1] >= batch.offset:
                break
        self._early.append((place, at))

    def latency_ms(self) -> dict[str, float]:
        """Returns percentiles of the milliseconds from the intended send time of an object to the
        delivery of a match."""
        with self._lock:
            values = np.array(self._latency, np.float64) * 1000.0
        values = values[~np.isnan(values)]
        if not len(values):
            return {}
        found = np.percentile(values, [50, 90, 99, 100])
        return dict(zip(("p50", "p90", "p99", "max"), found.round(2).tolist(), strict=True))

    def sample(self, count: int, random: np.random.Generator) -> list[SampledObject]:
        """Draws `count` of the objects that are kept: half of them from those with a delivery, as
        far as there are so many, the others from all."""
        starts = np.cumsum([0, *(len(b.rows) for b in self._sent)])
        total = int(starts[-1])
        if not total:
            return []
        hit = self._find_rows(self.delivered, starts)
        some = random.permutation(hit)[: count // 2]
        rest = np.setdiff1d(np.arange(total), some, assume_unique=True)
        rows = np.sort(np.concatenate([some, random.permutation(rest)[: count - len(some)]]))
        batches = np.searchsorted(starts, rows, side="right") - 1
        return [
            _make_sample(self._sent[b], int(row - starts[b]))
            for row, b in zip(rows, batches, strict=True)
        ]

    def _find_rows(self, places: Iterable[Place], starts: I64) -> I64:
        """Returns the ascending indexes, among the objects that are kept, of the given places."""
        index = {
            (batch.partition, batch.offset + i): int(start) + i
            for batch, start in zip(self._sent, starts, strict=False)
            for i in range(len(batch.rows))
        }
        return np.array(sorted(index[p] for p in places if p in index), np.int64)


def _make_sample(batch: PublishedBatch, row: int) -> SampledObject:
    values = {name: batch.rows.column(name)[row].as_py() for name in ("lon", "lat", "text")}
    return SampledObject((batch.partition, batch.offset + row), batch.lsn, **values)
