"""Subscriptions to topics and to posts."""

from __future__ import annotations

import itertools

import numpy as np

from ps2stream.experiments.topics import post_subscriptions, topic_subscriptions, topics
from tests.support.word_publications import random_posts


def test_topics_are_words_that_occur_together() -> None:
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 6, 2000)
    rows = [g * 5 + rng.choice(5, 4, replace=False) for g in groups.tolist()]
    off = np.arange(0, 8001, 4)
    found = topics(off, np.concatenate(rows), 30)
    assert sorted(sorted(t) for t in found) == [list(range(g * 5, g * 5 + 5)) for g in range(6)]
    sub_off, word = topic_subscriptions(found, 200, rng)
    for a, b in zip(sub_off[:-1].tolist(), sub_off[1:].tolist(), strict=True):
        mine = word[a:b].tolist()
        assert 1 <= len(set(mine)) == len(mine) <= 5
        assert len({w // 5 for w in mine}) == 1


def test_a_subscription_of_a_post_has_all_its_words() -> None:
    posts = random_posts(np.random.default_rng(4))
    sets = {tuple(posts.word[a:b].tolist()) for a, b in itertools.pairwise(posts.off)}
    off, word = post_subscriptions(posts.off, posts.word, 100, np.random.default_rng(5))
    mine = {tuple(word[a:b].tolist()) for a, b in itertools.pairwise(off)}
    assert mine <= sets - {()}
