"""Placement of subscriptions: which of the workers that own one of its words holds it (S3-TM,
LASP; algorithms.md 2.4, 2.5).

A subscription can be on any worker that gets all publications with one of its words. A hot word's
publications are divided among the workers of its versions: such a word places a subscription only
if it has no other, and then on all of these workers, each of which sees a part of the publications.
(The paper says that LASP avoids hot words already; its code does not, so they are left out here.)
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ps2stream.errors import invalid
from ps2stream.multicast.placement_kernels import (
    DRAWN,
    LASP,
    LEAST_COST,
    LEAST_FREQUENT,
    choose_posting_words,
    place_subscriptions,
    remove_words,
)
from ps2stream.multicast.word_mapping import WordMapping
from ps2stream.protocol.frame import F64, I64, U64

PlacementRule = Literal["LASP", "least frequent", "least cost", "hash", "random"]
_NUMBERS: dict[PlacementRule, int] = {
    "LASP": LASP, "least frequent": LEAST_FREQUENT, "least cost": LEAST_COST, "hash": DRAWN,
    "random": DRAWN,
}  # fmt: skip
RULES: tuple[PlacementRule, ...] = tuple(_NUMBERS)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class MatchingCost(NamedTuple):
    """The line f of LASP: what a publication costs a worker whose subscriptions have n words
    together, base + per_word * n. By default it is proportional to n: with a base far above what
    a subscription adds, LASP balances words and no longer groups what is similar."""

    base: float = 0.0
    per_word: float = 1.0


class PlacedSubscriptions(NamedTuple):
    """The workers of each subscription, ragged: worker[off[s]:off[s + 1]], more than one only where
    all words are hot. off int64[s + 1], worker int64[placements]."""

    off: I64
    worker: I64


class SubscriptionPlacer:
    """Places subscriptions one after the other, and keeps how many subscriptions of each worker
    have each word: count int32[workers, words]; size int64[workers]: its words, |H(i)|.

    `least cost` is LASP's thought where publications go by posting words alone (algorithms.md 6.2):
    the least frequent word, but for workers that have more of such work than others.

    frequency: publications that have each word, [words], of the rules `least frequent` and `least
    cost` and of subscriptions whose words are all hot; seed: of the rules `hash` and `random`.
    """

    def __init__(
        self,
        mapping: WordMapping,
        frequency: I64 | F64,
        rule: PlacementRule = "LASP",
        cost: MatchingCost | None = None,
        seed: int = 0,
    ) -> None:
        if rule not in _NUMBERS:
            raise invalid("rule", f"expected one of {', '.join(RULES)}, got {rule!r}")
        if len(frequency) != mapping.hot.words:
            raise invalid(
                "frequency", f"expected {mapping.hot.words} words, got {len(frequency)}"
            )  # fmt: skip
        self.mapping, self.rule, self.cost = mapping, rule, cost or MatchingCost()
        self.frequency: F64 = np.asarray(frequency, np.float64)
        self.count = np.zeros((mapping.workers, mapping.hot.words), np.int32)
        self.size = np.zeros(mapping.workers, np.int64)
        self._totals = np.zeros(2, np.int64)
        self._work = np.zeros(mapping.workers)
        self._seed = np.uint64(seed)
        self._rng = np.random.default_rng([seed, 6])

    def place(self, off: I64, word: I64) -> PlacedSubscriptions:
        """Places subscriptions in their order. off int64[s + 1], word: ragged, at least one word
        each, distinct. Raises InvalidArgument for one without words."""
        if len(off) > 1 and np.diff(off).min() < 1:
            raise invalid("off", "expected at least one word in each subscription")
        mapping, hot, n = self.mapping, self.mapping.hot, len(off) - 1
        draw = self._draw_numbers(off, word)
        start, found = np.zeros(n + 1, np.int64), np.empty(mapping.workers, np.int64)
        room, done = n + mapping.workers, 0
        out = np.empty(room, np.int64)
        while True:
            done += place_subscriptions(
                _NUMBERS[self.rule], self.cost.base, self.cost.per_word, hot.first, hot.parts,
                mapping.owner, self.frequency, off[done:], word, draw[done:],
                self.count, self.size, self._totals, self._work, found, start[done:],
                out,
            )  # fmt: skip
            if done == n:
                return PlacedSubscriptions(start, out[: start[n]].copy())
            out = np.concatenate([out, np.empty(len(out), np.int64)])

    def remove(self, off: I64, word: I64, placed: PlacedSubscriptions) -> None:
        """Forgets subscriptions that were placed."""
        remove_words(off, word, placed.off, placed.worker, self.count, self.size, self._totals)
        if self.rule == "least cost":
            posting = self.find_posting_words(off, word, placed)
            regular = self.mapping.hot.parts[posting] == 1
            at, lost = placed.worker[regular], self.frequency[posting[regular]] + 1.0
            self._work -= np.bincount(at, lost, self.mapping.workers)

    def find_posting_words(self, off: I64, word: I64, placed: PlacedSubscriptions) -> I64:
        """Returns the word of each placement that publications must have to reach it, int64[
        placements]: the least frequent that its worker owns. S3-TM routes by all words that
        subscriptions have; these are enough."""
        out = np.empty(len(placed.worker), np.int64)
        choose_posting_words(
            self.mapping.hot.parts, self.mapping.owner, self.frequency, off, word,
            placed.off, placed.worker, out,
        )  # fmt: skip
        return out

    def _draw_numbers(self, off: I64, word: I64) -> U64:
        """Returns a number for each subscription: at random, or by a hash of its words."""
        if self.rule == "random":
            return self._rng.integers(0, 1 << 63, len(off) - 1).astype(np.uint64)
        if self.rule != "hash" or len(off) == 1:
            return np.zeros(len(off) - 1, np.uint64)
        mixed = (word.astype(np.uint64) + self._seed + np.uint64(1)) * _ODD
        mixed = (mixed ^ (mixed >> _HALF)) * _ODD
        return np.add.reduceat(mixed, off[:-1]) >> _HALF
