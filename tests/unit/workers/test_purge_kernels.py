"""GI2 forgets what is deleted, all of it and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import U64
from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers import layout
from ps2stream.workers import purge_kernels as kd
from ps2stream.workers.indexes import IndexFactory
from ps2stream.workers.layout import BUCKET
from tests.support.postings import (
    GRID,
    Query,
    cell_of,
    check,
    columns,
    objects,
    plain_queries,
    random_query,
)


@pytest.mark.parametrize("seed", range(3))
def test_every_handle_is_found_again_until_it_is_deleted(
    seed: int, new_index: IndexFactory
) -> None:
    """Handles collide in the table of places; a delete must not hide the ones behind it."""
    rng = np.random.default_rng(seed)
    index, live, lsn = new_index(GRID), set[int](), 10**6
    for round_ in range(12):
        new = rng.choice(np.arange(1, 10**5), 800, replace=False).tolist()
        queries = plain_queries(rng, [h * 16 + round_ for h in new])
        index.insert(*columns(queries))
        live |= {q.handle for q in queries}
        gone = rng.permutation(sorted(live))[: len(live) * 3 // 4]
        lsns = lsn + rng.permutation(len(gone)) + 1  # in no order
        index.delete(gone, lsns)
        live -= set(gone.tolist())
        assert index.stats().live == len(live)
        index.purge(lsn + 100)
        index.sweep(1 << 20)
        assert index.stats().tombstones == len(gone) - 100
        lsn += len(gone)
        index.purge(lsn)
        index.sweep(1 << 20)
        assert index.stats()[:3] == (len(live), 0, len(live))
    index.delete(np.array(sorted(live)), np.full(len(live), lsn + 1))
    assert index.stats().live == 0


@pytest.mark.parametrize("seed", range(3))
def test_every_list_is_found_again_until_it_is_empty(seed: int, new_index: IndexFactory) -> None:
    """Tags fill the table of lists to its limit; a list that goes must not hide another."""
    rng = np.random.default_rng(seed)
    index, box = new_index(GRID), (1.0, 1.0, 2.0, 2.0)
    cell = cell_of(1.5, 1.5, 0)
    terms = np.unique(rng.integers(1, 2**64, 2_000, np.uint64))
    queries = [
        Query(i + 1, ExpressionForm.ALL, [t], 1, [box], rect=box, tags={(cell, t)})
        for i, t in enumerate(terms.tolist())
    ]
    index.insert(*columns(queries))
    lsn = len(queries)
    alive = np.ones(len(queries), bool)
    point = np.array([1.5]), np.array([1.5]), np.array([0, len(terms)])
    while alive.any():
        going = np.flatnonzero(alive & (rng.random(len(alive)) < 0.4)) + 1
        lsn += 1
        index.delete(going, np.full(len(going), lsn))
        index.purge(lsn)
        while index.sweep(137) or index.stats().tombstones:
            pass
        alive[going - 1] = False
        found = index.match(lsn, *point, terms)
        assert sorted(found.handle.tolist()) == (np.flatnonzero(alive) + 1).tolist()
        assert index.stats()[:3] == (alive.sum(), 0, alive.sum())


@pytest.mark.parametrize("seed", range(4))
def test_a_tag_that_goes_hides_no_other(seed: int) -> None:
    """Buckets overflow into the next, also over the end of the table."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        size = int(rng.integers(2, 9))
        table = np.zeros((size, 2 * BUCKET), np.uint64)
        held: list[tuple[int, int]] = []
        for run in range(1, size * BUCKET):  # one place stays empty
            key, cell = int(rng.integers(2**64, dtype=np.uint64)), run
            at, word = find(table, key, cell)
            assert word == 0
            column = int(np.count_nonzero(table[at, BUCKET:]))
            table[at, column], table[at, BUCKET + column] = key, cell << 32 | run
            held.append((key, cell))
        while held:
            key, cell = held.pop(int(rng.integers(len(held))))
            at, word = find(table, key, cell)
            column = int(np.flatnonzero(table[at, BUCKET:] == word)[0])
            kd.remove_tag(table, at, column)
            assert all(find(table, *tag)[1] == tag[1] << 32 | tag[1] for tag in held)
            assert find(table, key, cell)[1] == 0
        assert not table[:, BUCKET:].any()


def find(table: U64, key: int, cell: int) -> tuple[int, int]:
    """(bucket, word) of a tag as the index finds it, from its home on."""
    at, size = int(layout.home(np.uint64(key), np.uint64(cell), len(table))), len(table)
    for _ in range(size):
        here = [
            int(w)
            for k, w in zip(table[at, :BUCKET], table[at, BUCKET:], strict=True)
            if k == key and int(w) >> 32 == cell
        ]
        if here or not table[at, -1]:
            return at, here[0] if here else 0
        at = (at + 1) % size
    raise AssertionError("no bucket with room")


@pytest.mark.takes_turns
def test_slots_are_reused_but_old_postings_stay_dead(new_index: IndexFactory) -> None:
    index, rng = new_index(GRID), np.random.default_rng(3)
    held = 0
    for round_ in range(60):
        queries = [random_query(rng, round_ * 1000 + i + 1) for i in range(100)]
        index.insert(*columns(queries))
        lsn = round_ * 1000 + 500
        check(index, queries, lsn, objects(rng, 5))
        index.delete(np.array([q.handle for q in queries], np.int64), np.full(100, lsn, np.int64))
        index.purge(lsn)
        index.sweep(1 << 20)
        assert index.stats().live == index.stats().tombstones == 0
        held = held if round_ > 10 else index.stats().bytes
    assert index.stats().bytes <= 1.3 * held
