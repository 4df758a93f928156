"""The table of units against a dictionary, and H1 against its definition, tag by tag."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.routing import unit_kernels as kernels
from ps2stream.routing.h1 import H1, HashedLeaf

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
