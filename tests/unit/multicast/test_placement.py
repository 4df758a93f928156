"""Placement of subscriptions against the pseudo-code of LASP, step by step."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.multicast.placement import (
    RULES,
    MatchingCost,
    PlacedSubscriptions,
    PlacementRule,
    SubscriptionPlacer,
)
from ps2stream.multicast.word_mapping import HotWords, WordMapping, find_hot_words, leave_whole
from ps2stream.protocol.frame import I64

WORDS, WORKERS = 30, 6


def some_subscriptions(rng: np.random.Generator, n: int = 150) -> list[list[int]]:
    return [rng.choice(WORDS, rng.integers(1, 6), replace=False).tolist() for _ in range(n)]


def as_columns(sets: list[list[int]]) -> tuple[I64, I64]:
    return np.cumsum([0, *map(len, sets)]), np.array(list(itertools.chain(*sets)), np.int64)


def as_lists(placed: PlacedSubscriptions) -> list[list[int]]:
    return [placed.worker[a:b].tolist() for a, b in itertools.pairwise(placed.off)]


def some_mapping(rng: np.random.Generator, hot: HotWords | None = None) -> WordMapping:
    hot = hot or leave_whole(WORDS)
    return WordMapping(WORKERS, rng.integers(0, WORKERS, hot.versions), hot)


def price(held: list[set[int]], words: set[int], i: int, cost: MatchingCost) -> float:
    """-u of placing words at i: l times the coefficient of variation, as it is printed."""

    def f(n: int) -> float:
        return cost.base + cost.per_word * n

    loads = [f(len(mine | words if k == i else mine)) for k, mine in enumerate(held)]
    return f(len(words - held[i])) * float(np.std(loads) / np.mean(loads))


@pytest.mark.parametrize("cost", [MatchingCost(), MatchingCost(40.0, 0.7)])
@pytest.mark.parametrize("seed", range(4))
def test_lasp_places_each_where_its_utility_is_greatest(seed: int, cost: MatchingCost) -> None:
    rng = np.random.default_rng(seed)
    sets, mapping = some_subscriptions(rng), some_mapping(rng)
    placer = SubscriptionPlacer(mapping, np.ones(WORDS), "LASP", cost)
    found = as_lists(placer.place(*as_columns(sets)))
    held: list[set[int]] = [set() for _ in range(WORKERS)]
    for words, (mine,) in zip(sets, found, strict=True):
        eligible = {int(mapping.owner[w]) for w in words}
        assert mine in eligible
        least = min(price(held, set(words), i, cost) for i in eligible)
        assert price(held, set(words), mine, cost) <= least * (1 + 1e-9) + 1e-12
        held[mine] |= set(words)
    assert placer.size.tolist() == [len(mine) for mine in held]


def test_where_nothing_varies_the_worker_with_fewer_new_words_is_taken() -> None:
    """One subscription on each of two workers: all loads are equal but for what comes."""
    mapping = WordMapping(2, np.array([0, 0, 1, 1]), leave_whole(4))
    placer = SubscriptionPlacer(mapping, np.ones(4))
    off, word = as_columns([[0, 1], [2, 3], [1, 2, 3]])
    assert as_lists(placer.place(off, word)) == [[0], [1], [1]]


def test_the_least_frequent_word_places() -> None:
    rng = np.random.default_rng(9)
    sets, mapping = some_subscriptions(rng), some_mapping(rng)
    frequency = rng.permutation(WORDS)
    placer = SubscriptionPlacer(mapping, frequency, "least frequent")
    want = [[int(mapping.owner[min(words, key=lambda w: frequency[w])])] for words in sets]
    assert as_lists(placer.place(*as_columns(sets))) == want


@pytest.mark.parametrize("seed", range(3))
def test_the_least_cost_weighs_frequency_by_what_workers_have(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sets, mapping = some_subscriptions(rng), some_mapping(rng)
    frequency = rng.integers(0, 50, WORDS)
    placer = SubscriptionPlacer(mapping, frequency, "least cost")
    found = as_lists(placer.place(*as_columns(sets)))
    work = [0.0] * WORKERS
    for words, (mine,) in zip(sets, found, strict=True):
        prices = {}
        for w in words:
            each, i = frequency[w] + 1.0, int(mapping.owner[w])
            share = (work[i] + each) / ((sum(work) + each) / WORKERS)
            prices[w] = each * (1 + share)
        best = min(words, key=lambda w: (prices[w], w))
        assert prices[best] == pytest.approx(
            min(prices[w] for w in words if mapping.owner[w] == mine)
        )
        work[mine] += min(frequency[w] for w in words if mapping.owner[w] == mine) + 1.0


@pytest.mark.parametrize("rule", ["hash", "random"])
def test_hash_and_random_use_all_eligible_workers(rule: PlacementRule) -> None:
    mapping = WordMapping(4, np.array([0, 1, 3, 3]), leave_whole(4))
    off, word = as_columns([[0, 1, 2, 3]] * 900 if rule == "random" else
                           [[0, 1, 2, 3][: 2 + i % 3] for i in range(900)])  # fmt: skip
    placed = SubscriptionPlacer(mapping, np.ones(4), rule, seed=4).place(off, word)
    again = SubscriptionPlacer(mapping, np.ones(4), rule, seed=4).place(off, word)
    assert placed.worker.tolist() == again.worker.tolist()
    counts = np.bincount(placed.worker, minlength=4)
    assert counts[2] == 0
    if rule == "random":
        assert np.abs(counts[[0, 1, 3]] / 300 - 1).max() < 0.2


def test_equal_subscriptions_hash_to_one_worker() -> None:
    rng = np.random.default_rng(3)
    sets, mapping = some_subscriptions(rng), some_mapping(rng)
    first = as_lists(SubscriptionPlacer(mapping, np.ones(WORDS), "hash").place(*as_columns(sets)))
    turned = [words[::-1] for words in sets[::-1]]
    again = as_lists(SubscriptionPlacer(mapping, np.ones(WORDS), "hash").place(*as_columns(turned)))
    assert first == again[::-1]
    assert len({worker for (worker,) in first}) > 3


@pytest.mark.parametrize("rule", RULES)
def test_hot_words_place_only_what_has_no_other(rule: PlacementRule) -> None:
    rng = np.random.default_rng(5)
    frequency = np.array([90, 60, 60, *[1] * (WORDS - 3)])
    hot = find_hot_words(frequency, WORKERS)
    assert np.flatnonzero(hot.hot).tolist() == [0, 1, 2]
    mapping = some_mapping(rng, hot)
    sets = [[0], [2, 0], [0, 1, 2], [0, 9], [9, 10, 1]] * 5
    placer = SubscriptionPlacer(mapping, frequency, rule)
    for words, mine in zip(sets, as_lists(placer.place(*as_columns(sets))), strict=True):
        regular = [w for w in words if w > 2]
        if regular:
            assert len(mine) == 1
            assert mine[0] in {int(mapping.owner[w]) for w in regular}
            continue
        least = min(words, key=lambda w: (frequency[w], w))
        versions = range(hot.first[least], hot.first[least] + hot.parts[least])
        assert sorted(mine) == sorted({int(mapping.owner[v]) for v in versions})


@pytest.mark.parametrize("rule", RULES)
def test_every_publication_that_matches_comes_where_the_subscription_is(
    rule: PlacementRule,
) -> None:
    """Brute force, with versions drawn, by all words and by the posting words alone."""
    rng = np.random.default_rng(8)
    frequency = np.r_[[120, 80, 40], np.ones(WORDS - 3)].astype(np.int64)
    mapping = some_mapping(rng, find_hot_words(frequency, WORKERS))
    sets = [*some_subscriptions(rng), [0], [0, 1], [2, 1]]
    placer = SubscriptionPlacer(mapping, frequency, rule, seed=1)
    kept = placer.place(*as_columns(sets))
    placed = as_lists(kept)
    posts = [[*rng.choice(WORDS, 12, replace=False).tolist(), 0, 1] for _ in range(60)]
    posts = [sorted(set(post)) for post in posts]
    off, word = as_columns(posts)
    version = mapping.hot.choose_versions(word, rng)
    reached = placer.find_posting_words(*as_columns(sets), kept)
    by = [reached[a:b].tolist() for a, b in itertools.pairwise(kept.off)]
    matches = 0
    for p, (a, b) in enumerate(itertools.pairwise(off.tolist())):
        routed = {int(mapping.owner[v]) for v in version[a:b]}
        for words, mine, reaching in zip(sets, placed, by, strict=True):
            assert len(set(reaching)) == 1
            assert reaching[0] in words
            if set(words) <= set(posts[p]):
                matches += 1
                assert routed & set(mine)
                at = posts[p].index(reaching[0])
                assert int(mapping.owner[version[a + at]]) in mine
    assert matches > 100


@pytest.mark.parametrize("rule", RULES)
def test_removing_all_leaves_nothing(rule: PlacementRule) -> None:
    rng = np.random.default_rng(6)
    mapping = some_mapping(rng)
    placer = SubscriptionPlacer(mapping, np.arange(WORDS), rule)
    kept = as_columns(some_subscriptions(rng, 20))
    gone = as_columns(some_subscriptions(rng, 40))
    placer.place(*kept)
    before: list[Any] = [placer.count.copy(), placer.size.copy()]
    placed = placer.place(*gone)
    assert placer.size.sum() > before[1].sum()
    placer.remove(*gone, placed)
    assert (placer.count == before[0]).all()
    assert (placer.size == before[1]).all()
    assert placer.place(*gone).worker.tolist() == placed.worker.tolist() or rule == "random"


def test_bad_arguments_are_named() -> None:
    mapping = WordMapping(2, np.zeros(3, np.int64), leave_whole(3))
    with pytest.raises(InvalidArgument, match="rule: expected one of LASP, least frequent"):
        SubscriptionPlacer(mapping, np.ones(3), "best")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="frequency: expected 3 words, got 2"):
        SubscriptionPlacer(mapping, np.ones(2))
    with pytest.raises(InvalidArgument, match="off: expected at least one word"):
        SubscriptionPlacer(mapping, np.ones(3)).place(np.array([0, 0]), np.zeros(0, np.int64))
