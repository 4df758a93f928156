"""The posting condition (algorithms.md 1.2): P(q) meets the literals of every satisfying text."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.boolean import ANY_TEXT, And, Or, Term, is_posted_as_any_text
from ps2stream.language.expression import Expr, ExpressionError, parse, posting_set, terms_of

NAMES = [f"t{i}" for i in range(9)]
frequencies = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5))
signs = st.sampled_from(["", "", "", "NOT "])
sources = st.recursive(
    st.tuples(signs, st.sampled_from(NAMES)).map("".join),
    lambda part: st.tuples(
        signs, st.lists(part, min_size=1, max_size=5), st.sampled_from([" ", " AND ", " OR "])
    ).map(lambda p: p[0] + "(" + p[2].join(p[1]) + ")"),
    max_leaves=20,
)


class Words:
    """An analysis in which each keyword is a word."""

    def keyword(self, text: str) -> list[str]:
        return [text]

    plain_words = keyword

    def is_spaceless(self, word: str) -> bool:
        raise AssertionError(word)


WORDS = Words()


def parsed(source: str) -> Expr | None:
    """None for what is nested too deeply, or can match nothing."""
    try:
        return parse(source, WORDS)
    except ExpressionError:
        return None


def holds(expr: Expr, has: frozenset[str]) -> bool:
    match expr:
        case Term(literal, negated):
            return (literal in has) != negated
        case And(_, args):
            return all(holds(x, has) for x in args)
        case Or(_, args):
            return any(holds(x, has) for x in args)


def hits(expr: Expr, posting: frozenset[str]) -> bool:
    """Whether no satisfying set avoids the posting set of an expression without NOT: it is
    monotone, so the largest decides."""
    return not holds(expr, terms_of(expr) - posting)


@given(sources, frequencies)
@settings(max_examples=600, deadline=None)
def test_the_posting_set_meets_every_satisfying_set(source: str, counts: dict[str, int]) -> None:
    expr = parsed(source)
    if expr is None:
        return
    posting = posting_set(expr, lambda t: counts.get(t, 0))
    names = sorted(terms_of(expr))
    assert posting == {ANY_TEXT} or posting <= set(names)
    for size in range(len(names) + 1):
        for chosen in combinations(names, size):
            if holds(expr, frozenset(chosen)):
                assert posting & {ANY_TEXT, *chosen}
    # Any text is posted only where it must be: some text without any of the literals matches.
    assert (posting == {ANY_TEXT}) == holds(expr, frozenset()) == is_posted_as_any_text(expr)
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
    expr = parse("a b OR c d", WORDS)
    assert posting_set(expr, {"a": 2, "b": 1, "c": 4, "d": 4}.__getitem__) == {"b", "c"}


def test_the_literal_reading_of_the_paper_would_miss() -> None:
    expr = parse("(a OR b) AND (c OR d)", WORDS)
    posting = posting_set(expr, {"a": 1, "b": 9, "c": 1, "d": 9}.__getitem__)
    assert posting & {"b", "d"}
    assert hits(expr, posting)


HELD = np.arange(1 << 12)[:, None] >> np.arange(12) & 1 == 1
"""Every choice among twelve literals, bool[4096, 12]."""


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 11), st.booleans()), min_size=1, max_size=4),
        min_size=4,
        max_size=12,
    ),
    st.integers(0, 2**32),
)
@settings(max_examples=300, deadline=None)
def test_postings_of_many_clauses_with_negated_literals(
    clauses: list[list[tuple[int, bool]]], salt: int
) -> None:
    expr = parsed(
        " ".join("(" + " OR ".join("-" * no + f"t{i}" for i, no in c) + ")" for c in clauses)
    )
    if expr is None:
        return
    posting = posting_set(expr, lambda t: hash((t, salt)) % 50)
    truth = np.all([np.any([HELD[:, i] ^ no for i, no in c], axis=0) for c in clauses], axis=0)
    if posting == {ANY_TEXT}:
        assert all(any(no for _, no in c) for c in clauses)
    else:
        met = np.any([HELD[:, int(name[1:])] for name in posting], axis=0)
        assert met[truth].all()


def test_the_cheapest_clause_above_64_conjuncts() -> None:
    clauses = [f"(x{i} OR y{i})" for i in range(7)]
    expr = parse(" AND ".join(clauses), WORDS)
    assert posting_set(expr, lambda t: 0 if t.endswith("3") else 1) == {"x3", "y3"}
    assert posting_set(expr, lambda _: 1) == {"x0", "y0"}


def test_above_64_conjuncts_a_clause_without_negated_literals() -> None:
    clauses = [f"(x{i} OR {'-' * (i != 5)}y{i})" for i in range(8)]
    expr = parse(" AND ".join(clauses), WORDS)
    assert posting_set(expr, lambda t: t.endswith("5")) == {"x5", "y5"}
    expr = parse(" AND ".join(clauses[:5]) + " (x6 OR -y6) (x7 OR -y7)", WORDS)
    assert posting_set(expr, lambda _: 1) == {ANY_TEXT}
