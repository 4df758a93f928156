"""The table of units against a dictionary, and H1 against its definition, tag by tag."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ps2stream.routing import unit_kernels as kernels
from ps2stream.routing.h1 import H1, HashedLeaf, HashedReplica
from ps2stream.routing.unit_kernels import FIRST_GROUP
from tests.support.shards import shard_of

WORD = 2**64
TERMS = [0, 1, 2, 3, 2**32, WORD - 1, 7 << 32]


def mixed(place: int, term: int) -> int:
    """`mix` in Python's integers."""
    h = term ^ place * 0x9E3779B97F4A7C15 % WORD
    h = (h ^ h >> 32) * 0xBF58476D1CE4E5B9 % WORD
    return h ^ h >> 29


def drawn(place: int, term: int, several: int) -> int:
    """One of `several`, by the hash of a unit."""
    return (mixed(place, term) * 0x9E3779B97F4A7C15 % WORD >> 32) * several >> 32


@pytest.mark.parametrize("seed", range(6))
def test_a_table_is_a_dictionary(seed: int) -> None:
    """Full but for one place, with units that differ in one half only; the last of equals wins."""
    rng = np.random.default_rng(seed)
    table, twin = kernels.empty_table(4), dict[tuple[int, int], int]()
    for _ in range(40):
        place, term = int(rng.choice([0, 1, 2**32 - 1])), TERMS[int(rng.integers(len(TERMS)))]
        if (place, term) not in twin and len(twin) == 15:
            continue
        worker = int(rng.integers(1 << 16))
        twin[place, term] = worker
        kernels.fill(
            table,
            np.array([place], np.uint32),
            np.array([term], np.uint64),
            np.array([worker], np.uint16),
        )
    units = [(place, term) for place in (0, 1, 2, 2**32 - 1) for term in TERMS]
    for place, term in units:
        assert kernels.mix(np.uint64(place), np.uint64(term)) == mixed(place, term)
        slot = int(kernels.find(table, np.uint64(place), np.uint64(term)))
        assert (slot >= 0) == ((place, term) in twin)
        if slot >= 0:
            word = place << 32 | twin[place, term] << 16 | 1
            assert table[slot].tolist() == [term, word]
        else:
            assert not table[-1 - slot, 1]
    assert np.count_nonzero(table[:, 1]) == len(twin)


def owner(leaves: list[HashedLeaf], number: int, term: int, workers: int, level: int) -> int:
    """The owner of a unit by the definition of HashedLeaf."""
    if level:
        return drawn(level << 28 | number, term, workers)
    leaf = leaves[number]
    if leaf.term is not None and leaf.owner is not None:
        listed = dict(zip(leaf.term.tolist(), leaf.owner.tolist(), strict=True))
        if term in listed:
            return int(listed[term])
    if leaf.base is not None:
        below = owner(leaves, leaf.base, term, workers, 0)
        return dict(reversed(leaf.moves)).get(below, below)
    if leaf.term is None:
        return leaf.workers[0]
    return leaf.workers[drawn(0x5053325354524541, term, len(leaf.workers))]


@pytest.mark.parametrize("seed", range(10))
def test_owners_are_those_of_the_definition(seed: int) -> None:
    rng, workers = np.random.default_rng(seed), 5

    def some(base: int | None) -> HashedLeaf:
        listed = np.array(TERMS, np.uint64)[rng.random(len(TERMS)) < 0.4]
        to = rng.integers(0, workers, len(listed)).astype(np.uint16)
        if base is not None:
            pairs = rng.permutation(workers)[:3].tolist()
            moves = tuple((w, int(rng.integers(workers))) for w in pairs)
            return HashedLeaf((), listed, to, base, moves)
        own = tuple(rng.integers(0, workers, int(rng.integers(1, 5))).tolist())
        return HashedLeaf(own, listed, to) if rng.random() < 0.6 else HashedLeaf(own[:1])

    leaves = [some(int(rng.integers(4, 8))) for _ in range(4)] + [some(None) for _ in range(4)]
    h1 = H1(workers, np.arange(8, dtype=np.uint32), leaves)
    terms = [*TERMS, *rng.integers(0, WORD, 30, np.uint64).tolist()]
    units = [(level, cell, t) for level in (0, 1, 15) for cell in range(8) for t in terms]
    found = h1.owners(
        np.array([level << 28 | cell for level, cell, _ in units], np.uint32),
        np.array([t for *_, t in units], np.uint64),
    )
    assert found.tolist() == [owner(leaves, cell, t, workers, lv) for lv, cell, t in units]


@pytest.mark.parametrize("seed", range(8))
def test_replicated_units_belong_to_their_groups(seed: int) -> None:
    """The unit with a cell and a term comes before the term, and the term before the cell; all
    other units belong to the owners by the leaves. Of what some groups shard each posting has one
    worker."""
    rng, workers = np.random.default_rng(seed), 6
    leaves = [
        HashedLeaf((1,)),
        HashedLeaf((0, 2, 5), np.zeros(0, np.uint64), np.zeros(0, np.uint16)),
    ]
    cells = np.array([0, 1, 0, 1], np.uint32)
    places: list[int | None] = [None, 0, 1, 3, 2 << 28, 2 << 28 | 1]
    terms: list[int | None] = [None, *TERMS]
    units = [(c, t) for c in places for t in terms if (c, t) != (None, None)]
    some = [units[i] for i in rng.permutation(len(units))[: int(rng.choice([1, 5, 12]))]]
    given = {u: tuple(rng.permutation(workers)[: int(rng.integers(2, 5))].tolist()) for u in some}
    replicas = [
        HashedReplica(cell, None if term is None else np.uint64(term), group, sum(group) % 3 == 0)
        for (cell, term), group in given.items()
    ]
    h1, plain = H1(workers, cells, leaves, replicas), H1(workers, cells, leaves)
    asked = [(c, t) for c in (0, 1, 2, 3, 2 << 28, 2 << 28 | 1, 2 << 28 | 2) for t in TERMS]
    cell = np.array([c for c, _ in asked], np.uint32)
    term = np.array([t for _, t in asked], np.uint64)
    by_leaf = plain.owners(cell, term).tolist()
    want = [
        given.get((c, t)) or given.get((None, t)) or given.get((c, None)) or (w,)
        for (c, t), w in zip(asked, by_leaf, strict=True)
    ]
    holder = h1.holders(cell, term)
    groups = [tuple(h1.groups.worker[a:b].tolist()) for a, b in pairwise(h1.groups.off)]
    found = [(w,) if w < FIRST_GROUP else groups[w - FIRST_GROUP] for w in holder.tolist()]
    assert found == want
    assert h1.owners(cell, term).tolist() == [group[0] for group in want]
    sharded = [len(group) > 1 and sum(group) % 3 == 0 for group in want]
    place = rng.integers(0, WORD, len(term), np.uint64)
    rows = zip(want, sharded, term.tolist(), place.tolist(), strict=True)
    held = [{shard_of(g, t, p)} if divided else {*g} for g, divided, t, p in rows]
    for worker in range(workers):
        mine = h1.held_by(worker, holder, term, place)
        assert mine.tolist() == [worker in some for some in held]
    assert not h1.held_by(workers + 1, holder, term, place).any()  # a worker that is to come
    counted = [
        sum(worker in g and not divided for g, divided in zip(want, sharded, strict=True))
        for worker in range(workers)
    ]
    assert h1.count_postings(cell, term).tolist() == [*counted, sum(sharded)]
    assert plain.count_postings(cell, term).sum() == len(asked)
