"""GI2 against a twin written from the definition, on hostile values."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import Array
from ps2stream.protocol.rows import NEVER, ExpressionForm
from ps2stream.workers.arrays import MatchBuffers
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.indexes import IndexFactory
from tests.support.postings import (
    GRID,
    VOCABULARY,
    Query,
    check,
    columns,
    draw_query,
    objects,
    random_query,
    touched,
)
from tests.support.shortening import choose_first


@pytest.mark.parametrize("seed", choose_first(range(12), 4))
def test_equals_the_definition_while_queries_come_and_go(
    seed: int, new_index: IndexFactory
) -> None:
    rng = np.random.default_rng(seed)
    index, queries, lsn, watermark, pairs = new_index(GRID), [], 0, 0, 0
    history: list[Query] = []
    drawn: list[Query] = []
    for _ in range(25):
        new = [draw_query(rng, lsn + i + 1, drawn) for i in range(int(rng.integers(0, 30)))]
        lsn += len(new)
        index.insert(*columns(new))
        queries += new
        history += new
        gone = [q for q in queries if rng.random() < 0.25]
        for q in gone:
            lsn += 1
            q.deleted = lsn
        queries = [q for q in queries if q.deleted == NEVER]
        index.delete(
            np.array([q.handle for q in gone] + [10**12], np.int64),
            np.array([q.deleted for q in gone] + [lsn], np.int64),
        )
        index.sweep(int(rng.integers(0, 300)))
        as_of = int(rng.integers(watermark, lsn + 1))
        pairs += check(index, history, as_of, objects(rng, 20))
        if rng.random() < 0.6:
            watermark = int(rng.integers(watermark, lsn + 1))
            index.purge(watermark)
        assert index.stats().live == sum(bool(q.tags) for q in queries)
    assert pairs > 100
    index.delete(
        np.array([q.handle for q in queries], np.int64), np.full(len(queries), lsn + 1, np.int64)
    )
    index.purge(lsn + 1)
    while index.sweep(1 << 20):
        pass
    assert index.stats()[:3] == (0, 0, 0)


def test_room_grows_without_losing_a_match(new_index: IndexFactory) -> None:
    queries = [
        Query(
            i + 1, ExpressionForm.ALL, [5], 1, [(-1.0, -1.0, 1.0, 1.0)], rect=(-1.0, -1.0, 1.0, 1.0)
        )
        for i in range(20_000)
    ]
    for q in queries:
        q.tags = {(c, 5) for c in touched(q)}
    index = new_index(GRID)
    index.insert(*columns(queries))
    n = 10
    found = index.match(
        20_000, np.zeros(n), np.zeros(n), np.arange(n + 1), np.full(n, 5, np.uint64)
    )
    assert len(set(zip(found.row.tolist(), found.handle.tolist(), strict=True))) == 20_000 * n
    assert len(found.row) == 20_000 * n


@pytest.mark.parametrize(
    ("lists", "each", "room"), [(1, 4129, 4096), (41, 101, 4096), (4096, 2, 4096), (1, 4090, 8152)]
)
def test_nothing_is_written_beyond_a_full_buffer(lists: int, each: int, room: int) -> None:
    """Candidates, or matches, come to a little more than the buffers hold, in one list or many;
    what lies behind the buffers stays as it was."""
    index = GI2(GRID)
    assert len(index._scratch.cands) == 4096
    terms = np.arange(1, lists + 1, dtype=np.uint64) << np.uint64(32)
    box = (1.0, 1.0, 2.0, 2.0)
    queries = [
        Query(i + 1, ExpressionForm.ALL, [int(terms[i % lists])], 1, [box], rect=box)
        for i in range(lists * each)
    ]
    for q in queries:
        q.tags = {(c, q.terms[0]) for c in touched(q)}
    index.insert(*columns(queries))
    beyond = {}

    def narrow(name: str, old: Array, size: int) -> Array:
        memory = np.full((size + 128, *old.shape[1:]), 99, old.dtype)
        beyond[name] = memory[size:]
        return memory[:size]

    index._scratch = index._scratch._replace(cands=narrow("cands", index._scratch.cands, 4096))
    columns_ = {name: narrow(name, old, room) for name, old in index._buffers._asdict().items()}
    index._buffers = MatchBuffers(**columns_)
    n = 3
    found = index.match(
        len(queries),
        np.full(n, 1.5),
        np.full(n, 1.5),
        np.arange(n + 1) * lists,
        np.tile(terms, n),
    )
    assert len(set(zip(found.row.tolist(), found.handle.tolist(), strict=True))) == len(found.row)
    assert len(found.row) == n * len(queries)
    for name, memory in beyond.items():
        assert (memory == 99).all(), name


def test_ten_thousand_terms_and_empty_batches(new_index: IndexFactory) -> None:
    index, rng = new_index(GRID), np.random.default_rng(1)
    queries = [random_query(rng, i + 1) for i in range(50)]
    empty = (np.zeros(0), np.zeros(0), np.zeros(1, np.int64), np.zeros(0, np.uint64))
    assert len(index.match(9, *empty).row) == 0
    index.insert(*columns([]))
    index.delete(np.zeros(0, np.int64), np.zeros(0, np.int64))
    index.insert(*columns(queries))
    assert len(index.match(50, *empty).row) == 0
    many = np.unique(
        np.concatenate([rng.integers(0, 2**64, 10_000, np.uint64), np.array(VOCABULARY, np.uint64)])
    )
    off = np.array([0, len(many), len(many)], np.int64)
    assert check(index, queries, 50, (np.full(2, 11.25), np.full(2, 11.25), off, many)) > 0


def test_a_repeated_insert_changes_nothing(new_index: IndexFactory) -> None:
    index, rng = new_index(GRID), np.random.default_rng(2)
    queries = [random_query(rng, i + 1) for i in range(40)]
    index.insert(*columns(queries))
    before = index.stats()[:3]
    index.insert(*columns(queries))
    assert index.stats()[:3] == before
    check(index, queries, 40, objects(rng, 30))
