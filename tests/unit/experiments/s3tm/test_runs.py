"""Runs of S3-TM: what is matched, and by which words posts must go."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.s3tm.runs import (
    SubscribedPosts,
    make_subscribed,
    map_words,
    route_by_posting_words,
    run_nodes,
    subscribe,
)
from ps2stream.multicast.bitsets import list_members
from ps2stream.multicast.placement import RULES, PlacementRule
from ps2stream.planner.s3tm.publications import WordPublications
from tests.support.word_publications import list_sets

WORDS = 40


def some_posts(seed: int, n: int = 400) -> WordPublications:
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, WORDS + 1)
    sets = [
        rng.choice(WORDS, rng.integers(1, 8), replace=False, p=share / share.sum())
        for _ in range(n)
    ]
    return WordPublications(np.r_[0, np.cumsum([len(s) for s in sets])], np.concatenate(sets))


def some_subscribed() -> SubscribedPosts:
    rng = np.random.default_rng(3)
    sets = [rng.choice(WORDS - 5, rng.integers(1, 4), replace=False) for _ in range(90)]
    drawn = WordPublications(np.r_[0, np.cumsum([len(s) for s in sets])], np.concatenate(sets))
    return make_subscribed(some_posts(1), some_posts(2), drawn, WORDS)


def count_matches(posts: SubscribedPosts) -> int:
    wanted = list_sets(posts.subscriptions)
    return sum(words <= post for post in list_sets(posts.held) for words in wanted)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("nodes", [3, 70])
def test_every_match_is_found_once_without_versions(nodes: int, rule: PlacementRule) -> None:
    posts = some_subscribed()
    found = run_nodes(posts, *map_words(posts, "SALB", nodes, False, 1), 1, rule)
    assert found.matched.found.sum() == count_matches(posts) > 100
    assert found.to_row()["placements"] == 90
    assert found.copies.spread == pytest.approx(len(found.matched.row) / len(posts.held))
    work = [0] * nodes
    for node, probes in zip(
        found.matched.node.tolist(), found.matched.probes.tolist(), strict=True
    ):
        work[node] += probes
    assert found.lookups.throughput == pytest.approx(len(posts.held) / max(work))


def test_versions_lose_no_match() -> None:
    posts = some_subscribed()
    mapping, learnt = map_words(posts, "SALB", 12, True, 1)
    assert mapping.hot.hot.sum() > 2
    found = run_nodes(posts, mapping, learnt, 1)
    seen = np.zeros(len(posts.held), np.int64)
    np.maximum.at(seen, found.matched.row, found.matched.found)
    assert found.matched.found.sum() >= count_matches(posts)


@pytest.mark.parametrize("rule", RULES)
def test_posting_words_reach_every_match(rule: PlacementRule) -> None:
    """Matches on the nodes that posts reach by posting words alone are all that there are."""
    posts = some_subscribed()
    found = run_nodes(posts, *map_words(posts, "SALB", 5, False, 1), 1, rule)
    few = route_by_posting_words(posts, found, 1)
    assert not (few & ~found.bits).any()
    pairs = set(zip(*(x.tolist() for x in list_members(few)), strict=True))
    rows = zip(*(x.tolist() for x in found.matched), strict=True)
    missed = sum(matches for row, node, _, matches in rows if (row, node) not in pairs)
    assert missed == 0
    assert len(pairs) < len(found.matched.row)


def test_of_five_hashes_the_median_is_taken() -> None:
    posts = some_subscribed()
    mapping, learnt = map_words(posts, "hash", 4, False, 1)
    again, _ = map_words(posts, "hash", 4, False, 1)
    assert mapping.owner.tolist() == again.owner.tolist()
    assert learnt.throughput > 1.0


def test_subscriptions_are_drawn_from_the_posts_that_are_learnt() -> None:
    posts = some_posts(5, 3000)
    tweet = subscribe("tweet", posts, some_posts(6), WORDS, 50, 1)
    topic = subscribe("topic", posts, some_posts(6), WORDS, 50, 1)
    assert tweet is not None
    assert topic is not None
    sets = {frozenset(s) for s in list_sets(posts)}
    assert {frozenset(s) for s in list_sets(tweet.subscriptions)} <= sets
    assert max(map(len, list_sets(topic.subscriptions))) <= 5
    assert subscribe("topic", some_posts(7, 10), posts, WORDS, 50, 1) is None
