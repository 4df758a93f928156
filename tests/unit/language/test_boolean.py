"""Normal forms: the conjuncts of an expression, and the budget of finding them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language import boolean
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.boolean import Expr, Term, conjuncts, terms_of
from ps2stream.language.parser import ExpressionError, parse
from tests.support.expressions import LETTERS, LONG, source_of

ANALYZER = Analyzer(Analysis(salt=7))


def evaluate(expr: Expr, has: frozenset[str]) -> bool:
    if isinstance(expr, Term):
        return (expr.literal in has) != expr.negated
    parts = [evaluate(x, has) for x in expr.args]
    return all(parts) if isinstance(expr, boolean.And) else any(parts)


@given(source_of(st.sampled_from(["a", "b", "c", '"a b"', "ab*"])))
@settings(max_examples=300, deadline=None)
def test_conjuncts_are_the_expression(source: str) -> None:
    try:
        expr = parse(source, ANALYZER)
    except ExpressionError:  # nested too deeply, or it can match nothing
        return
    found = conjuncts(expr)
    assert found
    for one, other in product(found, repeat=2):
        assert one is other or not set(one) <= set(other)
    names = sorted(terms_of(expr))
    for held in product([False, True], repeat=len(names)):
        has = frozenset(n for n, there in zip(names, held, strict=True) if there)
        truth = any(all((t.literal in has) != t.negated for t in c) for c in found)
        assert truth == evaluate(expr, has)
    for conjunct in found:
        assert len({t.literal for t in conjunct}) == len(conjunct)


@pytest.mark.parametrize("operator", [" AND ", " OR "])
@pytest.mark.parametrize("count", [2, 5, 33, 60])
def test_terms_alone_are_expanded_as_in_parentheses(operator: str, count: int) -> None:
    terms = [Term(f"w{i:02}", i % 3 == 0) for i in range(count)]
    for more in ([], [Term("w02", True)], [Term(x.literal, not x.negated) for x in terms]):
        join = boolean.all_of if operator == " AND " else boolean.any_of
        expr = join([*terms, *more])
        literals = sorted(terms_of(expr))
        both = [Term(x, negated) for negated in (False, True) for x in literals]
        found = boolean._ConjunctExpansion({t: 1 << i for i, t in enumerate(both)}).of(expr)
        expected = None
        if found is not None:
            expected = tuple(
                tuple(t for i, t in enumerate(both) if mask >> i & 1) for mask in sorted(found)
            )
        assert conjuncts(expr) == expected


@pytest.mark.parametrize("source", LONG, ids=range(len(LONG)))
def test_an_expansion_stops_at_its_budget(source: str) -> None:
    try:
        expr = parse(source, ANALYZER)
    except ExpressionError:
        return
    literals = sorted(terms_of(expr))
    terms = [Term(x, negated) for negated in (False, True) for x in literals]
    expansion = boolean._ConjunctExpansion({t: 1 << i for i, t in enumerate(terms)})
    over = expansion.of(expr) is None
    assert expansion.left > -(64**2)  # the step that broke it
    assert over or expansion.left >= 0


def test_what_is_over_the_budget_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    expr = parse("(a OR b) (c OR d) (e OR f) (g OR h)", ANALYZER)
    assert len(conjuncts.__wrapped__(expr) or ()) == 16
    monkeypatch.setattr(boolean, "_WORK", 50)
    assert conjuncts.__wrapped__(expr) is None


def test_many_conjuncts_are_not_expanded() -> None:
    pairs = [f"({LETTERS[i]} {LETTERS[j]})" for i in range(13) for j in range(i)]
    for n, expanded in ((64, True), (65, False)):
        found = conjuncts(parse(" OR ".join(pairs[:n]), ANALYZER))
        assert (found is not None) == expanded
        assert not expanded or len(found or ()) == n
