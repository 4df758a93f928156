"""Owners of words by each algorithm, against the worked example and the definition."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.multicast.bitsets import count_copies
from ps2stream.multicast.word_mapping import find_hot_words, leave_whole
from ps2stream.planner.s3tm.learning import (
    GRAPHS,
    MAPPINGS,
    MappingAlgorithm,
    hash_words,
    learn_mapping,
)
from ps2stream.planner.s3tm.measures import measure_multicast
from ps2stream.planner.s3tm.publications import WordPublications
from tests.support.word_publications import list_sets, random_posts

EXAMPLE = WordPublications(np.array([0, 2, 4, 5, 6, 7]), np.array([0, 1, 0, 1, 0, 2, 2]))
"""{a, b}, {a, b}, {a}, {c}, {c}."""


def test_the_worked_example() -> None:
    """a to the first matcher, b and c to the second: loads 3 and 4, spread 1.4 (2.2)."""
    mapping = learn_mapping("SALB", EXAMPLE, leave_whole(3), 2, 1)
    assert mapping.owner.tolist() == [0, 1, 1]
    bits = mapping.find_targets(EXAMPLE.off, EXAMPLE.word)
    assert count_copies(bits, 2).tolist() == [3, 4]
    measures = measure_multicast(bits, 2)
    assert measures.spread == pytest.approx(1.4)
    assert measures.imbalance == pytest.approx(4 / 3.5)


@pytest.mark.parametrize("workers", [2, 3, 67])
@pytest.mark.parametrize("seed", range(3))
def test_salb_takes_the_best_worker_for_each_word(seed: int, workers: int) -> None:
    posts = random_posts(np.random.default_rng(seed))
    mapping = learn_mapping("SALB", posts, leave_whole(14), workers, seed)
    sets, count = list_sets(posts), posts.count_words(14)
    placed: list[set[int]] = [set() for _ in range(workers)]
    for word in sorted(np.flatnonzero(count).tolist(), key=lambda w: (-count[w], w)):
        prices = []
        for i in range(workers):
            trial = [held | {word} if i == k else held for k, held in enumerate(placed)]
            loads = [sum(bool(p & held) for p in sets) for held in trial]
            prices.append(sum(loads) / len(sets) * float(np.std(loads) / np.mean(loads)))
        mine = int(mapping.owner[word])
        assert prices[mine] <= min(prices) * (1 + 1e-9) + 1e-12
        placed[mine].add(word)


@pytest.mark.parametrize("algorithm", MAPPINGS)
def test_unknown_words_go_by_hash_and_all_owners_are_workers(algorithm: MappingAlgorithm) -> None:
    posts = random_posts(np.random.default_rng(3), rows=300, words=40)
    mapping = learn_mapping(algorithm, posts, leave_whole(60), 4, 7)
    assert mapping.owner[40:].tolist() == hash_words(60, 4, 7)[40:].tolist()
    assert set(mapping.owner.tolist()) <= set(range(4))


def test_words_that_occur_together_are_cut_least() -> None:
    """Two groups of words that never meet: each has one worker, whatever the graph's weights."""
    rng = np.random.default_rng(5)
    rows = [rng.choice(8, 4, replace=False) + 8 * (i % 2) for i in range(400)]
    posts = WordPublications(np.arange(0, 1601, 4), np.concatenate(rows))
    for algorithm in GRAPHS:
        mapping = learn_mapping(algorithm, posts, leave_whole(16), 2, 1)
        bits = mapping.find_targets(posts.off, posts.word)
        assert measure_multicast(bits, 2).spread == 1.0


def test_versions_of_hot_words_balance_what_whole_words_cannot() -> None:
    """A word of every publication fills one of eight workers; eight versions share it."""
    off = np.arange(0, 8001, 2)
    rare = 1 + np.random.default_rng(1).integers(0, 900, 4000)
    posts = WordPublications(off, np.stack([np.zeros(4000, np.int64), rare], 1).ravel())
    whole = learn_mapping("SALB", posts, leave_whole(901), 8, 1)
    hot = find_hot_words(posts.count_words(901), 8)
    versioned = hot.choose_versions(posts.word, np.random.default_rng(2))
    split = learn_mapping("SALB", WordPublications(off, versioned), hot, 8, 1)
    found = [
        measure_multicast(mapping.find_targets(off, word), 8)
        for mapping, word in ((whole, posts.word), (split, versioned))
    ]
    assert found[0].throughput == pytest.approx(1.0, rel=0.01)
    assert found[1].throughput > 3.0


def test_hash_is_even_and_seeded() -> None:
    owner = hash_words(40_000, 8, 3)
    assert owner.tolist() == hash_words(40_000, 8, 3).tolist() != hash_words(40_000, 8, 4).tolist()
    assert np.abs(np.bincount(owner, minlength=8) / 5000 - 1).max() < 0.05


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="algorithm: expected one of hash, gC"):
        learn_mapping("best", EXAMPLE, leave_whole(3), 2, 1)  # type: ignore[arg-type]
