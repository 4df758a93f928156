"""What was published and what was delivered: latencies, and the sample to verify."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ps2stream.demo.verify import Place, Sample
from ps2stream.protocol.frame import I64


class Published(NamedTuple):
    """An acknowledged record batch; `due` is the monotonic second it was meant to go; NaN: its
    latency does not count."""

    partition: int
    offset: int
    lsn: int
    due: float
    rows: Any


class Tally:
    """Remembers at most `keep` objects, the newest. Safe for several threads."""

    def __init__(self, keep: int) -> None:
        self.delivered: dict[Place, list[str]] = {}
        self.objects = self.matches = 0
        self._keep = keep
        self._kept = 0
        self._sent: deque[Published] = deque()
        self._latency: list[float] = []
        self._early: list[tuple[Place, float]] = []  # delivered before they were acknowledged
        self._lock = threading.Lock()

    def published(self, batch: Published) -> None:
        """A batch was acknowledged."""
        with self._lock:
            self._sent.append(batch)
            self.objects += len(batch.rows)
            self._kept += len(batch.rows)
            early, self._early = self._early, []
            for place, at in early:
                self._timed(place, at)
            while self._kept > self._keep and len(self._sent) > 1:
                old = self._sent.popleft()
                self._kept -= len(old.rows)
                for offset in range(old.offset, old.offset + len(old.rows)):
                    self.delivered.pop((old.partition, offset), None)

    def received(self, place: Place, query_id: str, at: float) -> None:
        """A match came, at this monotonic second."""
        with self._lock:
            self.matches += 1
            self.delivered.setdefault(place, []).append(query_id)
            self._timed(place, at)

    def _timed(self, place: Place, at: float) -> None:
        for batch in reversed(self._sent):
            if batch.partition == place[0] and 0 <= place[1] - batch.offset < len(batch.rows):
                self._latency.append(at - batch.due)
                return
            if batch.partition == place[0] and place[1] >= batch.offset:
                break
        self._early.append((place, at))

    def latency_ms(self) -> dict[str, float]:
        """Percentiles over matches, from the intended send time to the delivery."""
        with self._lock:
            values = np.array(self._latency, np.float64) * 1000.0
        values = values[~np.isnan(values)]
        if not len(values):
            return {}
        found = np.percentile(values, [50, 90, 99, 100])
        return dict(zip(("p50", "p90", "p99", "max"), found.round(2).tolist(), strict=True))

    def sample(self, count: int, random: np.random.Generator) -> list[Sample]:
        """`count` remembered objects: half of them such as were delivered, where there are
        as many, the others from all."""
        starts = np.cumsum([0, *(len(b.rows) for b in self._sent)])
        total = int(starts[-1])
        if not total:
            return []
        hit = self._rows_of(self.delivered, starts)
        some = random.permutation(hit)[: count // 2]
        rest = np.setdiff1d(np.arange(total), some, assume_unique=True)
        rows = np.sort(np.concatenate([some, random.permutation(rest)[: count - len(some)]]))
        batches = np.searchsorted(starts, rows, side="right") - 1
        return [
            _sample(self._sent[b], int(row - starts[b]))
            for row, b in zip(rows, batches, strict=True)
        ]

    def _rows_of(self, places: Iterable[Place], starts: I64) -> I64:
        """Index among the remembered objects of each place that is remembered."""
        index = {
            (batch.partition, batch.offset + i): int(start) + i
            for batch, start in zip(self._sent, starts, strict=False)
            for i in range(len(batch.rows))
        }
        return np.array(sorted(index[p] for p in places if p in index), np.int64)


def _sample(batch: Published, row: int) -> Sample:
    values = {name: batch.rows.column(name)[row].as_py() for name in ("lon", "lat", "text")}
    return Sample((batch.partition, batch.offset + row), batch.lsn, **values)
