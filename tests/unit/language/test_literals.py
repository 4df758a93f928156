"""Watched literals: what queries note of them, and that texts are found to have exactly those."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.language.literals import NO_LITERALS, LiteralKind, WatchedLiterals, size_prefix
from ps2stream.limits import PHRASE_WORDS, TOKEN_BYTES
from ps2stream.protocol.frame import I16, strings_to_column
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, QueryRows
from tests.support.routing import Row, query_rows

PLAIN = Analyzer(Analysis(salt=7))
ENGLISH = Analyzer(Analysis(salt=7, stemmer="english", stop_words="en"))
# As typed, folded, and as a term of ENGLISH (None: a stop word).
WORDS = [
    ("Flood", "flood", "flood"),
    ("flooding", "flooding", "flood"),
    ("the", "the", None),
    ("École", "école", "école"),
    ("ｆｌｏｗ", "flow", "flow"),
    ("東", "東", "東"),
    ("👍", "👍", "👍"),
    ("w" * 140, "w" * TOKEN_BYTES, "w" * TOKEN_BYTES),
]
PREFIXES = ["fl", "floo", "flood", "floodin", "éc", "éco", "wwww", "w" * TOKEN_BYTES, "th", "zz"]


def watch(phrases: dict[int, int], prefixes: dict[int, int]) -> WatchedLiterals:
    """Literals by term: the words of a phrase, the size of a prefix."""
    kinds = [LiteralKind.PHRASE] * len(phrases) + [LiteralKind.PREFIX] * len(prefixes)
    return WatchedLiterals(
        np.array([*phrases, *prefixes], np.uint64),
        np.array(kinds, np.uint8),
        np.array([*phrases.values(), *prefixes.values()], np.uint16),
    )


def with_programs(rows: QueryRows, programs: list[list[int]]) -> QueryRows:
    off = np.zeros(len(programs) + 1, np.int64)
    off[1:] = np.cumsum([len(p) for p in programs])
    prog: I16 = np.array([v for p in programs for v in p], np.int16)
    return rows.replace(prog_off=off, prog=prog)


@pytest.mark.parametrize("analyzer", [PLAIN, ENGLISH], ids=["plain", "english"])
@pytest.mark.parametrize("seed", range(20))
def test_texts_have_exactly_the_watched_phrases_and_prefixes_that_hold(
    analyzer: Analyzer, seed: int
) -> None:
    rng = random.Random(seed)
    rows = [rng.choices(WORDS, k=rng.choice([0, 1, 2, 3, 8, 100])) for _ in range(12)]
    texts = [rng.choice([" ", ", ", "\n"]).join(word[0] for word in row) for row in rows]
    named: dict[int, tuple[str, ...]] = {}
    phrases: dict[int, int] = {}
    pool = [word[1] if analyzer is PLAIN else word[2] for word in WORDS]
    known = [word for word in pool if word is not None]
    for size in rng.choices([2, 3, 4, PHRASE_WORDS], k=12):
        phrase = tuple(rng.choices(known, k=size))
        one = analyzer.phrase_hash(phrase)
        named[one], phrases[one] = phrase, size
    for row in rows[:3]:  # some that do occur
        words = [w for w in (x[1] if analyzer is PLAIN else x[2] for x in row) if w is not None]
        for size in (2, 5, PHRASE_WORDS):
            if len(words) >= size:
                at = rng.randrange(len(words) - size + 1)
                one = analyzer.phrase_hash(words[at : at + size])
                named[one], phrases[one] = tuple(words[at : at + size]), size
    of_prefix = {analyzer.prefix_hash(p): p for p in rng.sample(PREFIXES, 6)}
    literals = watch(phrases, {term: size_prefix(p) for term, p in of_prefix.items()})
    off, term = analyzer.analyse(*strings_to_column(texts), literals=literals.view())
    plain_off, plain = analyzer.analyse(*strings_to_column(texts))
    for i, row in enumerate(rows):
        got = term[off[i] : off[i + 1]].tolist()
        assert got == sorted(set(got))
        sequence = [w for w in (x[1] if analyzer is PLAIN else x[2] for x in row) if w is not None]
        want = {
            t
            for t, phrase in named.items()
            if any(
                tuple(sequence[a : a + len(phrase)]) == phrase
                for a in range(len(sequence) - len(phrase) + 1)
            )
        }
        want |= {t for t, p in of_prefix.items() if any(w[1].startswith(p) for w in row)}
        assert set(got) == want | set(plain[plain_off[i] : plain_off[i + 1]].tolist())


def test_one_row_of_a_column_does_not_lend_its_words_to_the_next() -> None:
    term = PLAIN.phrase_hash(["rising", "water"])
    view = watch({term: 2}, {}).view()
    for texts in (["rising", "water"], ["東 rising", "water 東"], ["rising 東", "water"]):
        _, found = PLAIN.analyse(*strings_to_column(texts), literals=view)
        assert term not in found.tolist()


def test_nothing_is_searched_for_without_literals() -> None:
    texts = strings_to_column(["Rising water", "東京"])
    for given in (NO_LITERALS, watch({}, {}).view()):
        for a, b in zip(PLAIN.analyse(*texts), PLAIN.analyse(*texts, literals=given), strict=True):
            assert a.tolist() == b.tolist()


def test_a_literal_has_another_term_than_its_words() -> None:
    flood, water = PLAIN.hash_terms(["flood", "water"]).tolist()
    terms = [
        flood,
        water,
        int(TOP),
        PLAIN.phrase_hash(["flood", "water"]),
        PLAIN.phrase_hash(["water", "flood"]),
        PLAIN.phrase_hash(["flood", "flood"]),
        PLAIN.phrase_hash(["flood", "flood", "flood"]),
        PLAIN.prefix_hash("flood"),
        PLAIN.prefix_hash("water"),
    ]
    assert len(set(terms)) == len(terms)


def test_the_notes_of_queries_are_their_watched_literals() -> None:
    rows = query_rows(
        [Row((10, 20, 30), (0,)), Row((40,), (0,)), Row((50, 60), (1,)), Row((7,), (0,))]
    )
    rows = with_programs(
        rows,
        [
            [0, 1, PROG_NOT, PROG_AND, 1 | 1 << 8, 3, 2 | 2 << 8, 128, PROG_NOTES - 2],
            [],
            [0, 1, PROG_AND],
            [0 | 2 << 8, 5, PROG_NOTES - 1],
        ],
    )
    found = WatchedLiterals.of(rows)
    assert [column.tolist() for column in found] == [[20, 30, 7], [1, 2, 2], [3, 128, 5]]
    some = WatchedLiterals.of(rows.take(np.array([3, 1])))
    assert [column.tolist() for column in some] == [[7], [2], [5]]


def test_rows_of_any_number_keep_their_terms_sorted() -> None:
    phrase = PLAIN.phrase_hash(["b", "a"])
    view = watch({phrase: 2}, {}).view()
    texts = ["b a " * 60, "東 b a", "", "b a"]
    off, term = PLAIN.analyse(*strings_to_column(texts), literals=view)
    for a, b in pairwise(off.tolist()):
        assert term[a:b].tolist() == sorted(set(term[a:b].tolist()))
    assert [phrase in term[a:b].tolist() for a, b in pairwise(off.tolist())] == [1, 1, 0, 1]
