"""The table of predicates in docs/queries.md: each row holds and does not hold as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import parse, satisfies
from ps2stream.language.predicate_reader import read_predicates
from ps2stream.language.values import Value

PAGE = Path(__file__).parents[2] / "docs/queries.md"
ANALYZER = Analyzer(Analysis(salt=7))
CODE = r"``? ?(.+?) ?``?"


def list_rows() -> list[tuple[str, str, str]]:
    """The predicate, what it holds for, and what it does not hold for."""
    section = PAGE.read_text().split("## Predicates")[1].split("## Text")[0]
    rows = [
        line.strip("|\n").split(" | ") for line in section.splitlines() if line.startswith("| `")
    ]
    assert len(rows) > 6
    return [(expression.strip(), yes, no) for expression, yes, no in rows]


def attributes_of(said: str) -> dict[str, Value]:
    """The attributes that a cell names: `severity 3`, or none."""
    written = re.fullmatch(r"`([a-z ]+) (\S+)`", said.strip())
    if written is None:
        assert said.strip().startswith("no ")
        return {}
    [predicate] = read_predicates(f"`{written[1]}` = {written[2]}")
    assert predicate.value is not None
    return {predicate.name: predicate.value}


@pytest.mark.parametrize("row", list_rows(), ids=lambda row: row[0])
def test_predicates_hold_as_the_table_says(row: tuple[str, str, str]) -> None:
    written = re.fullmatch(CODE, row[0])
    assert written is not None
    tree = parse(written[1], ANALYZER)
    for cell, holds in ((row[1], True), (row[2], False)):
        for said in cell.split(","):
            words = ANALYZER.text_words("", attributes_of(said))
            assert satisfies(tree, words) is holds, said
