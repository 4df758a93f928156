"""Phrases of texts that repeat themselves: each is found, and none is looked for each time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.area_kernels import ANYWHERE, AREA_WORDS
from ps2stream.language.literal_kernels import list_phrases, phrase_term, recent_size
from ps2stream.language.literals import LiteralKind, WatchedLiterals
from ps2stream.language.search_kernels import add_phrases
from ps2stream.limits import PHRASE_WORDS
from ps2stream.protocol.frame import U64, strings_to_column

ANALYZER = Analyzer(Analysis(salt=7))


def watch(sizes: dict[int, int]) -> WatchedLiterals:
    """Phrases, by their terms and sizes."""
    return WatchedLiterals(
        np.array([*sizes], np.uint64),
        np.full(len(sizes), LiteralKind.PHRASE, np.uint8),
        np.array([*sizes.values()], np.uint16),
        np.full((len(sizes), AREA_WORDS), ~np.uint64(0)),
    )


def repeat_words(rng: random.Random, most: int) -> list[str]:
    """Words of a few, stretches of which come again, some with another word within."""
    pool = [f"w{i}" for i in range(rng.choice([1, 2, 5, 40]))]
    words = rng.choices(pool, k=rng.randrange(1, 30))
    while len(words) < most:
        begin = rng.randrange(len(words))
        again = (words[begin:] * 20)[: rng.randrange(1, 200)]
        if rng.random() < 0.5:
            again[rng.randrange(len(again))] = rng.choice(pool)
        words += again
    return words


def take_phrases(rng: random.Random, words: list[str], longest: int) -> dict[int, tuple[str, ...]]:
    """Phrases, most of which a text has, by their terms."""
    found = {}
    for _ in range(300):
        size = rng.randrange(2, longest + 1)
        begin = rng.randrange(max(len(words) - size, 1))
        phrase = words[begin : begin + size]
        if rng.random() < 0.3:
            phrase[rng.randrange(len(phrase))] = rng.choice(words)
        if len(phrase) > 1:
            found[ANALYZER.phrase_hash(phrase)] = tuple(phrase)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_texts_that_repeat_themselves_have_exactly_the_phrases_that_occur(seed: int) -> None:
    rng = random.Random(seed)
    rows = [repeat_words(rng, rng.choice([3, 80, 1500])) for _ in range(4)]
    longest = rng.choice([3, 4, 9, PHRASE_WORDS])
    named = take_phrases(rng, rows[0], longest) | take_phrases(rng, rows[1], longest)
    literals = watch({term: len(phrase) for term, phrase in named.items()}).view()
    texts = strings_to_column([" ".join(words) for words in rows])
    off, term = ANALYZER.analyse(*texts, literals=literals)
    plain_off, plain = ANALYZER.analyse(*texts)
    for i, words in enumerate(rows):
        have = {
            tuple(words[a : a + size])
            for size in {len(p) for p in named.values()}
            for a in range(len(words) - size + 1)
        }
        want = {t for t, phrase in named.items() if phrase in have}
        want |= set(plain[plain_off[i] : plain_off[i + 1]].tolist())
        assert set(term[off[i] : off[i + 1]].tolist()) == want


def test_a_text_that_repeats_many_phrases_has_each_about_once() -> None:
    rng = np.random.default_rng(1)
    period: U64 = rng.integers(1, 1 << 63, 20, np.uint64)
    words = np.tile(period, 700)
    sizes = {
        int(phrase_term(words[i : i + size])): size
        for i in range(len(period))
        for size in range(2, PHRASE_WORDS + 1)
    }
    view = watch(sizes).view()
    searched = view.term, view.words, view.heads, view.area, view.seen
    recent = np.zeros(recent_size(view.words), np.uint64)
    found = np.zeros(len(words) * PHRASE_WORDS, np.uint64)
    anywhere = np.int64(ANYWHERE)
    for _ in range(2):  # of another text nothing is left that matters
        n = add_phrases(searched, anywhere, words, 0, len(words), recent, found, 0)
        assert set(found[:n].tolist()) == set(sizes)
        assert n < 2 * len(sizes), "otherwise there are 800,000"
    assert list_phrases(searched, anywhere, words, 0, 1, recent, found, 0) == 0
