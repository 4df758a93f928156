"""The tries of matchers, and what it takes them to match publications (S3-TM, 4.1).

A trie has the subscriptions of one node, their words in a fixed order. A child is visited if its
word is in the publication: one lookup for each word that may follow. All subscriptions that end at
a visited trie node match.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.experiments.s3tm.trie_kernels import insert_subscriptions, match_publications
from ps2stream.multicast.bitsets import list_members
from ps2stream.multicast.placement import MatchingCost, PlacedSubscriptions
from ps2stream.planner.s3tm.publications import WordPublications
from ps2stream.protocol.frame import F64, I64, U64, row_of

SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""Subscriptions whose tries are measured to fit LASP's line, and all of them."""
FITTED_POSTS = 5_000


class MatchedCopies(NamedTuple):
    """The copies of publications and what they took. row, node int64[c]: the publication and the
    node of a copy; probes int64[c]: lookups; found int64[c]: subscriptions that match it there."""

    row: I64
    node: I64
    probes: I64
    found: I64

    def sum_by_node(self, nodes: int) -> F64:
        """Returns the lookups of each node, float64[nodes]."""
        return np.bincount(self.node, self.probes, nodes).astype(np.float64)


class SubscriptionTries:
    """The tries of all nodes."""

    def __init__(
        self, subscriptions: WordPublications, placed: PlacedSubscriptions, nodes: int, words: int
    ) -> None:
        copies = np.diff(placed.off)
        most = int((np.diff(subscriptions.off) * copies).sum()) + nodes
        size = 1 << max(int(2 * most - 1).bit_length(), 4)
        self._words = words
        self._keys, self._child = np.zeros(size, np.uint64), np.zeros(size, np.int32)
        self._inner, self._ends = np.zeros(most, np.uint8), np.zeros(most, np.int32)
        ordered = sort_words(subscriptions)
        self.size: int = insert_subscriptions(
            ordered.off, ordered.word, placed.off, placed.worker, words,
            self._keys, self._child, self._inner, self._ends, nodes,
        ) - nodes  # fmt: skip

    def match(self, posts: WordPublications, bits: U64) -> MatchedCopies:
        """Matches each publication on its nodes, bits uint64[n, ceil(nodes / 64)]."""
        row, node = list_members(bits)
        return self.match_copies(posts, row, node)

    def match_copies(self, posts: WordPublications, row: I64, node: I64) -> MatchedCopies:
        """Matches copies of publications, row and node int64[c]."""
        ordered = sort_words(posts)
        longest = int(np.diff(posts.off).max(initial=0)) + 1
        tree, after = np.empty(longest, np.int64), np.empty(longest, np.int64)
        probes, found = np.empty(len(row), np.int64), np.empty(len(row), np.int64)
        match_publications(
            ordered.off, ordered.word, row, node, self._words, self._keys, self._child,
            self._inner, self._ends, tree, after, probes, found,
        )  # fmt: skip
        return MatchedCopies(row, node, probes, found)


def sort_words(posts: WordPublications) -> WordPublications:
    """Returns the same sets with their words ascending."""
    order = np.lexsort((posts.word, row_of(posts.off)))
    return WordPublications(posts.off, posts.word[order])


def fit_cost(
    posts: WordPublications, subscriptions: WordPublications, words: int
) -> tuple[MatchingCost, list[tuple[int, float]]]:
    """Returns (the line from the distinct words of a trie's subscriptions to the lookups of a
    publication, the points that it is fitted to)."""
    some = posts.take(np.arange(min(len(posts), FITTED_POSTS)))
    points = []
    sizes = [n for n in SIZES if n < len(subscriptions)]
    for n in (*sizes, len(subscriptions)):
        mine = subscriptions.take(np.arange(n))
        placed = PlacedSubscriptions(np.arange(len(mine) + 1), np.zeros(len(mine), np.int64))
        tries = SubscriptionTries(mine, placed, 1, words)
        matched = tries.match(some, np.ones((len(some), 1), np.uint64))
        points.append((len(np.unique(mine.word)), float(matched.probes.mean())))
    x, y = np.array(points, np.float64).T
    slope, base = np.polyfit(x, y, 1) if len(set(x.tolist())) > 1 else (1.0, 0.0)
    return MatchingCost(max(float(base), 0.0), max(float(slope), 0.0)), points
