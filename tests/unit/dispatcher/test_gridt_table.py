"""gridt's table as full as it gets: units that collide, run on and wrap around its end."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.routing.tags import QueryTags
from ps2stream.routing.unit_kernels import mix
from ps2stream.space.grid import Grid
from tests.support.routing import Row, query_rows

GRID = Grid(lon_bits=6, lat_bits=5)
CELLS = 1 << 11
FULL = 2_560  # of the 4096 places that the table begins with
WORKERS = 5


def empty() -> Gridt:
    none = np.empty(0, np.uint64), np.empty(0, np.uint16)
    leaf = HashedLeaf(tuple(range(WORKERS)), *none)
    return Gridt(H1(WORKERS, np.zeros(CELLS, np.uint32), [leaf]), GRID)


def full(gridt: Gridt, rng: np.random.Generator) -> QueryTags:
    """As many different units as the table holds: few terms in many cells."""
    pick = rng.permutation(CELLS * 4)[:FULL]
    cell, term = (pick // 4).astype(np.uint32), (pick % 4 + 1).astype(np.uint64)
    return QueryTags(np.arange(FULL + 1), cell, term, gridt.h1.owners(cell, term), term)


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(6))
def test_units_go_one_by_one_and_come_again_and_none_is_hidden(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gridt = empty()
    for _ in range(2):
        tags = full(gridt, rng)
        model = Counter[tuple[int, int]]()
        for part in (np.arange(FULL) < FULL, np.arange(FULL) < FULL // 2):
            gridt.insert(tags.of(part))
            model.update(zip(tags.cell[part].tolist(), tags.term[part].tolist(), strict=True))
        assert {unit: n for unit, (_, n) in gridt.counts().items()} == model
        for i in np.r_[rng.permutation(FULL), rng.permutation(FULL // 2)]:
            gridt.retire(tags.of(np.arange(FULL) == i))
        assert gridt.counts() == {}


@pytest.mark.parametrize(("seed", "skipped"), [(s, s % 2 * 3) for s in range(12)])
def test_every_unit_is_found_and_no_other(seed: int, skipped: int) -> None:
    """Many objects, so that look-ups go in several chunks; their terms may begin anywhere in
    the column."""
    gridt = empty()
    tags = full(gridt, np.random.default_rng(seed))
    gridt.insert(tags)
    held = dict(
        zip(
            zip(tags.cell.tolist(), tags.term.tolist(), strict=True),
            tags.worker.tolist(),
            strict=True,
        )
    )
    n = CELLS
    lon = np.tile((np.arange(64) + 0.5) * 360 / 64 - 180, 32)
    lat = np.repeat((np.arange(32) + 0.5) * 180 / 32 - 90, 64)
    rows = [[1, 2, 3, 4, 9][: 1 + i % 5] for i in range(n)]
    off = skipped + np.cumsum([0, *map(len, rows)])
    term = np.array([2, 3, 4][:skipped] + [t for r in rows for t in r], np.uint64)
    cells = GRID.cells(lon, lat, 0).tolist()
    want: dict[int, list[int]] = {}
    for i in range(n):
        for w in {held[u] for t in rows[i] if (u := (cells[i], t)) in held}:
            want.setdefault(w, []).append(i)
    shares, discarded = gridt.route(lon, lat, off, term)
    assert {s.worker: s.row.tolist() for s in shares} == want
    assert discarded == n - len({i for found in want.values() for i in found})
    for share in shares:
        at = share.row.tolist()
        assert share.term.tolist() == [t for i in at for t in rows[i]]


def test_terms_of_one_cell_that_collide_are_told_apart() -> None:
    gridt = empty()
    cell, term = np.zeros(FULL, np.uint32), np.arange(1, FULL + 1, dtype=np.uint64)
    gridt.insert(QueryTags(np.arange(FULL + 1), cell, term, gridt.h1.owners(cell, term), term))
    n = 5 * FULL
    lon, lat = np.full(n, -179.0), np.full(n, -89.0)
    shares, discarded = gridt.route(
        lon, lat, np.arange(n + 1), np.arange(1, n + 1, dtype=np.uint64)
    )
    assert sorted(row for s in shares for row in s.row.tolist()) == list(range(FULL))
    assert discarded == n - FULL


def test_units_of_the_last_place_go_on_at_the_first() -> None:
    gridt = empty()
    zero = np.uint64(0)
    last = [t for t in range(1, 40_000) if int(mix(zero, np.uint64(t))) & 4095 == 4095][:4]
    cell, term = np.zeros(3, np.uint32), np.array(last[:3], np.uint64)
    gridt.insert(QueryTags(np.arange(4), cell, term, gridt.h1.owners(cell, term), term))
    shares, discarded = gridt.route(
        np.full(4, -179.0), np.full(4, -89.0), np.arange(5), np.array(last, np.uint64)
    )
    assert sorted(row for s in shares for row in s.row.tolist()) == [0, 1, 2]
    assert discarded == 1


def test_any_of_64_terms_may_be_posted() -> None:
    terms = tuple(range(100, 164))
    tags = empty().expand(query_rows([Row(terms, (0, 31, 32, 35, 63), ((0.0, 0.0, 0.0, 0.0),))]))
    assert tags.term.tolist() == [100, 131, 132, 135, 163]
