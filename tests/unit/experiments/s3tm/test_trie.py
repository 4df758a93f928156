"""Tries against subsets, and their lookups against a recursion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.experiments.s3tm.trie import SubscriptionTries, fit_cost, sort_words
from ps2stream.multicast.placement import PlacedSubscriptions
from ps2stream.planner.s3tm.publications import WordPublications
from tests.support.word_publications import list_sets, random_posts


def some_subscriptions(rng: np.random.Generator, n: int = 80) -> WordPublications:
    sets = [rng.choice(12, rng.integers(1, 4), replace=False) for _ in range(n)]
    return WordPublications(np.r_[0, np.cumsum([len(s) for s in sets])], np.concatenate(sets))


def spread(rng: np.random.Generator, n: int, nodes: int) -> PlacedSubscriptions:
    """Each subscription on one or two nodes."""
    held = [rng.choice(nodes, rng.integers(1, 3), replace=False) for _ in range(n)]
    return PlacedSubscriptions(np.r_[0, np.cumsum([len(h) for h in held])], np.concatenate(held))


def count_lookups(tries: set[tuple[int, ...]], words: list[int], path: tuple[int, ...]) -> int:
    """One lookup for each later word at each visited node that has children."""
    if not any(len(each) > len(path) and each[: len(path)] == path for each in tries):
        return 0
    later = [w for w in words if not path or w > path[-1]]
    visited = [w for w in later if any(each[: len(path) + 1] == (*path, w) for each in tries)]
    return len(later) + sum(count_lookups(tries, words, (*path, w)) for w in visited)


@pytest.mark.parametrize("seed", range(4))
def test_matches_and_lookups_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    posts, mine = random_posts(rng), some_subscriptions(rng)
    placed = spread(rng, len(mine), 3)
    bits = rng.integers(0, 8, (len(posts), 1)).astype(np.uint64)
    tries = SubscriptionTries(mine, placed, 3, 12)
    found = tries.match(posts, bits)
    sets, wanted = list_sets(posts), list_sets(mine)
    on: list[list[set[int]]] = [[] for _ in range(3)]
    for words, (a, b) in zip(wanted, itertools.pairwise(placed.off.tolist()), strict=True):
        for node in placed.worker[a:b].tolist():
            on[node].append(words)
    assert len(found.row) == sum(int(b).bit_count() for b in bits[:, 0])
    for row, node, probes, matches in zip(*(x.tolist() for x in found), strict=True):
        assert int(bits[row, 0]) >> node & 1
        assert matches == sum(words <= sets[row] for words in on[node])
        paths = {tuple(sorted(words)) for words in on[node]}
        assert probes == count_lookups(paths, sorted(sets[row]), ())
    assert found.sum_by_node(3).sum() == found.probes.sum()
    assert tries.size == sum(
        len(
            {path[:k] for path in (tuple(sorted(w)) for w in each) for k in range(1, len(path) + 1)}
        )
        for each in on
    )


def test_words_are_sorted_within_their_posts() -> None:
    posts = random_posts(np.random.default_rng(1))
    ordered = sort_words(posts)
    pairs = itertools.pairwise(ordered.off.tolist())
    assert [ordered.word[a:b].tolist() for a, b in pairs] == [sorted(s) for s in list_sets(posts)]


def test_the_line_of_lasp_rises_with_the_words() -> None:
    rng = np.random.default_rng(7)
    sets = [rng.choice(400, 5, replace=False) for _ in range(600)]
    posts = WordPublications(np.arange(0, 3001, 5), np.concatenate(sets))
    cost, points = fit_cost(posts, posts, 400)
    assert cost.per_word > 0
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert cost.base + cost.per_word * points[-1][0] == pytest.approx(points[-1][1], rel=0.2)
