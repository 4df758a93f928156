"""The texts of watched literals, from objects that have them: those that their hashes say."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import watch_literals
from ps2stream.language.literal_names import name_literals
from ps2stream.language.literals import WatchedLiterals
from ps2stream.language.pairs import pair_text
from ps2stream.language.predicates import equality_text
from ps2stream.protocol.frame import strings_to_column
from tests.naive_predicates import Scalar
from tests.support.attributes import (
    EPOCH,
    INFINITIES,
    INTEGERS,
    NAMES,
    TEXTS,
    opaque_column,
    values_of,
)

ANALYSES = [
    Analysis(salt=5),
    Analysis(salt=6, stemmer="english", stop_words="en", fold=("accents",)),
]
NONE = np.zeros(0, np.int64), np.zeros(0, np.uint8)


def named(
    analyzer: Analyzer, literals: list[str], text: str, attributes: dict[str, Scalar]
) -> set[str]:
    """The names that one object gives, which is not the first one."""
    texts, opaque = strings_to_column(["", text]), opaque_column([{}, attributes])
    watched = watch_literals(analyzer, literals)
    found = name_literals(watched, texts, opaque, analyzer)
    terms = dict(zip(watched.term.tolist(), literals, strict=True))
    assert all(terms[term] == name for term, name in found.items())
    return {*found.values()}


@pytest.mark.parametrize("analysis", ANALYSES, ids=["simple", "stemmed"])
def test_each_kind_is_found_where_an_object_has_it(analysis: Analysis) -> None:
    held = ['"flood warn"', "floo*", "warn*", "ra*", 'a = "x"', "mag EXISTS", "mag COMPARED"]
    held += ['(a = "x" AND mag = 3)', "mag = 3"]
    lacking = ['"warn flood"', "flu*", 'a = "y"', "nag EXISTS", '(a = "x" AND mag = 4)']
    text = "Flood warn(s), éra rains; Flood warn"
    found = named(Analyzer(analysis), held + lacking, text, {"a": "x", "mag": 3, "b": True})
    assert found == {*held}


def test_a_phrase_counts_words_as_they_are_analysed() -> None:
    stemmed = Analyzer(ANALYSES[1])
    words = stemmed.keyword("floods and the warnings")
    assert named(stemmed, [f'"{" ".join(words)}"'], "the flooding and warning", {})
    assert not named(stemmed, [f'"{" ".join(words)}"'], "warning and flooding", {})


def test_prefixes_are_cut_between_letters() -> None:
    analyzer = Analyzer(ANALYSES[0])
    assert named(analyzer, ["éé*", "ééx*", "aéb*"], "ééxy aéc aéb", {}) == {"éé*", "ééx*", "aéb*"}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_drawn_is_named(seed: int) -> None:
    """Every equality and every pair of equalities of attributes of any name and type."""
    rng, analyzer = random.Random(seed), Analyzer(ANALYSES[0])
    values: list[Scalar] = [*rng.sample(INTEGERS, 4), *rng.sample(TEXTS, 4), True, 0.5, EPOCH]
    names = rng.sample(NAMES, 6)
    attributes: dict[str, Scalar] = {name: rng.choice(values) for name in names}
    texts = [equality_text(n, v) for n, v in values_of(attributes).items()]
    equal = [text for text in texts if text is not None]
    pairs = [pair_text(a, b) for i, a in enumerate(equal) for b in equal[:i]]
    assert named(analyzer, equal + pairs, "w", attributes) == {*equal, *pairs}


def test_what_no_expression_can_say_has_no_name() -> None:
    analyzer = Analyzer(ANALYSES[0])
    found = named(analyzer, ["mag COMPARED", "mag EXISTS"], "w", {"mag": INFINITIES[0]})
    assert found == {"mag COMPARED", "mag EXISTS"}


def test_objects_without_attributes_and_without_literals() -> None:
    analyzer = Analyzer(ANALYSES[0])
    texts = strings_to_column(["rising water"])
    watched = watch_literals(analyzer, ['"rising water"'])
    assert [*name_literals(watched, texts, NONE, analyzer).values()] == ['"rising water"']
    none = WatchedLiterals.everywhere_of(watched.term[:0], watched.kind[:0], watched.size[:0])
    assert name_literals(none, texts, NONE, analyzer) == {}
