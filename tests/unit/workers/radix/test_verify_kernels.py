"""Expressions and lists of tags as the radix GI2 checks them, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.frame import U64
from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers.radix import gi2, layout
from ps2stream.workers.radix.conjunction_kernels import contains_term
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.verify_kernels import is_listed, satisfies_expression
from ps2stream.workers.shapes import keep_within_polygons
from tests.support.postings import (
    GRID,
    VOCABULARY,
    Query,
    cell_of,
    check,
    columns,
    random_query,
    touched,
)


@njit
def call_satisfies(pool: Any, key: Any, term: Any, a: int, b: int, stack: Any) -> Any:
    return satisfies_expression(
        pointer_to(pool), 1, key, pointer_to(term), a, b, pointer_to(term), 0, 0, pointer_to(stack)
    )


@njit
def call_contains(term: Any, a: int, b: int, want: Any) -> Any:
    return contains_term(pointer_to(term), a, b, want)


@njit
def call_listed(pool: Any, extras: int, key: Any, x: float, y: float, lines: Any) -> Any:
    return is_listed(pointer_to(pool), 1, extras, key, x, y, pointer_to(lines))


def block_of(query: Query) -> U64:
    """The expression of a query, behind one word of something else."""
    n, program = len(query.terms), len(query.prog)
    head = int(query.form) | n << 8 | program << 16 | query.post << 40
    words = [9, head, *query.terms, *(op % (1 << 64) for op in query.prog)]
    return np.array(words, np.uint64)


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(4))
def test_an_expression_holds_where_its_definition_says_so(seed: int) -> None:
    rng, stack = np.random.default_rng(seed), np.zeros(64, np.uint8)
    held = 0
    for handle in range(300):
        query = random_query(rng, handle)
        has = sorted(t for t in VOCABULARY if rng.random() < 0.6)
        text = np.array([5, *has, 6], np.uint64)
        posted = [t for i, t in enumerate(query.terms) if query.post >> i & 1 and t in has]
        for key in has:
            want = query.satisfied(set(has)) and posted[:1] == [key]
            found = call_satisfies(block_of(query), np.uint64(key), text, 1, 1 + len(has), stack)
            assert bool(found) == want
            held += want
    assert held > 100


@pytest.mark.parametrize("n", [0, 1, 10, 16, 17, 200])
def test_a_term_is_found_among_few_and_many(n: int) -> None:
    rng = np.random.default_rng(n)
    term = np.sort(rng.choice(1000, n + 2, replace=False).astype(np.uint64))
    inner = set(term[1 : n + 1].tolist())
    for want in range(1000):
        assert bool(call_contains(term, 1, n + 1, np.uint64(want))) == (want in inner)


def test_a_list_has_the_tags_of_one_cell_and_not_of_the_next() -> None:
    x, y = 12.0, 13.0
    pool = np.zeros(64, np.uint64)
    pool[2:5] = 7, 8, 9  # the terms
    own = [cell_of(x, y, level) | level << 28 for level in (0, 1)]
    tags = sorted([own[0] << 8 | 1, (own[0] + 1) << 8 | 0, own[1] << 8 | 2])
    pool[40:43] = tags
    pool[20 + layout.X_LIST], pool[20 + layout.X_LISTED] = 40, 3
    found = [bool(call_listed(pool, 20, np.uint64(key), x, y, GRID.lines)) for key in (7, 8, 9)]
    assert found == [False, True, True]
    *_, wide, _ = GRID.bounds(own[0])
    beside = [
        bool(call_listed(pool, 20, np.uint64(key), x + wide, y, GRID.lines)) for key in (7, 8)
    ]
    assert beside == [True, False]


def star(rng: np.random.Generator, handle: int, corners: int) -> Query:
    """A query with a star of this many corners in the middle of the grid, and one term or two."""
    angle = (np.arange(corners) + rng.uniform(0, 0.9, corners)) * (2 * np.pi / corners)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1) * rng.uniform(6, 12, (corners, 1))
    box = (*ring.min(0).tolist(), *ring.max(0).tolist())
    form = (ExpressionForm.ALL, ExpressionForm.ANY)[handle % 2]
    terms = [5, 6][: 1 + handle // 2 % 2]
    post = 1 if form == ExpressionForm.ALL else (1 << len(terms)) - 1
    points = [(x, y) for x, y in ring.tolist()]
    query = Query(handle, form, terms, post, [box], ring=points)
    posted = [t for i, t in enumerate(terms) if post >> i & 1]
    query.tags = {(cell, term) for cell in touched(query) for term in posted}
    return query


@pytest.mark.takes_turns
@pytest.mark.parametrize(("corners", "left"), [(5, False), (60, False), (700, True)])
def test_what_a_raster_leaves_open_is_decided_by_edges_and_geos_asked_of_large_ones(
    corners: int, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def note(found: Any, at: Any, *others: Any) -> Any:
        asked.append(len(at))
        return keep_within_polygons(found, at, *others)

    monkeypatch.setattr(gi2, "keep_within_polygons", note)
    rng, n = np.random.default_rng(corners), 300
    queries = [star(rng, handle, corners) for handle in range(1, 120)]
    index = RadixGI2(GRID)
    index.insert(*columns(queries))
    lon, lat = rng.uniform(-13, 13, (2, n))
    lon[0], lat[0] = queries[0].ring[0]  # a corner
    term = np.tile(np.array([5, 6], np.uint64), n)
    assert check(index, queries, 119, (lon, lat, np.arange(0, 2 * n + 1, 2), term)) > 10_000
    assert (sum(asked) > 1000) == left
    assert left or not asked
