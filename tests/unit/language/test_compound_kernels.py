"""The kernels compile expressions with phrases, prefixes and NOT as the parser does, or leave them
to it."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language import expression
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import CompiledColumn, compile_column
from ps2stream.protocol.frame import strings_to_column
from tests.support.expressions import LETTERS, LONG, sources

PLAIN = Analysis(salt=7)
FOLDED = Analysis(salt=7, fold=("accents", "digits"))
STEMMED = Analysis(salt=7, stemmer="english")
STOPPED = Analysis(salt=7, stop_words="en")
COUNTS = {
    "a": 3,
    "b": 2,
    "c": 2,
    "d": 1,
    "ab": 5,
    "abc": 1,
    "flood": 4,
    "fl": 1,
    "river": 3,
    "and": 9,
    "é": 1,
    "a\U0010ffff": 7,
    "ab\U0010ffffx": 8,
    "東": 1,
    "flooding": 2,
    "zz": 6,
}
LITERALS = [
    *("a", "b", "c", "d", "Flood", "fl*", "ab*", "FLOO*", '"a b"', '"b \t a"', '"a b c"', '"a"'),
    *("e_1", "#f", "zz*", "riv*", '"flood c d"', '"AND or"', "@a", "x_*", "#fl*", "the", "running"),
]
HOSTILE = [
    *("f*", "a**", "a*b", "**", "*", '""', '" "', '"a*"', '"#a"', '"c++ d"', "AND", "OR", "NOT"),
    *("and", "or", "not", "in", "IN", "exists", "EXISTS", "#EXISTS", "in*", "EXISTS*", "AND*"),
    *("NOT*", "#AND", "#NOT*", "NOT NOT a", "NOT -a", "-a", "--a", '-"a b"', "-ab*", "- a", "-#a"),
    *("-AND", "-NOT", "-(a b)", "NOT (a OR b)", "((a))", "()", "(", ")", "a(", "(a)b", "(a OR a)"),
    *("a_b", "_", "__", "_a", "__*", "_x*", "é", "é*", '"é a"', "a-b", "don't", "c++", "c#", "a.b"),
    *("$a", "@", "#", "##b", "x > 3", 'x = "a b"', "x IN (1, 2)", '"a', 'a"', '"a"b', 'a"b"', "~a"),
    *("'a", '"the"', '"of the river"', '"running of"', "\x1c", "\x00", "`a b` = 1", "“a b”", "–a"),
    *("x" * 128, "x" * 129, "x" * 128 + "*", "x" * 129 + "*", '"' + "x" * 129 + ' a"'),
]
CHARACTERS = " abAB\"*-()#@_ .'+$=O R N T1\t"


def check(rows: list[str], analysis: Analysis, counts: dict[str, int] = COUNTS) -> None:
    """Compares all columns and errors with those of an analyser whose rows all go to the parser."""
    analyzer, parser = Analyzer(analysis), Analyzer(analysis)
    parser.simple = False
    frequencies = Frequencies.of(counts, analyzer)
    column = strings_to_column(rows)
    found = compile_column(*column, analyzer, frequencies)
    wanted = compile_column(*column, parser, frequencies)
    assert_equal(found, wanted)


def assert_equal(found: CompiledColumn, wanted: CompiledColumn) -> None:
    for field in fields(CompiledColumn):
        own, other = getattr(found, field.name), getattr(wanted, field.name)
        if field.name == "errors":
            assert [(i, str(e)) for i, e in own] == [(i, str(e)) for i, e in other]
        else:
            assert own.dtype == other.dtype
            assert own.tolist() == other.tolist(), field.name


def make_source(rng: random.Random) -> str:
    """A source of one of the forms, or nearly."""
    choice = rng.random()
    if choice < 0.2:
        return "".join(rng.choices(CHARACTERS, k=rng.randint(1, 14)))
    joint = rng.choice([" AND ", " OR ", " ", "\t "])
    if choice < 0.45:
        return joint.join(rng.choices([*LITERALS, *HOSTILE], k=rng.randint(1, 5)))
    items = [rng.choice(["", "", "NOT ", "-"]) + x for x in rng.sample(LITERALS, rng.randint(0, 4))]
    if choice < 0.9:
        inner = rng.choice([" OR ", " OR ", " AND ", " "])
        items.append("(" + inner.join(rng.choices(LITERALS, k=rng.randint(1, 4))) + ")")
    if rng.random() < 0.1:
        items.append("( " + rng.choice([" OR ", " "]).join(rng.sample(LITERALS, 2)) + ")")
    rng.shuffle(items)
    return joint.join(items)


@pytest.mark.takes_turns
@pytest.mark.parametrize("analysis", [PLAIN, FOLDED, STEMMED, STOPPED])
def test_random_sources_give_what_the_parser_gives(analysis: Analysis) -> None:
    rng = random.Random(str(analysis))
    check([make_source(rng) for _ in range(1500)], analysis)


@given(st.lists(sources, max_size=6))
@settings(max_examples=60, deadline=None)
def test_hostile_sources_give_what_the_parser_gives(rows: list[str]) -> None:
    check(rows, PLAIN)


@given(
    st.lists(st.sampled_from(LITERALS), min_size=2, max_size=5, unique=True),
    st.dictionaries(st.sampled_from([*COUNTS, "f", "e_1", "or"]), st.integers(0, 3)),
    st.integers(0, 4),
)
@settings(max_examples=60, deadline=None)
def test_postings_follow_the_frequencies(
    some: list[str], counts: dict[str, int], split: int
) -> None:
    """With many ties."""
    rows = [" ".join(some), " OR ".join(some), f"{' '.join(some[:split])} ({' OR '.join(some)})"]
    rows.append(f"({' OR '.join(some[:split])}) {' '.join(some[split:])} NOT h")
    check(rows, PLAIN, counts)


def test_the_longest_sources_give_what_the_parser_gives() -> None:
    words = [f"{x}{'y' * 100}" for x in LETTERS]
    prefixes = [f"{x}*" for x in LETTERS]
    rows = [*LONG, *HOSTILE, " ".join(prefixes), " ".join([*prefixes, "a"])]
    for n in (63, 64, 65):
        rows.append('"' + " ".join(["a"] * n) + '" b')
        rows.append(" ".join(f"-{x}" for x in LETTERS[: n - 1]) + " ab*")
        rows.append(" OR ".join(['"a b"', *(f"w{i}" for i in range(n - 1))]))
        rows.append(f"({' OR '.join(f'w{i}' for i in range(n - 1))}) -ab")
    for n in (2, 15, 16, 17, 18, 40):
        for size in (0, 1, 2, 3, 4, 5, 30):
            rows.append(
                f"({' OR '.join(words[:n])}) NOT {' NOT '.join([*words[n : n + size], 'a'])}"
            )
            rows.append(f"({' OR '.join(prefixes[:n])}) {' '.join(LETTERS[n : n + size])}")
    # So many that the parser gives their normal form up, with room for it.
    short = [f"{x}{y}" for x in "stuvwxyz" for y in "abcdefgh"]
    rows += [f"({' OR '.join(short[:n])}) {' '.join(short[n:])}{' ' * 2000}" for n in (16, 17, 40)]
    # Around the limit of the canonical form.
    at_limit = [f"(a OR {'b' * n}) NOT " + " NOT ".join(words[:36]) for n in range(70, 128)]
    rows += [*at_limit, "ab* " + "a " * 4095, '"a b"' + " " * 8187, '"a b"' + " " * 8188]
    check(rows, PLAIN)


def test_terms_of_one_hash_are_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    analyzer = Analyzer(PLAIN)
    analyzer.keys = np.zeros_like(analyzer.keys)
    seen = list[str]()
    slowly = expression._compile_slowly

    def compile_seen(found: list[str], *more: Any) -> object:
        seen.extend(found)
        return slowly(found, *more)

    monkeypatch.setattr(expression, "_compile_slowly", compile_seen)
    rows = ["a -b", "ab* ac*", "(a OR b) c", "ab* c"]
    compile_column(*strings_to_column(rows), analyzer, Frequencies.of({}, analyzer))
    assert seen == rows[:3]


@pytest.mark.parametrize(
    "source",
    [
        'River AND "Rising  water"',
        '"a b"',
        "flood*",
        "bb* OR a",
        "(b OR a) NOT c",
        "(b OR a) AND NOT c -dd* fl*",
        '#a -"b c"',
        "(b AND a) NOT c",
        "(a) NOT c",
        "a NOT c",
        '"a"',
        "a (bb* OR c OR d)",
    ],
)
def test_usual_forms_need_no_parser(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check([source], PLAIN)
    monkeypatch.setattr(expression, "_compile_slowly", None)
    analyzer = Analyzer(PLAIN)
    compile_column(*strings_to_column([source, "a"]), analyzer, Frequencies.of({}, analyzer))
