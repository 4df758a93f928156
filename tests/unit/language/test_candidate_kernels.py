"""What is found of literals in areas, batch by batch, is what the definition says, text by text."""

from __future__ import annotations

import random
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest

from ps2stream.language import analyzer_kernels
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.area_kernels import ANYWHERE, AREA_WORDS
from ps2stream.language.literal_texts import phrase_text, prefix_text
from ps2stream.language.literals import LiteralKind, WatchedLiterals, size_prefix
from ps2stream.protocol.frame import U16, strings_to_column

PLAIN = Analyzer(Analysis(salt=5))
ENGLISH = Analyzer(Analysis(salt=5, stemmer="english", stop_words="en"))
PARTS = [
    "a",
    "b",
    "aa",
    "ab",
    "the",
    "É",
    "東",
    "👍🏽",
    "1",
    "_",
    "'s",
    ".",
    "++",
    "#",
    "ｗ",
    "ß",
    "abab",
]
LONGEST = 64 << 10  # bytes


def make_word(rng: random.Random) -> str:
    return "".join(rng.choices(PARTS, k=rng.choice((1, 1, 2, 3, 5, 9))))


def make_texts(rng: random.Random) -> list[str]:
    """Texts of a batch, more words than kernels look at together, of words that begin alike."""
    words = [make_word(rng) for _ in range(30)]
    texts = [" ".join(rng.choices(words, k=rng.choice((0, 1, 2, 3, 7)))) for _ in range(150)]
    texts += [rng.choice(PARTS) for _ in range(20)] + ["", " ".join(["ab"] * 700), "a a b a a b a"]
    texts += ["\x00", "aa\u200daa", "e\u0301a", "x" * 300]
    rng.shuffle(texts)
    return texts


def make_literals(
    analyzer: Analyzer, texts: list[str], rng: random.Random
) -> dict[int, tuple[str, int, int]]:
    """Phrases and prefixes by their term: the literal's text, its kind and its size."""
    found = dict[int, tuple[str, int, int]]()
    for text in rng.sample(texts, 60):
        words = analyzer.text_words(text)
        size = rng.choice((2, 2, 2, 3, 5))
        if len(words.sequence) >= size:
            at = rng.randrange(len(words.sequence) - size + 1)
            phrase = words.sequence[at : at + size]
            term = analyzer.phrase_hash(phrase)
            found[term] = phrase_text(phrase), LiteralKind.PHRASE, size
        for word in rng.sample(sorted(words.plain), min(2, len(words.plain))):
            prefix = word[: rng.randrange(1, 12)]
            if len(prefix) > 1 and prefix[-1] not in "+#":  # which no prefix has
                term = analyzer.prefix_hash(prefix)
                found[term] = prefix_text(prefix), LiteralKind.PREFIX, size_prefix(prefix)
    return found


@pytest.mark.parametrize("analyzer", [PLAIN, ENGLISH], ids=["plain", "english"])
@pytest.mark.parametrize("seed", range(6))
def test_texts_have_exactly_what_is_watched_in_their_area(analyzer: Analyzer, seed: int) -> None:
    rng = random.Random(seed)
    texts = make_texts(rng)
    named = make_literals(analyzer, texts, rng)
    areas = {term: rng.sample(range(256), rng.choice((5, 32, 33, 90, 256))) for term in named}
    bits = np.zeros((len(named), AREA_WORDS), np.uint64)
    for i, own in enumerate(areas.values()):
        for one in own:
            bits[i, one >> 6] |= np.uint64(1) << np.uint64(one & 63)
    kinds, sizes = zip(*((kind, size) for _, kind, size in named.values()), strict=True)
    view = WatchedLiterals(
        np.array(list(named), np.uint64),
        np.array(kinds, np.uint8),
        np.array(sizes, np.uint16),
        bits,
    ).view()
    column, held = strings_to_column(texts), 0
    plain_off, plain = analyzer.analyse(*column)
    for place in ("areas", "anywhere among them"):
        area: U16 = np.array([rng.randrange(256) for _ in texts], np.uint16)
        if place != "areas":
            area[rng.sample(range(len(texts)), 40)] = ANYWHERE
        off, term = analyzer.analyse(*column, literals=view, area=area)
        for i, text in enumerate(texts):
            got, words = term[off[i] : off[i + 1]].tolist(), analyzer.text_words(text)
            here = int(area[i])
            want = {
                t for t, (literal, _, _) in named.items()
                if (here == ANYWHERE or here in areas[t]) and words.has(literal)
            }  # fmt: skip
            held += len(want)
            want |= set(plain[plain_off[i] : plain_off[i + 1]].tolist())
            assert got == sorted(want), (text, place)
    assert held > 100


