"""Queries of a workload that say a phrase, a prefix or NOT, and their twins of plain words.

Of the queries that are changed a third gets a phrase of two words that are side by side in some
post, and a third a prefix of three to six letters, in the place of one of its words; a third must
not have a frequent word. Phrases and the words of prefixes are drawn as often as posts have them,
as keywords are. The twin of such a query has a word instead that as many posts have, so that both
have as many matches in the same region, and all else is equal.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from ps2stream.benchmarks.workload import Workload
from ps2stream.errors import invalid
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literal_texts import phrase_text, prefix_text
from ps2stream.protocol.frame import I64, Array, column_to_strings

_FREQUENT: Final = 100  # words, one of which must not be there
_LETTERS: Final = 3, 6  # of a prefix
_PHRASE, _PREFIX, _NEGATED = range(3)


class LiteralTwins(NamedTuple):
    """A workload some of whose queries say more than words, and the same with words instead."""

    literal: Workload
    plain: Workload


def make_twins(load: Workload, share: float, analyzer: Analyzer, seed: int) -> LiteralTwins:
    """Returns the twins of which so large a share of the queries differs. Raises InvalidArgument if
    the posts have no phrase or no prefix."""
    rng, counts = np.random.default_rng([seed, 8]), _PostCounts(load, analyzer)
    word, every = load.interests.word.copy(), load.interests.every
    rows = np.flatnonzero(rng.random(len(word)) < share)
    kind = rng.integers(0, 3, len(rows))
    column = (rng.random(len(rows)) * (word[rows] >= 0).sum(1)).astype(np.int64)
    words, without = list(load.words), np.full(len(word), -1, np.int32)
    twin = word.copy()
    for drawn, its_kind in ((counts.phrases, _PHRASE), (counts.prefixes, _PREFIX)):
        if not len(drawn.text):
            raise invalid("workload", f"no post has what a literal of kind {its_kind} is made of")
        at, where = rows[kind == its_kind], column[kind == its_kind]
        chosen = drawn.draw(len(at), rng)
        word[at, where] = len(words) + chosen
        twin[at, where] = counts.find_words(drawn.posts[chosen], rng)
        words += drawn.text
    at, where = rows[kind == _NEGATED], column[kind == _NEGATED]
    banned = counts.frequent.draw(len(at), rng)
    number = counts.frequent_words[banned]
    differs = (word[at] != number[:, None]).all(1)
    at, where, banned, number = at[differs], where[differs], banned[differs], number[differs]
    without[at] = number
    left = 1 - counts.frequent.posts[banned] / counts.total
    for k in range(word.shape[1]):
        # Each word of a disjunction is rarer in the twin, and one of a conjunction.
        own = (word[at, k] >= 0) & ((every[at] == 0) | (where == k))
        posts = counts.of_word[word[at[own], k]]
        twin[at[own], k] = np.where(
            posts > 0, counts.find_words(posts * left[own], rng), word[at[own], k]
        )
    interests = dataclasses.replace(load.interests, word=word, without=without)
    return LiteralTwins(
        dataclasses.replace(load, interests=interests, words=words),
        dataclasses.replace(load, interests=dataclasses.replace(load.interests, word=twin)),
    )


class _CountedTexts(NamedTuple):
    """Literals, and the number of posts that each holds for, int64[n]."""

    text: list[str]
    posts: I64

    @classmethod
    def of(cls, counts: Counter[str], most: int) -> _CountedTexts:
        """Returns those that at most so many posts have."""
        kept = {text: posts for text, posts in sorted(counts.items()) if posts <= most}
        return cls(list(kept), np.fromiter(kept.values(), np.int64, len(kept)))

    def draw(self, n: int, rng: np.random.Generator) -> I64:
        """Returns the numbers of n of them, drawn as often as posts have them."""
        mass = np.cumsum(self.posts)
        drawn: I64 = np.searchsorted(mass, rng.integers(0, mass[-1], n), "right")
        return drawn


class _PostCounts:
    """The numbers of posts that have a word, a phrase of two words, or a prefix of a word.

    of_word int64[words of the workload]; frequent_words: the numbers of the most frequent words.
    """

    def __init__(self, load: Workload, analyzer: Analyzer) -> None:
        texts = column_to_strings(load.posts.text_off, load.posts.text)
        number = {word: i for i, word in enumerate(load.words)}
        words, phrases = Counter[str](), Counter[str]()
        prefixes = Counter[str]()
        for text in texts:
            own = analyzer.text_words(text)
            words.update(own.terms)
            phrases.update(set(_list_phrases(own.sequence)))
            prefixes.update(_list_prefixes(own.plain))
        self.total = len(texts)
        self.of_word: I64 = np.zeros(len(load.words), np.int64)
        for word, posts in words.items():
            if word in number:
                self.of_word[number[word]] = posts
        self.frequent_words: Array = np.argsort(-self.of_word, kind="stable")[:_FREQUENT]
        self.frequent = _CountedTexts(
            [load.words[i] for i in self.frequent_words], self.of_word[self.frequent_words]
        )
        most = int(self.of_word.max(initial=0))  # what is commoner has no twin
        self.phrases = _CountedTexts.of(phrases, most)
        self.prefixes = _CountedTexts.of(prefixes, most)
        self._by_count: Array = np.argsort(self.of_word, kind="stable")
        self._by_count = self._by_count[self.of_word[self._by_count] > 0]

    def find_words(self, posts: Array, rng: np.random.Generator) -> Array:
        """Returns for each number of posts one of the words that are in so many, or nearly."""
        counts = self.of_word[self._by_count]
        known = np.unique(counts)
        after = np.minimum(np.searchsorted(known, posts), len(known) - 1)
        before = np.maximum(after - 1, 0)
        wanted = np.maximum(posts, 0.5)
        is_before = wanted / known[before] < known[after] / wanted
        near = known[np.where(is_before, before, after)]
        low, high = np.searchsorted(counts, near), np.searchsorted(counts, near, "right")
        found: Array = self._by_count[rng.integers(low, high)]
        return found


def _list_phrases(sequence: Sequence[str]) -> list[str]:
    """Returns the phrases of two plain words that are side by side."""
    return [phrase_text(pair) for pair in itertools.pairwise(sequence) if all(map(_is_plain, pair))]


def _list_prefixes(words: Iterable[str]) -> set[str]:
    """Returns the prefixes of plain words."""
    least, most = _LETTERS
    return {
        prefix_text(word[:size])
        for word in words
        if _is_plain(word)
        for size in range(least, min(most, len(word)) + 1)
    }


def _is_plain(word: str) -> bool:
    """Returns whether a word is ASCII letters and digits, of which a literal can be written."""
    return word.isascii() and word.isalnum()
