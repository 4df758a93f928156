"""The experiment on SALB: loads of nodes, subscribed words, versions of hot words."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments import salb
from tests.support.word_publications import random_posts


@pytest.mark.parametrize("seed", range(5))
def test_loads_of_nodes_are_counted_as_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    posts, to = random_posts(rng), rng.integers(0, 4, 12)
    want = [0, 0, 0, 0]
    for i in range(len(posts.off) - 1):
        for node in {int(to[w]) for w in posts.word[posts.off[i] : posts.off[i + 1]]}:
            want[node] += 1
    assert salb.load(posts, to, 4).tolist() == want


def test_only_the_subscribed_words_are_left() -> None:
    posts = salb.WordPublications(np.array([0, 2, 3, 5]), np.array([0, 1, 2, 1, 3]))
    kept = posts.only(np.array([False, True, False, True]))
    assert (kept.off.tolist(), kept.word.tolist()) == ([0, 1, 3], [1, 1, 3])


def test_hot_words_are_cut_into_versions_and_others_are_not() -> None:
    # Word 0 stands in all of 40 posts, words 1..40 in one each: the cap for 4 nodes is 10.
    off = np.arange(0, 81, 2)
    posts = salb.WordPublications(
        off, np.stack([np.zeros(40, np.int64), 1 + np.arange(40)], 1).ravel()
    )
    learnt, held, count = salb.split_hot(posts, posts, 41, 4, np.random.default_rng(1))
    assert len(count) == 41 + 4
    for found in (learnt, held):
        assert set(found.word[::2].tolist()) == {41, 42, 43, 44}
        assert found.word[1::2].tolist() == posts.word[1::2].tolist()