def test_a_long_text_among_short_ones_has_what_is_watched() -> None:
    """A text of 64 KB goes through many pieces of a batch, its neighbours lie at their edges."""
    words = [f"w{i % 97}x{i}" for i in range(LONGEST // 8)]
    texts = ["w1x1 w2x2", " ".join(words), "", "last w5x5 w6x6"]
    phrases = [("w1x1", "w2x2"), ("w5x5", "w6x6"), (words[511], words[512]), (words[-1], "last")]
    terms = [PLAIN.phrase_hash(phrase) for phrase in phrases]
    prefix = PLAIN.prefix_hash("w9")
    view = WatchedLiterals(
        np.array([*terms, prefix], np.uint64),
        np.array([LiteralKind.PHRASE] * 4 + [LiteralKind.PREFIX], np.uint8),
        np.array([2] * 4 + [size_prefix("w9")], np.uint16),
        np.full((5, AREA_WORDS), 2, np.uint64),
    ).view()
    area = np.full(4, 1, np.uint16)
    off, term = PLAIN.analyse(*strings_to_column(texts), literals=view, area=area)
    rows = [set(term[a:b].tolist()) for a, b in pairwise(off.tolist())]
    assert [[t in row for t in (*terms, prefix)] for row in rows] == [
        [True, False, False, False, False],
        [True, True, True, False, True],
        [False] * 5,
        [False, True, False, False, False],
    ]


@pytest.mark.parametrize("areas", [2, 2**64 - 1], ids=["in an area", "everywhere"])
@pytest.mark.parametrize("size", [2, 3, 4, 7, 63, 64])
def test_a_phrase_that_is_watched_alone_is_found_wherever_it_stands(size: int, areas: int) -> None:
    """No other phrase of the texts is watched, which would make the search look at them."""
    phrase = [f"w{i}" for i in range(size)]
    before, inner, behind = "x y " * 3, " ".join(phrase), " x y" * 3
    texts = [
        *(inner, before + inner, inner + behind, before + inner + behind),
        *(before + " ".join(phrase[:-1]), "w" + inner, inner + "0", " ".join(phrase[1:]) + behind),
        *(" ".join(phrase[:-1]), phrase[-1]),
    ]
    term, others = PLAIN.phrase_hash(phrase), 300  # of no text, in another area
    watched = np.random.default_rng(size).integers(1, 1 << 63, others + 1, np.uint64)
    bits = np.full((others + 1, AREA_WORDS), 4, np.uint64)
    watched[-1], bits[-1] = term, areas
    kind = np.full(others + 1, LiteralKind.PHRASE, np.uint8)
    view = WatchedLiterals(watched, kind, np.full(others + 1, size, np.uint16), bits).view()
    area = np.full(len(texts), 1, np.uint16)
    off, terms = PLAIN.analyse(*strings_to_column(texts), literals=view, area=area)
    found = [term in terms[a:b].tolist() for a, b in pairwise(off.tolist())]
    assert found == [True] * 4 + [False] * 6


def test_long_prefixes_of_letters_that_fold_to_more_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three bytes become four letters, each of which ends a watched prefix of the word and one of
    its piece: more prefixes than twice the bytes. Beyond the room would be other memory."""
    letters = "viii" * 32
    prefixes = [letters[:size] for size in range(9, 128)]
    view = WatchedLiterals.everywhere_of(
        np.array([PLAIN.prefix_hash(prefix) for prefix in prefixes], np.uint64),
        np.full(len(prefixes), LiteralKind.PREFIX, np.uint8),
        np.array([size_prefix(prefix) for prefix in prefixes], np.uint16),
    ).view()
    text = " ".join(["\u2177" * 30 + "_"] * 300)
    given: list[Any] = []

    analyse_rows: Any = analyzer_kernels.analyse_rows

    def keep_arguments(*arguments: Any) -> Any:
        given[:] = arguments
        return analyse_rows(*arguments)

    monkeypatch.setattr(analyzer_kernels, "analyse_rows", keep_arguments)
    plain_off, plain = PLAIN.analyse(*strings_to_column([text]))
    off, term = PLAIN.analyse(*strings_to_column([text]), literals=view)
    *_, found_off, found = given[6]
    assert 2 * len(text.encode()) < found_off[-1] < len(found)
    wanted = {PLAIN.prefix_hash(prefix) for prefix in prefixes if len(prefix) <= 120}
    assert set(term.tolist()) == wanted | set(plain.tolist())
    assert (off[0], plain_off[0]) == (0, 0)


def test_side_words_are_in_no_phrase() -> None:
    """They lie behind the words of their text, so that a pair of neighbours may be no phrase."""
    pairs = [*permutations(["nasa_jpl", "nasa", "jpl", "up"], 2)]
    term = np.array([PLAIN.phrase_hash(list(pair)) for pair in pairs], np.uint64)
    kind, size = np.ones(len(pairs), np.uint8), np.full(len(pairs), 2, np.uint16)
    view = WatchedLiterals.everywhere_of(term, kind, size).view()
    texts = "nasa_jpl", "up nasa_jpl", "nasa_jpl nasa", "jpl"
    column = strings_to_column(texts)
    off, terms = PLAIN.analyse(*column, literals=view)
    found = [set(terms[a:b].tolist()) & set(term.tolist()) for a, b in pairwise(off.tolist())]
    whole = PLAIN.phrase_hash(["up", "nasa_jpl"]), PLAIN.phrase_hash(["nasa_jpl", "nasa"])
    assert found == [set(), {whole[0]}, {whole[1]}, set()]
