"""Publications as sets of words."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.s3tm.publications import WordPublications, make_statistics
from tests.support.word_publications import list_sets, random_posts


def test_only_the_subscribed_words_are_left() -> None:
    posts = WordPublications(np.array([0, 2, 3, 5]), np.array([0, 1, 2, 1, 3]))
    kept = posts.only(np.array([False, True, False, True]))
    assert (kept.off.tolist(), kept.word.tolist()) == ([0, 1, 3], [1, 1, 3])


def test_rows_are_taken_in_the_order_given() -> None:
    posts = random_posts(np.random.default_rng(2))
    sets = list_sets(posts)
    assert list_sets(posts.take(np.array([7, 3, 7]))) == [sets[7], sets[3], sets[7]]


def test_statistics_have_a_unit_for_each_word_that_occurs() -> None:
    posts = WordPublications(np.array([0, 2, 2, 3]), np.array([4, 9, 4]))
    stats, word = make_statistics(posts)
    assert word.tolist() == [4, 9]
    assert stats.terms == ("000000004", "000000009")
    assert stats.o.tolist() == [2.0, 1.0]
    assert stats.row_unit.tolist() == [0, 1, 0]
    assert posts.count_words(11)[[4, 9]].tolist() == [2, 1]
