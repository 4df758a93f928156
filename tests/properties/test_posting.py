"""The posting condition (algorithms.md 1.2): P(q) meets every satisfying term set."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.expression import (
    Expr,
    ExpressionError,
    parse,
    posting_set,
    satisfies,
    terms_of,
)

NAMES = [f"t{i}" for i in range(9)]
frequencies = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5))
sources = st.recursive(
    st.sampled_from(NAMES),
    lambda part: st.tuples(
        st.lists(part, min_size=1, max_size=5), st.sampled_from([" ", " AND ", " OR "])
    ).map(lambda p: "(" + p[1].join(p[0]) + ")"),
    max_leaves=20,
)


def parsed(source: str) -> Expr | None:
    """None for what is nested too deeply."""
    try:
        return parse(source, lambda word: [word])
    except ExpressionError:
        return None


def hits(expr: Expr, posting: frozenset[str]) -> bool:
    """Whether no satisfying set avoids the posting set: monotone, so the largest decides."""
    return not satisfies(expr, terms_of(expr) - posting)


@given(sources, frequencies)
@settings(max_examples=400, deadline=None)
def test_the_posting_set_meets_every_satisfying_set(source: str, counts: dict[str, int]) -> None:
    expr = parsed(source)
    if expr is None:
        return
    posting = posting_set(expr, lambda t: counts.get(t, 0))
    names = sorted(terms_of(expr))
    assert posting <= set(names)
    for size in range(len(names) + 1):
        for chosen in combinations(names, size):
            if satisfies(expr, set(chosen)):
                assert posting & set(chosen)
    assert posting == posting_set(expr, lambda t: counts.get(t, 0))


@given(
    st.lists(st.lists(st.integers(0, 63), min_size=1, max_size=6), min_size=1, max_size=40),
    st.booleans(),
    st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
def test_wide_expressions_above_the_conjunct_limit(
    clauses: list[list[int]], conjunction: bool, salt: int
) -> None:
    inner, outer = (" OR ", " AND ") if conjunction else (" AND ", " OR ")
    expr = parsed(outer.join("(" + inner.join(f"t{i}" for i in c) + ")" for c in clauses))
    assert expr is not None
    posting = posting_set(expr, lambda t: hash((t, salt)) % 50)
    assert posting
    assert hits(expr, posting)


def test_least_frequent_term_of_each_conjunct_ties_by_string() -> None:
    expr = parse("a b OR c d", lambda word: [word])
    assert posting_set(expr, {"a": 2, "b": 1, "c": 4, "d": 4}.__getitem__) == {"b", "c"}


def test_the_literal_reading_of_the_paper_would_miss() -> None:
    expr = parse("(a OR b) AND (c OR d)", lambda word: [word])
    posting = posting_set(expr, {"a": 1, "b": 9, "c": 1, "d": 9}.__getitem__)
    assert posting & {"b", "d"}
    assert hits(expr, posting)


def test_the_cheapest_clause_above_64_conjuncts() -> None:
    clauses = [f"(x{i} OR y{i})" for i in range(7)]
    expr = parse(" AND ".join(clauses), lambda word: [word])
    assert posting_set(expr, lambda t: 0 if t.endswith("3") else 1) == {"x3", "y3"}
    assert posting_set(expr, lambda _: 1) == {"x0", "y0"}
