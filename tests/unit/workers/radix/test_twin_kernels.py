"""What makes two queries alike: everything but their handle and session."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.rows import PROG_AND, PROG_OR, ExpressionForm
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.twin_kernels import is_twin
from tests.support.postings import GRID, Query, columns, random_query, touched

FORM = ExpressionForm


@njit
def call_twin(slots: Any, pool: Any, slot: int, other: int) -> Any:
    return is_twin(pointer_to(slots), pointer_to(pool), slot, other)


BOX = (1.0, 1.0, 2.0, 2.0)


def tagged(query: Query) -> Query:
    posted = [t for i, t in enumerate(query.terms) if query.post >> i & 1]
    return dataclasses.replace(query, tags={(c, t) for c in touched(query) for t in posted})


def count_slots(queries: list[Query]) -> int:
    index = RadixGI2(GRID)
    for i, query in enumerate(queries):
        index.insert(*columns([dataclasses.replace(query, handle=i + 1)]))
    return int(index._state[layout.SLOT_TOP]) - _count_free(index)


def _count_free(index: RadixGI2) -> int:
    top = int(index._state[layout.SLOT_TOP])
    return int((index._arrays.slots_i[:top, layout.HANDLE] < 0).sum())


def test_any_query_is_like_itself() -> None:
    rng = np.random.default_rng(3)
    alike = 0
    for handle in range(200):
        query = random_query(rng, handle)
        query = tagged(query) if handle % 2 else query
        alike += count_slots([query] * 3) == bool(query.tags)
    assert alike > 170  # a conjunction without the tag that emits has no posting to be found by


CIRCLE = Query(1, FORM.ALL, [5], 1, [BOX], circle=(1.5, 1.5, 20.0))
WRAPPED = Query(1, FORM.ALL, [5], 1, [BOX, (5.0, 1.0, 6.0, 2.0)], rect=BOX)
PROGRAM = Query(1, FORM.PROGRAM, [5, 9, 11], 3, [BOX], prog=[0, 1, PROG_OR, 2, PROG_AND], rect=BOX)
ANY = Query(1, FORM.ANY, [5, 9, 11], 7, [BOX], rect=BOX)
ONE = Query(1, FORM.ALL, [5], 1, [BOX], rect=BOX)
BOTH = Query(1, FORM.ALL, [5, 9], 1, [BOX], rect=BOX)
LONG = Query(1, FORM.ANY, list(range(1, 31)), (1 << 30) - 1, [BOX], rect=BOX)


def move(query: Query) -> Query:
    a, b, c, d = query.boxes[0]
    return dataclasses.replace(
        query, boxes=[(a, b, c, float(np.nextafter(d, 9))), *query.boxes[1:]]
    )


@pytest.mark.parametrize(
    ("query", "change"),
    [
        (ONE, move),
        (ONE, lambda q: dataclasses.replace(q, level=1)),
        (ONE, lambda q: dataclasses.replace(q, circle=(1.5, 1.5, 20.0))),
        (BOTH, lambda q: dataclasses.replace(q, terms=[5, 10])),
        (BOTH, lambda q: dataclasses.replace(q, form=FORM.ANY, post=3)),
        (BOTH, lambda q: dataclasses.replace(q, terms=[5, 9, 11])),
        (ANY, lambda q: dataclasses.replace(q, terms=[5, 9, 12])),
        (ANY, lambda q: dataclasses.replace(q, terms=[5, 9, 11, 12], post=15)),
        (PROGRAM, lambda q: dataclasses.replace(q, prog=[0, 1, PROG_AND, 2, PROG_OR])),
        (PROGRAM, lambda q: dataclasses.replace(q, post=5)),
        (LONG, lambda q: dataclasses.replace(q, terms=[*range(1, 30), 31])),
        (CIRCLE, lambda q: dataclasses.replace(q, circle=(1.5, 1.5, 21.0))),
        (WRAPPED, lambda q: dataclasses.replace(q, boxes=[BOX, (5.0, 1.0, 6.0, 2.5)])),
        (WRAPPED, lambda q: dataclasses.replace(q, rect=(1.0, 1.0, 2.0, 2.5))),
    ],
)
def test_one_difference_keeps_two_queries_apart(
    query: Query, change: Callable[[Query], Query]
) -> None:
    one, other = tagged(query), tagged(change(query))
    assert count_slots([one, one]) == 1
    assert count_slots([one, other]) == 2
    assert count_slots([one, other, one, other, one]) == 2


def test_a_tag_less_keeps_two_queries_apart() -> None:
    wide = tagged(Query(1, FORM.ANY, [5, 9], 3, [(1.0, 1.0, 40.0, 2.0)]))
    wide = dataclasses.replace(wide, rect=wide.boxes[0])
    less = dataclasses.replace(wide, tags=wide.tags - {max(wide.tags)})
    assert count_slots([wide, less]) == 2
    assert count_slots([less, less, wide, wide]) == 2


def test_a_query_that_was_deleted_gets_no_holder() -> None:
    index = RadixGI2(GRID)
    index.insert(*columns([tagged(ONE)]))
    index.delete(np.array([1]), np.array([5]))
    index.insert(*columns([dataclasses.replace(tagged(ONE), handle=7)]))
    at, terms = np.array([1.5]), np.array([5], np.uint64)
    for lsn, want in ((4, [1]), (6, []), (7, [7])):
        assert index.match(lsn, at, at, np.array([0, 1]), terms).handle.tolist() == want


@pytest.mark.takes_turns
def test_stored_queries_are_twins_of_themselves_alone() -> None:
    queries = [CIRCLE, WRAPPED, PROGRAM, ANY, ONE, BOTH, LONG, move(ONE), move(CIRCLE)]
    queries = [tagged(dataclasses.replace(q, handle=i + 1)) for i, q in enumerate(queries)]
    index = RadixGI2(GRID)
    index.insert(*columns(queries))
    arrays = index._arrays
    for a in range(len(queries)):
        for b in range(len(queries)):
            assert bool(call_twin(arrays.slots_i, arrays.pool, a, b)) == (a == b)
    index.delete(np.array([3]), np.array([50]))
    assert not call_twin(arrays.slots_i, index._arrays.pool, 2, 2)
