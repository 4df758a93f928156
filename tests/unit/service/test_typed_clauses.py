"""The clauses of an expression as it was typed, against the definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.parser import ExpressionError, parse
from ps2stream.service.typed_clauses import Clause, typed_clause
from tests import naive
from tests.support.expressions import LITERALS, LONG, VOCABULARY, source_of

ANALYZER = Analyzer(Analysis(salt=7))
STEMMED = Analyzer(Analysis(salt=7, stemmer="english"))


def lines(clause: Clause, depth: int = 0) -> list[str]:
    """The clauses as `ps2stream explain` prints them, with their kinds."""
    yes = "yes" if clause.holds else "no"
    found = [f"{'  ' * depth}{yes} {clause.kind} {clause.text}"]
    for part in clause.parts:
        found += lines(part, depth + 1)
    return found


def clause_of(source: str, text: str, analyzer: Analyzer = ANALYZER) -> Clause:
    return typed_clause(source, analyzer, analyzer.text_words(text))


@pytest.mark.parametrize(
    ("source", "text", "want"),
    [
        ("Flood", "a flood", ["yes term Flood"]),
        (
            "flood (river OR -Creek)",
            "flood in the creek",
            [
                "no and flood (river OR -Creek)",
                "  yes term flood",
                "  no or river OR -Creek",
                "    no term river",
                "    no not -Creek",
                "      yes term Creek",
            ],
        ),
        (
            "“Rising  water” NOT  flood*",
            "water rising, flooding",
            [
                "no and “Rising  water” NOT  flood*",
                "  no phrase “Rising  water”",
                "    yes term rising",
                "    yes term water",
                "  no not NOT  flood*",
                "    yes prefix flood*",
            ],
        ),
        (
            "Bristol-Temple",
            "bristol temple meads",
            ["yes phrase Bristol-Temple", "  yes term bristol", "  yes term temple"],
        ),
        ('"Flood!"', "flood", ['yes term "Flood!"', "  yes term flood"]),
        (
            "NOT(a OR b)",
            "c",
            ["yes not NOT(a OR b)", "  no or a OR b", "    no term a", "    no term b"],
        ),
        ("NOT -a", "a", ["yes term a"]),
        ("NOT " * 2001 + "a", "a", ["no not " + "NOT " * 2001 + "a", "  yes term a"]),
    ],
)
def test_clauses_of_an_expression(source: str, text: str, want: list[str]) -> None:
    assert lines(clause_of(source, text)) == want


def test_a_stem_is_shown_beside_its_keyword() -> None:
    found = clause_of("Flooding floo*", "they flooded", STEMMED)
    assert lines(found) == [
        "yes and Flooding floo*",
        "  yes term Flooding",
        "    yes term flood",
        "  yes prefix floo*",
    ]


@given(
    source_of(st.sampled_from(LITERALS)),
    st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join),
)
@settings(max_examples=400, deadline=None)
def test_clauses_hold_as_the_definition_says(source: str, text: str) -> None:
    try:
        parse(source, ANALYZER)
    except ExpressionError:
        return
    clause = clause_of(source, text)
    assert clause.holds == naive.satisfied(source, text)
    parts = [clause]
    for part in parts:
        parts.extend(part.parts)
        assert part.text in source or part.text in ANALYZER.sequence(source)
        held = [p.holds for p in part.parts]
        if part.kind in ("and", "or", "not"):
            want = {"and": all(held), "or": any(held), "not": not any(held)}[part.kind]
            assert part.holds == want
        else:
            assert part.holds == naive.satisfied(part.text, text)


@pytest.mark.parametrize("source", LONG, ids=range(len(LONG)))
def test_clauses_of_hostile_expressions_are_messages(source: str) -> None:
    try:
        parse(source, ANALYZER)
    except ExpressionError:
        return
    data = clause_of(source, "t1 t2").SerializeToString()
    assert Clause.FromString(data).holds == naive.satisfied(source, "t1 t2")
