"""An index that goes on from a snapshot is the one that it was taken of."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from ps2stream.protocol.rows import NEVER
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import Parts
from tests.support.postings import GRID, Query, check, columns, objects, random_query


class History:
    """Queries that come and go; what was done since a snapshot is done again on a copy."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.queries: list[Query] = []
        self.live: list[Query] = []
        self.lsn = 0
        self.watermark = 0

    def step(self, *indexes: GI2) -> None:
        rng = self.rng
        new = [random_query(rng, self.lsn + i + 1) for i in range(int(rng.integers(0, 30)))]
        self.lsn += len(new)
        self.queries += new
        self.live += new
        gone = [q for q in self.live if rng.random() < 0.25]
        for q in gone:
            self.lsn += 1
            q.deleted = self.lsn
        self.live = [q for q in self.live if q.deleted == NEVER]
        if rng.random() < 0.6:
            self.watermark = int(rng.integers(self.watermark, self.lsn + 1))
        budget = int(rng.integers(0, 300))
        handles = np.array([q.handle for q in gone] + [10**12], np.int64)
        lsns = np.array([q.deleted for q in gone] + [self.lsn], np.int64)
        for index in indexes:
            index.insert(*columns(new))
            index.delete(handles, lsns)
            index.purge(self.watermark)
            index.sweep(budget)

    def match(self, index: GI2, *copies: GI2) -> int:
        as_of = int(self.rng.integers(self.watermark, self.lsn + 1))
        some = objects(self.rng, 15)
        return check(index, self.queries, as_of, some, *copies)


def copied(parts: Parts) -> dict[str, np.ndarray]:
    return {name: np.array(part) for name, part in parts.items()}


@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_and_what_followed_equal_the_original(seed: int) -> None:
    history, index = History(seed), GI2(GRID)
    copies: deque[GI2] = deque(maxlen=2)
    pairs = 0
    for _ in range(30):
        history.step(index, *copies)
        pairs += history.match(index, *copies)
        for copy in copies:
            assert copy.stats()[:2] == index.stats()[:2]
        if history.rng.random() < 0.4:
            copies.append(GI2(GRID, copied(index.hold())))
            index.release()
    assert pairs > 100
    watermark = history.lsn + 1
    handles = np.array([q.handle for q in history.live], np.int64)
    for each in (index, *copies):
        each.delete(handles, np.full(len(handles), watermark, np.int64))
        each.purge(watermark)
        while each.sweep(1 << 20):
            pass
        assert each.stats()[:3] == (0, 0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_while_it_is_held_objects_are_matched_and_nothing_changes(seed: int) -> None:
    history, index = History(seed), GI2(GRID)
    pairs = 0
    for _ in range(12):
        history.step(index)
        parts = index.hold()
        before = copied(parts)
        history.watermark = history.lsn  # everything that was deleted may go, but not now
        for _ in range(3):
            index.purge(history.watermark)
            assert index.sweep(1 << 20) == 0
            pairs += history.match(index)
        assert all(parts[name].tobytes() == before[name].tobytes() for name in parts)
        index.release()
        index.purge(history.watermark)
        index.sweep(1 << 20)
        history.match(index)
        assert index.stats().tombstones == 0
    assert pairs > 30


def test_an_empty_one_begins_anew() -> None:
    index = GI2(GRID, copied(GI2(GRID).hold()))
    assert index.stats()[:3] == (0, 0, 0)
    history = History(3)
    history.step(index)
    history.match(index)
