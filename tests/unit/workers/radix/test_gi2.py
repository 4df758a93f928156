"""The radix GI2 beside the flat one and brute force, where trees are deep and leaves long."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.protocol.rows import NEVER
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2
from tests.support.crowds import GRID, TERMS, Crowd, brute_force, draw_crowd, draw_objects, pairs_of


@pytest.mark.takes_turns
@pytest.mark.parametrize(
    ("seed", "spread", "side", "alike"),
    [(1, 1.0, 0.2, 0.0), (2, 0.02, 0.01, 0.3), (3, 5.0, 3.0, 0.9), (4, 0.0, 0.0, 0.9),
     (5, 0.3, 0.0, 0.0), (6, 1.0, 0.2, 0.99)],
)  # fmt: skip
def test_both_equal_brute_force_while_crowds_come_and_go(
    seed: int, spread: float, side: float, alike: float
) -> None:
    """`alike`: the share of the queries that are like one of thirty others."""
    rng = np.random.default_rng(seed)
    crowd = draw_crowd(rng, 3000, spread, side)
    like = np.where(rng.random(3000) < alike, rng.integers(0, 30, 3000), np.arange(3000))
    crowd = dataclasses.replace(
        crowd, rect=crowd.rect[like], term=crowd.term[like], every=crowd.every[like]
    )
    indexes = RadixGI2(GRID), GI2(GRID)
    pairs = lsn = watermark = 0
    for last in range(500, 3001, 500):
        for index in indexes:
            index.insert(*crowd.rows(last - 500, last))
        going = np.flatnonzero((crowd.lsns[:last, 1] == NEVER) & (rng.random(last) < 0.3))
        lsn = max(lsn, last) + 1000
        crowd.lsns[going, 1] = lsn
        for index in indexes:
            index.delete(crowd.lsns[going, 0], crowd.lsns[going, 1])
            index.purge(watermark)
            index.sweep(int(rng.integers(1, 20_000)))
        for as_of in (lsn - 1, lsn):
            objects, has = draw_objects(rng, crowd, 150)
            want = brute_force(crowd.first(last), as_of, objects, has)
            for index in indexes:
                assert pairs_of(index.match(as_of, *objects)) == want
            pairs += len(want)
        watermark = lsn - 500
    assert pairs > 1000
    radix = indexes[0]
    assert radix._state[layout.SHARED] > 5 or not alike
    rest = np.flatnonzero(crowd.lsns[:, 1] == NEVER)
    radix.delete(crowd.lsns[rest, 0], np.full(len(rest), lsn))
    radix.purge(lsn)
    while radix.sweep(1 << 12):
        pass
    assert radix.stats()[:3] == (0, 0, 0)
    assert_nothing_leaks(radix)


def assert_nothing_leaks(index: RadixGI2) -> None:
    """All nodes and blocks that were ever taken are free, each once."""
    state, arrays = index._state, index._arrays
    assert state[layout.SHARED] == 0
    entries = 0
    for cls in range(7):
        at = int(state[layout.HOLDER_FREE + cls])
        while at:
            entries += 1 << cls
            at = int(arrays.holders[2 * at])
    assert entries == state[layout.HOLDER_TOP] - 64
    assert not (arrays.directory[:, layout.ENTRIES :] & layout.LOW).any()
    for memory, free, sizes, taken in (
        (
            arrays.nodes,
            arrays.node_free,
            layout.BLOCK_WORDS,
            state[layout.NODE_TOP] - 1 - state[layout.NODE_GAPS],
        ),
        (
            arrays.pool,
            arrays.pool_free,
            layout.POOL_UNIT << np.arange(48),
            state[layout.POOL_TOP] - layout.POOL_UNIT,
        ),
    ):
        words = 0
        for cls, first in enumerate(free.tolist()):
            at = first
            while at:
                words += int(sizes[cls])
                at = int(memory[at])
        assert words == taken


def test_a_thousand_alternatives_and_a_long_expression() -> None:
    """A thousand queries that are each an OR of two of six terms, at one point."""
    rng = np.random.default_rng(9)
    n = 1000
    crowd = draw_crowd(rng, n, 0.0, 0.0)
    crowd = dataclasses.replace(crowd, every=np.zeros(n, bool))
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, n))
    objects, has = draw_objects(rng, crowd, 60)
    assert pairs_of(index.match(n, *objects)) == brute_force(crowd, n, objects, has)


def test_sixty_thousand_matches_of_one_object_are_all_found() -> None:
    """More matches than there is room for, and more candidates than are verified at once."""
    n = 60_000
    term = np.zeros((n, 2), np.uint8)
    rect = np.tile([1.0, 1.0, 2.0, 2.0], (n, 1))
    lsns = np.stack([np.arange(1, n + 1), np.full(n, NEVER)], 1)
    crowd = Crowd(rect, term, np.ones(n, bool), lsns)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, n))
    lon, lat = np.array([1.5, 2.0]), np.array([1.5, 1.0])
    both = lon, lat, np.array([0, 6, 12]), np.tile(TERMS, 2)
    found = index.match(n, *both)
    assert len(found.row) == 2 * n
    assert len(set(pairs_of(found))) == 2 * n


def test_terms_that_share_their_place_in_the_directory_are_told_apart() -> None:
    """Terms that differ in single bits, and zero: a directory that compared a part of a term
    would find one query under the term of another."""
    terms = np.sort(np.r_[np.uint64(0), np.uint64(1) << np.arange(64, dtype=np.uint64)])
    n = len(terms)
    crowd = Crowd(
        np.tile([1.0, 1.0, 2.0, 2.0], (n, 1)),
        np.zeros((n, 2), np.uint8),
        np.ones(n, bool),
        np.stack([np.arange(1, n + 1), np.full(n, NEVER)], 1),
    )
    rows, off, cell, _ = crowd.rows(0, n)
    rows = dataclasses.replace(rows, term=terms)
    index = RadixGI2(GRID)
    index.insert(rows, off, cell, np.repeat(terms, np.diff(off)))
    where = np.full(n, 1.5)
    found = index.match(n, where, where, np.arange(n + 1), terms)
    assert pairs_of(found) == [(i, i + 1) for i in range(n)]
