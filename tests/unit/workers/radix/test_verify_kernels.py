"""Expressions and lists of tags as the radix GI2 checks them, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.frame import U64
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.conjunction_kernels import contains_term
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.verify_kernels import is_listed, satisfies_expression
from tests.support.postings import GRID, VOCABULARY, Query, cell_of, random_query


@njit
def call_satisfies(pool: Any, key: Any, term: Any, a: int, b: int, stack: Any) -> Any:
    return satisfies_expression(
        pointer_to(pool), 1, key, pointer_to(term), a, b, pointer_to(term), 0, 0, pointer_to(stack)
    )


@njit
def call_contains(term: Any, a: int, b: int, want: Any) -> Any:
    return contains_term(pointer_to(term), a, b, want)


@njit
def call_listed(pool: Any, extras: int, key: Any, x: float, y: float, bits: Any) -> Any:
    return is_listed(pointer_to(pool), 1, extras, key, x, y, bits[0], bits[1])


def block_of(query: Query) -> U64:
    """The expression of a query, behind one word of something else."""
    n, program = len(query.terms), len(query.prog)
    head = int(query.form) | n << 8 | program << 16 | query.post << 40
    words = [9, head, *query.terms, *(op % (1 << 64) for op in query.prog)]
    return np.array(words, np.uint64)


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
    bits = GRID.lon_bits, GRID.lat_bits
    found = [bool(call_listed(pool, 20, np.uint64(key), x, y, bits)) for key in (7, 8, 9)]
    assert found == [False, True, True]
    beside = [bool(call_listed(pool, 20, np.uint64(key), x + 11.25, y, bits)) for key in (7, 8)]
    assert beside == [True, False]
