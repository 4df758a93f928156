"""What is derived from a program, against all objects that there can be."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR, ExpressionForm
from ps2stream.workers.indexes import IndexFactory
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.arrays import LONG_PROGRAM, make_update_scratch
from ps2stream.workers.radix.check_kernels import (
    bound_program,
    bound_row,
    describe_check,
    describe_rest,
    holds_surely,
)
from ps2stream.workers.radix.pointers import point_rows, pointer_to
from tests.support.postings import GRID, Query, check, columns, random_query, touched
from tests.support.programs import (
    conjunction_of,
    draw_notes,
    draw_program,
    holds,
    with_comparisons,
)

STACK = make_update_scratch(1).stack
BOX = (1.0, 1.0, 2.0, 2.0)


@njit
def call_bound(prog: Any, stack: Any) -> Any:
    return bound_program(pointer_to(prog), 0, prog.shape[0], pointer_to(stack))


@njit
def call_holds(prog: Any, has: Any, lacks: Any, stack: Any) -> Any:
    return holds_surely(pointer_to(prog), 0, prog.shape[0], has, lacks, pointer_to(stack))


@njit
def call_describe(fields: Any, r: int, i: int, stack: Any) -> Any:
    rows, room = point_rows(fields), pointer_to(stack)
    return describe_check(rows, r, bound_row(rows, r, room), i, room)


@njit
def call_rest(fields: Any, r: int, stack: Any) -> Any:
    rows = point_rows(fields)
    return describe_rest(rows, r, bound_row(rows, r, pointer_to(stack)))


def fields_of(queries: list[Query]) -> tuple[Any, ...]:
    rows = columns(queries)[0]
    return (
        rows.kind, rows.handle, rows.session, rows.form, rows.post, rows.term_off, rows.term,
        rows.prog_off, rows.prog, rows.box_off, rows.box, rows.shape, rows.geom_off, rows.geom,
    )  # fmt: skip


def bits_of(terms: set[int]) -> int:
    return sum(1 << i for i in terms)


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize("compared", [False, True], ids=["terms", "comparisons"])
@pytest.mark.parametrize("seed", range(6))
def test_a_program_is_bounded_and_sure_as_far_as_its_uses_of_terms_show(
    seed: int, compared: bool
) -> None:
    rng, conjunctions, sure = np.random.default_rng(seed), 0, 0
    for _ in range(200):
        n = int(rng.integers(1, 7))
        prog = draw_program(rng, n)
        if compared:
            prog, _ = with_comparisons(rng, prog)
        needed, barred, exact = conjunction_of(prog, n)
        assert call_bound(np.array(prog, np.int16), STACK)[:2] == (bits_of(needed), bits_of(barred))
        for has in map(bool, rng.integers(0, 2, 3)):
            known = {i: has ^ (rng.random() < 0.3) for i in range(n) if rng.random() < 0.6}
            there, not_there = ({i for i in known if known[i] == v} for v in (True, False))
            sets = np.uint64(bits_of(there)), np.uint64(bits_of(not_there))
            found = bool(call_holds(np.array(prog, np.int16), *sets, STACK))
            assert found == (holds(prog, known) is True)
            sure += found
        query = Query(1, ExpressionForm.PROGRAM, list(range(5, 5 + n)), 1, [BOX], prog=prog)
        query.notes = draw_notes(rng, n)
        if compared and not query.notes:  # as all that compare have some
            query.notes = [0, 4 << 8, PROG_NOTES - 1]
        row = call_row(query)
        assert (row.size, row.words == 2) == (len(prog), exact)
        conjunctions += exact
    assert min(conjunctions, sure) > (5 if compared else 50)


@njit
def bound(fields: Any, stack: Any) -> Any:
    return bound_row(point_rows(fields), 0, pointer_to(stack))


def call_row(query: Query) -> Any:
    return bound(fields_of([query]), STACK)


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(6))
def test_what_a_posting_says_is_true_of_every_object(seed: int) -> None:
    """Of each set of terms with the posting's own: FREE ones match, ALL ones only with what the
    fingerprints stand for, and ANY ones match where none of it is there."""
    rng, modes = np.random.default_rng(seed), []
    queries = [random_query(rng, i + 1) for i in range(120)]
    fields = fields_of(queries)
    for r, query in enumerate(queries):
        posted = [i for i in range(len(query.terms)) if query.post >> i & 1]
        for i in posted:
            mode, prints = call_describe(fields, r, i, STACK)
            wanted = [p for p in (prints & 255, prints >> 8) if p]
            assert bool(wanted) == (mode in (layout.ALL, layout.ANY))
            modes.append((query.form, mode))
            for has in itertools.product([False, True], repeat=len(query.terms)):
                if not has[i]:
                    continue
                terms = {t for t, there in zip(query.terms, has, strict=True) if there}
                held = [int(layout.fingerprint(np.uint64(t))) in wanted for t in terms]
                others = [int(layout.fingerprint(np.uint64(t))) for t in terms]
                emits = query.satisfied(terms) and i == next(k for k in posted if has[k])
                if mode == layout.FREE or (mode == layout.ANY and not any(held)):
                    assert emits
                elif mode == layout.ALL and query.form == ExpressionForm.PROGRAM:
                    assert not emits or all(p in others for p in wanted)
    assert len(set(modes)) > 8


@pytest.mark.parametrize("seed", range(3))
def test_what_matches_has_the_terms_that_a_slot_has_fingerprints_of(seed: int) -> None:
    """And a conjunction of four terms has one more than its posting has, one of five has two."""
    rng, more = np.random.default_rng(seed), 0
    queries = [random_query(rng, i + 1) for i in range(150)]
    for n in range(1, 7):
        drawn = sorted(rng.choice(1 << 40, n, replace=False).tolist())
        post = 1 << int(rng.integers(n))
        queries.append(Query(1000 + n, ExpressionForm.ALL, drawn, post, [BOX]))
    fields = fields_of(queries)
    for r, query in enumerate(queries):
        rest = int(call_rest(fields, r, STACK))
        wanted = [p for p in (rest & 255, rest >> 8) if p]
        more += len(wanted)
        for has in itertools.product([False, True], repeat=len(query.terms)):
            terms = {t for t, there in zip(query.terms, has, strict=True) if there}
            others = [int(layout.fingerprint(np.uint64(t))) for t in terms]
            assert not query.satisfied(terms) or all(p in others for p in wanted)
        if query.form == ExpressionForm.ALL and query.post & query.post - 1 == 0:
            i = query.post.bit_length() - 1
            prints = int(call_describe(fields, r, i, STACK)[1])
            own = [int(layout.fingerprint(np.uint64(t))) for t in query.terms]
            del own[i]
            assert sorted(wanted + [p for p in (prints & 255, prints >> 8) if p]) == sorted(own[:4])
    assert more > 2


@pytest.mark.parametrize("seed", range(6))
def test_what_a_posting_says_is_true_whatever_the_values_are(seed: int) -> None:
    rng, modes = np.random.default_rng(seed), set()
    for _ in range(150):
        n = int(rng.integers(1, 5))
        prog, places = with_comparisons(rng, draw_program(rng, n))
        terms = sorted(rng.choice(1 << 40, n, replace=False).tolist())
        query = Query(1, ExpressionForm.PROGRAM, terms, int(rng.integers(1, 1 << n)), [BOX])
        query.prog, query.notes = prog, [0, 4 << 8, PROG_NOTES - 1]
        posted = [i for i in range(n) if query.post >> i & 1]
        truths = [dict(zip(places, rng.random(len(places)) < 0.5, strict=True)) for _ in range(6)]
        for i in posted:
            mode, prints = call_describe(fields_of([query]), 0, i, STACK)
            wanted = [p for p in (prints & 255, prints >> 8) if p]
            modes.add(mode)
            for has, truth in itertools.product(itertools.product([False, True], repeat=n), truths):
                if not has[i]:
                    continue
                others = [
                    int(layout.fingerprint(np.uint64(t)))
                    for t, there in zip(terms, has, strict=True)
                    if there
                ]
                emits = i == next(k for k in posted if has[k])
                emits = emits and holds(prog, dict(enumerate(has)), truth) is True
                if mode == layout.FREE or (mode == layout.ANY and not {*wanted} & {*others}):
                    assert emits
                elif mode == layout.ALL:
                    assert not emits or {*wanted} <= {*others}
    assert modes == {layout.FREE, layout.ANY, layout.ALL, layout.GENERAL}


def literals(*negated: bool) -> list[int]:
    """The program of a conjunction of terms, each negated or not."""
    prog: list[int] = []
    for i, no in enumerate(negated):
        prog += [i, PROG_NOT] if no else [i]
        prog += [PROG_AND] if i else []
    return prog


def modes_of(prog: list[int], terms: list[int], post: int) -> dict[int, tuple[int, int]]:
    """By the number of the term: the mode, and how many fingerprints there are."""
    query = Query(1, ExpressionForm.PROGRAM, terms, post, [BOX], prog=prog)
    out = {}
    for i in range(len(terms)):
        if post >> i & 1:
            mode, prints = call_describe(fields_of([query]), 0, i, STACK)
            out[i] = mode, bool(prints & 255) + bool(prints >> 8)
    return out


def test_negated_words_are_checked_where_they_may_be_there() -> None:
    every, some, general = layout.ALL, layout.ANY, layout.GENERAL
    assert modes_of(literals(False, True), [5, 9], 1) == {0: (some, 1)}
    assert modes_of(literals(False, True, True), [5, 9, 11], 1) == {0: (some, 2)}
    assert modes_of(literals(False, False, True), [5, 9, 11], 1) == {0: (every, 1)}
    assert modes_of([1, PROG_NOT], [5, 9], 1) == {0: (some, 1)}  # posted as any text
    either = [0, 2, PROG_NOT, PROG_AND, 1, 2, PROG_NOT, PROG_AND, PROG_OR]
    assert modes_of(either, [5, 9, 11], 3) == {0: (some, 1), 1: (some, 2)}
    assert modes_of([0, 1, PROG_NOT, PROG_OR], [5, 9], 1) == {0: (some, 1)}
    long = [0, *[1, PROG_NOT, PROG_AND] * LONG_PROGRAM]
    assert modes_of(long, [5, 9], 1) == {0: (general, 0)}


HOSTILE = [
    literals(False, *[True] * 63),
    literals(*[True] * 63),
    [*literals(*[True] * 63), PROG_NOT],
    [0, *[PROG_NOT] * 600],
    [0, *[1, PROG_NOT, PROG_AND] * LONG_PROGRAM],
]


@pytest.mark.parametrize("prog", HOSTILE, ids=range(len(HOSTILE)))
def test_many_negated_terms_are_matched_by_the_definition(
    prog: list[int], new_index: IndexFactory
) -> None:
    """Under the first term, and as any text, which the last of the terms then stands for."""
    rng, n = np.random.default_rng(3), 64
    terms = np.unique(rng.integers(0, 1 << 64, n, np.uint64))
    queries = []
    for handle, post in ((1, 1), (2, 1 << n - 1)):
        query = Query(handle, ExpressionForm.PROGRAM, terms.tolist(), post, [BOX], prog=prog)
        query.rect = BOX
        query.tags = {(c, t) for c in touched(query) for t in [query.terms[post.bit_length() - 1]]}
        queries.append(query)
    index = new_index(GRID)
    index.insert(*columns(queries))
    sets = [[0], [63], [0, 63], [0, 1], [0, 40, 63], [1, 63], list(range(64))]
    off = np.r_[0, np.cumsum([len(s) for s in sets])]
    at = np.full(len(sets), 1.5)
    term = np.concatenate([terms[s] for s in sets])
    assert check(index, queries, 5, (at, at, off, term)) > 0
