"""Owners of words and versions of hot ones."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.multicast.bitsets import count_copies, count_targets, list_members, make_sets
from ps2stream.multicast.word_mapping import WordMapping, find_hot_words, leave_whole
from tests.support.word_publications import list_sets, random_posts


@pytest.mark.parametrize("workers", [1, 5, 64, 65, 200])
def test_targets_are_the_owners_of_the_words(workers: int) -> None:
    rng = np.random.default_rng(workers)
    posts = random_posts(rng)
    mapping = WordMapping(workers, rng.integers(0, workers, 12), leave_whole(12))
    bits = mapping.find_targets(posts.off, posts.word)
    want = [sorted({int(mapping.owner[w]) for w in words}) for words in list_sets(posts)]
    assert bits.shape == (len(posts), -(-workers // 64))
    assert count_targets(bits).tolist() == [len(to) for to in want]
    members = [(row, worker) for row, to in enumerate(want) for worker in to]
    assert list(zip(*(x.tolist() for x in list_members(bits)), strict=True)) == members
    counts = [sum(worker in to for to in want) for worker in range(workers)]
    assert count_copies(bits, workers).tolist() == counts


def test_hot_words_are_cut_into_versions_and_others_are_not() -> None:
    """Word 0 is in all of 40 posts, words 1..40 in one each: the cap for 4 workers is 10."""
    frequency = np.array([40, *[1] * 40])
    hot = find_hot_words(frequency, 4)
    assert hot.parts.tolist() == [4, *[1] * 40]
    assert hot.versions == 41 + 4
    word = np.stack([np.zeros(40, np.int64), 1 + np.arange(40)], 1).ravel()
    found = hot.choose_versions(word, np.random.default_rng(1))
    assert set(found[::2].tolist()) == {41, 42, 43, 44}
    assert found[1::2].tolist() == word[1::2].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_no_version_is_above_half_of_a_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frequency = rng.zipf(1.3, 200).clip(max=10_000)
    workers = int(rng.integers(2, 100))
    hot = find_hot_words(frequency, workers)
    cap = frequency.sum() / workers / 2
    assert (frequency / hot.parts <= cap * (1 + 1e-9)).all()
    assert (frequency[hot.hot] / (hot.parts[hot.hot] - 1) > cap * (1 - 1e-9)).all()
    assert (frequency[~hot.hot] <= cap).all()
    numbers = [
        version
        for first, parts in zip(hot.first.tolist(), hot.parts.tolist(), strict=True)
        for version in range(first, first + parts)
    ]
    assert len(set(numbers)) == len(numbers)
    assert sorted(numbers + np.flatnonzero(hot.hot).tolist()) == list(range(hot.versions))


def test_versions_are_chosen_evenly() -> None:
    hot = find_hot_words(np.array([100, 1, 1]), 3)
    found = hot.choose_versions(np.zeros(30_000, np.int64), np.random.default_rng(1))
    share = np.bincount(found)[hot.first[0] :] / 30_000 * hot.parts[0]
    assert len(share) == hot.parts[0] == 6
    assert np.abs(share - 1).max() < 0.05


def test_one_worker_needs_no_versions() -> None:
    assert find_hot_words(np.array([9, 1]), 1).versions == 2


def test_owners_must_be_as_many_as_words_and_versions() -> None:
    with pytest.raises(InvalidArgument, match="owner: expected one worker for each of 3 words"):
        WordMapping(2, np.zeros(2, np.int64), leave_whole(3))


def test_no_publications_have_no_members() -> None:
    row, worker = list_members(make_sets(0, 70))
    assert (len(row), len(worker)) == (0, 0)
