"""The tables of words in docs/queries.md hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ps2stream.foldings import FOLDINGS
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.batch_tokenizer import split_text
from ps2stream.language.tokenizer import split
from tests import naive

PAGE = Path(__file__).parents[3] / "docs" / "queries.md"


def table_rows(header: str) -> list[list[list[str]]]:
    """The cells of the table under a header, each as what it has in backquotes."""
    lines = PAGE.read_text("utf-8").split(header + "\n", 1)[1].splitlines()
    rows = []
    for line in lines[1:]:
        if not line.startswith("|"):
            break
        rows.append([re.findall("`([^`]+)`", cell) for cell in line.strip("|").split("|")])
    return rows


WORDS = table_rows("| text | words | side words | Lucene's StandardAnalyzer |")


def test_the_table_is_there() -> None:
    assert len(WORDS) >= 18


@pytest.mark.parametrize("row", WORDS, ids=[row[0][0] for row in WORDS])
def test_words_of_a_text(row: list[list[str]]) -> None:
    (text,), words, side, _ = row
    sequence, beside = naive.words(text)
    assert list(sequence) == words
    assert beside == set(side)
    for found in (split(text), split_text(text)):
        assert found.sequence == words
        pairs = zip(found.tokens, found.is_side, strict=True)
        assert [token for token, is_side in pairs if is_side] == side


def test_foldings_by_choice() -> None:
    rows = table_rows("| name | folds | example |")
    assert [name for (name,), *_ in rows] == list(FOLDINGS)
    for (name,), _, examples in rows:
        analyzer = Analyzer(Analysis(7, fold=(name,)))
        for given, want in zip(examples[::2], examples[1::2], strict=True):
            assert analyzer.sequence(given) == [want] != Analyzer(Analysis(7)).sequence(given)
