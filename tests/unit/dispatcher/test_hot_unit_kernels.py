"""The keys of the units that objects meet, against a loop over a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher import hot_unit_kernels as kernels
from ps2stream.dispatcher import kernels as gridt_kernels
from ps2stream.routing.unit_kernels import empty_table
from ps2stream.space.grid import Grid

GRID = Grid(3, 2)
TERMS = [5, 2**20, 2**20 + 1, 2**40 + 3, 2**64 - 7]
NEWER = gridt_kernels.NEWER


@pytest.mark.parametrize("seed", range(10))
def test_keys_are_those_of_the_units_that_are_met(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held: dict[tuple[int, int], int] = {}
    for _ in range(80):
        level = int(rng.choice([0, 0, 0, 1, 2, NEWER, NEWER + 1]))
        cells = GRID.columns(level % NEWER) * GRID.rows(level % NEWER)
        unit = level << 28 | int(rng.integers(cells)), TERMS[int(rng.integers(len(TERMS)))]
        held.setdefault(unit, int(rng.choice([0, 1, 7, 1024, 1030])))
    table, count = empty_table(9), np.zeros(512, np.uint32)
    used = np.zeros(gridt_kernels.ALL + 1, np.int64)
    gridt_kernels.count_up(
        table, count, used,
        np.array([c for c, _ in held], np.uint32), np.array([t for _, t in held], np.uint64),
        np.array([*held.values()], np.uint16), 0,
    )  # fmt: skip
    n = 40
    lon, lat = rng.uniform(-180, 180, n), rng.uniform(-90, 90, n)
    rows = [sorted(rng.permutation(np.array(TERMS, np.uint64))[: rng.integers(0, 6)]) for _ in lon]
    skipped = seed % 2 * 3
    off = skipped + np.cumsum([0, *map(len, rows)])
    term = np.array([9] * skipped + [t for row in rows for t in row], np.uint64)
    cell_leaf, text = rng.integers(0, 3, 32).astype(np.uint32), np.array([0, 1, 0], np.uint8)
    first, stride = int(rng.integers(0, 3)), int(rng.integers(1, 5))
    want: list[int] = []
    for i in range(first, n, stride):
        want.append(1 << 62)
        words: list[int] = []
        for level in range(gridt_kernels.ALL):
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
        table, used, (GRID.lon_bits, GRID.lat_bits), (cell_leaf, text), (lon, lat, off, term),
        (first, stride),
    )  # fmt: skip
    assert found.tolist() == want


def test_an_object_of_many_terms_has_all_its_keys() -> None:
    terms = np.arange(1, 2_000, dtype=np.uint64) << np.uint64(20)
    table, count = empty_table(12), np.zeros(4096, np.uint32)
    used = np.zeros(gridt_kernels.ALL + 1, np.int64)
    cell = np.full(len(terms), 1 << 28, np.uint32)
    gridt_kernels.count_up(table, count, used, cell, terms, np.zeros(len(terms), np.uint16), 0)
    objects = np.array([-180.0]), np.array([-90.0]), np.array([0, len(terms)]), terms
    leaves = np.zeros(32, np.uint32), np.zeros(1, np.uint8)
    found = kernels.list_met_units(table, used, (3, 2), leaves, objects, (0, 1))
    assert len(found) == 1 + len(terms)
    assert set(found[1:].tolist()) == {1 << 63 | int(t) for t in terms}
