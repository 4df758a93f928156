"""An index that goes on from a snapshot is the one that it was taken of."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.protocol.rows import NEVER
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.routing.tags import QueryTags
from ps2stream.workers.index import Index, MatchColumns, Parts
from ps2stream.workers.indexes import IndexFactory
from tests.support.postings import GRID, Query, check, columns, draw_query, objects
from tests.support.shortening import choose_first


class History:
    """Queries that come and go; what was done since a snapshot is done again on a copy."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.replacing = np.random.default_rng([seed, 1])
        self.queries: list[Query] = []
        self.live: list[Query] = []
        self.drawn: list[Query] = []
        self.lsn = 0
        self.watermark = 0

    def step(self, *indexes: Index) -> None:
        rng = self.rng
        new = [
            draw_query(rng, self.lsn + i + 1, self.drawn) for i in range(int(rng.integers(0, 30)))
        ]
        self.lsn += len(new)
        replaced = [q for q in self.live if self.replacing.random() < 0.2][: len(new)]
        for q, other in zip(replaced, new, strict=False):
            q.deleted = other.handle
        self.queries += new
        self.live += new
        gone = [q for q in self.live if q.deleted == NEVER and rng.random() < 0.25]
        for q in gone:
            self.lsn += 1
            q.deleted = self.lsn
        gone += replaced
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

    def match(self, index: Index, *copies: Index) -> int:
        as_of = int(self.rng.integers(self.watermark, self.lsn + 1))
        some = objects(self.rng, 15)
        return check(index, self.queries, as_of, some, *copies)


def copied(parts: Parts) -> dict[str, np.ndarray]:
    return {name: np.array(part) for name, part in parts.items()}


@pytest.mark.parametrize("seed", choose_first(range(12), 4))
def test_a_snapshot_and_what_followed_equal_the_original(
    seed: int, new_index: IndexFactory
) -> None:
    history, index = History(seed), new_index(GRID)
    copies: deque[Index] = deque(maxlen=2)
    pairs = 0
    for _ in range(30):
        history.step(index, *copies)
        pairs += history.match(index, *copies)
        for copy in copies:
            assert copy.stats()[:2] == index.stats()[:2]
        if history.rng.random() < 0.4:
            copies.append(new_index(GRID, copied(index.hold())))
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
def test_while_it_is_held_objects_are_matched_and_nothing_changes(
    seed: int, new_index: IndexFactory
) -> None:
    history, index = History(seed), new_index(GRID)
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


@pytest.mark.parametrize("seed", choose_first(range(12), 4))
def test_with_the_terms_that_a_dispatcher_has_chosen_everything_is_found(
    seed: int, new_index: IndexFactory
) -> None:
    history, index = History(seed), new_index(GRID)
    gridt = Gridt(
        H1(1, np.zeros(GRID.rows() * GRID.columns(), np.uint32), [HashedLeaf((0,))]), GRID
    )
    counted = 0
    held: list[Query] = []  # whom H2 counts
    pairs = unchosen = 0
    for _ in range(30):
        history.step(index)
        new, counted = history.queries[counted:], len(history.queries)
        gridt.insert(tags_of(new))
        held += new
        gridt.retire(tags_of([q for q in held if q.deleted <= history.watermark]))
        held = [q for q in held if q.deleted > history.watermark]
        as_of = int(history.rng.integers(history.watermark, history.lsn + 1))
        some = objects(history.rng, 15)
        want = pairs_of(index.match(as_of, *some))
        found: list[tuple[int, int]] = []
        for share in gridt.route(*some)[0]:
            columns_ = share.lon, share.lat, share.term_off, share.term
            local = pairs_of(index.match(as_of, *columns_, share.chosen))
            found += [(int(share.row[i]), handle) for i, handle in local]
            flags = np.unpackbits(share.chosen, bitorder="little")[: len(share.term)]
            unchosen += int((flags == 0).sum())
        assert sorted(found) == want
        pairs += len(want)
    assert pairs > 100
    assert unchosen > 5


@pytest.mark.parametrize("seed", choose_first(range(12), 4))
def test_under_a_term_that_is_not_chosen_nothing_is_found(
    seed: int, new_index: IndexFactory
) -> None:
    """A query is found under the smallest of its posting terms that the object has, or not at
    all."""
    history, index = History(seed), new_index(GRID)
    rng, pairs, missed = history.rng, 0, 0
    for _ in range(20):
        history.step(index)
        some = _, _, off, term = objects(rng, 15)
        flags = rng.random(len(term)) < 0.6
        chosen = np.packbits(flags, bitorder="little")
        found = pairs_of(index.match(history.lsn, *some, chosen))
        queries = {q.handle: q for q in history.queries}
        want = []
        everything = pairs_of(index.match(history.lsn, *some))
        for row, handle in everything:
            terms = term[off[row] : off[row + 1]].tolist()
            query = queries[handle]
            first = next(t for i, t in enumerate(query.terms) if query.post >> i & 1 and t in terms)
            if flags[off[row] + terms.index(first)]:
                want.append((row, handle))
        assert found == want
        pairs += len(want)
        missed += len(everything) - len(want)
        none = np.zeros(len(chosen), np.uint8)
        assert not len(none) or pairs_of(index.match(history.lsn, *some, none)) == []
    assert pairs > 50
    assert missed > 50


def tags_of(queries: list[Query]) -> QueryTags:
    _, off, cell, term = columns(queries)
    return QueryTags(off, cell, term, np.zeros(len(cell), np.uint16), term)


def pairs_of(found: MatchColumns) -> list[tuple[int, int]]:
    return sorted(zip(found.row.tolist(), found.handle.tolist(), strict=True))


def test_an_empty_one_begins_anew(new_index: IndexFactory) -> None:
    index = new_index(GRID, copied(new_index(GRID).hold()))
    assert index.stats()[:3] == (0, 0, 0)
    history = History(3)
    history.step(index)
    history.match(index)
