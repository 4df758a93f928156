"""The keys of the units that objects meet, against a loop over a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher import hot_unit_kernels as kernels
from ps2stream.dispatcher import kernels as gridt_kernels
from ps2stream.dispatcher.h2 import H2
from ps2stream.dispatcher.h2_kernels import ALL
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.space.grid import Grid

GRID = Grid(3, 2)
TERMS = [5, 2**20, 2**20 + 1, 2**40 + 3, 2**64 - 7]
NEWER = gridt_kernels.NEWER
NO_TERMS = np.zeros(0, np.uint64), np.zeros(0, np.uint16)


@pytest.mark.parametrize("seed", range(3))
def test_stored_queries_are_counted_by_cell_and_by_word(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cell = rng.choice([0, 1, 4, 1 << 28 | 1], 40).astype(np.uint32)
    term, count = rng.choice(np.array(TERMS, np.uint64), 40), rng.integers(1, 9, 40)
    cells, bits = np.array([1, 4, 6], np.uint32), term & kernels.TERM_BITS
    words = np.unique([*bits[:3].tolist(), 77 << 16]).astype(np.uint64)
    by_cell, by_word = np.zeros(3, np.int64), np.zeros(len(words), np.int64)
    units = cell, term, count.astype(np.uint32)
    assert kernels.count_stored(units, cells, words, by_cell, by_word) == count.sum()
    assert by_cell.tolist() == [int(count[cell == c].sum()) for c in cells]
    assert by_word.tolist() == [int(count[bits == w].sum()) for w in words]


@pytest.mark.takes_turns(1)
@pytest.mark.parametrize("seed", range(10))
def test_keys_are_those_of_the_units_that_are_met(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves = [HashedLeaf((0, 1, 7)), HashedLeaf((0, 2), *NO_TERMS), HashedLeaf((5,))]
    old, newer = (
        H1(8, rng.integers(0, 3, 32).astype(np.uint32), leaves[k:] + leaves[:k]) for k in (0, 1)
    )
    routes = old.arrays, newer.arrays, (8, 8)
    counts, held = H2(), dict[tuple[int, int], int]()
    for _ in range(80):
        level = int(rng.choice([0, 0, 0, 1, 2, NEWER, NEWER + 1]))
        cells = GRID.columns(level % NEWER) * GRID.rows(level % NEWER)
        unit = level << 28 | int(rng.integers(cells)), TERMS[int(rng.integers(len(TERMS)))]
        h1, cell = (newer if level >= NEWER else old), unit[0] & ((NEWER << 28) - 1)
        columns = np.array([cell], np.uint32), np.array([unit[1]], np.uint64)
        held[unit] = int(h1.holders(*columns)[0])
        counts.add(np.array([unit[0]], np.uint32), columns[1])
    n = 40
    lon, lat = rng.uniform(-180, 180, n), rng.uniform(-90, 90, n)
    rows = [sorted(rng.permutation(np.array(TERMS, np.uint64))[: rng.integers(0, 6)]) for _ in lon]
    skipped = seed % 2 * 3
    off = skipped + np.cumsum([0, *map(len, rows)])
    term = np.array([9] * skipped + [t for row in rows for t in row], np.uint64)
    cell_leaf, text, *_ = old.arrays
    first, stride = int(rng.integers(0, 3)), int(rng.integers(1, 5))
    want: list[int] = []
    for i in range(first, n, stride):
        want.append(1 << 62)
        words: list[int] = []
        for level in range(ALL):
            if level % NEWER >= GRID.levels:
                continue
            here = int(GRID.cells(lon[i : i + 1], lat[i : i + 1], level % NEWER)[0])
            here = here & ((1 << 28) - 1) | level << 28
            met = [t for t in rows[i] if (here, int(t)) in held]
            if level % NEWER or text[cell_leaf[here & ((1 << 28) - 1)]]:
                keys = [1 << 63 | int(t) & (2**63 - 2**16) | held[here, int(t)] for t in met]
                words += keys
            if met and level == 0:
                words.append(here)
        want += dict.fromkeys(words)
    found = kernels.list_met_units(
        counts.arrays[0], counts.used, GRID.lines, routes,
        (lon, lat, off, term), (first, stride),
    )  # fmt: skip
    assert found.tolist() == want


def test_an_object_of_many_terms_has_all_its_keys() -> None:
    terms = np.arange(1, 2_000, dtype=np.uint64) << np.uint64(20)
    counts, h1 = H2(), H1(1, np.zeros(32, np.uint32), [HashedLeaf((0,))])
    counts.add(np.full(len(terms), 1 << 28, np.uint32), terms)
    objects = np.array([-180.0]), np.array([-90.0]), np.array([0, len(terms)]), terms
    routes = h1.arrays, h1.arrays, (1, 1)
    found = kernels.list_met_units(
        counts.arrays[0], counts.used, GRID.lines, routes, objects, (0, 1)
    )
    assert len(found) == 1 + len(terms)
    assert set(found[1:].tolist()) == {1 << 63 | int(t) for t in terms}
