"""All algorithms find what the definition finds, before, during and after maintenance."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.le_subscribe.matcher import (
    ClusteringLimits,
    ClusterMatcher,
    CountingMatcher,
    SubscriptionMatcher,
)
from ps2stream.experiments.le_subscribe.rows import EQ, SubscriptionRows
from ps2stream.experiments.le_subscribe.selectivity import assume_uniform, count_events
from tests.support.subscriptions import (
    Predicate,
    draw_event,
    draw_subscription,
    satisfies,
    to_events,
    to_rows,
)

pytestmark = pytest.mark.takes_turns(2)

EAGER = ClusteringLimits(0.05, 3, 6)
"""Thresholds at which a few hundred subscriptions make and drop tables."""


def make_matchers() -> dict[str, SubscriptionMatcher]:
    known = assume_uniform(4, 0)
    return {
        "counting": CountingMatcher(),
        "propagation": ClusterMatcher(known, prefetching=False),
        "prefetching": ClusterMatcher(known),
        "static": ClusterMatcher(known, [(0, 1), (1, 2, 3)]),
        "dynamic": ClusterMatcher(known, limits=EAGER),
    }


class ManySubscriptions:
    """A matcher beside a dict of what it holds."""

    def __init__(self, matcher: SubscriptionMatcher) -> None:
        self.matcher = matcher
        self.live: dict[int, list[Predicate]] = {}

    def insert(self, subscriptions: list[list[Predicate]]) -> None:
        numbers = self.matcher.insert(to_rows(subscriptions)).tolist()
        assert not self.live.keys() & set(numbers)
        self.live |= dict(zip(numbers, subscriptions, strict=True))

    def delete(self, numbers: list[int]) -> None:
        self.matcher.delete(np.array(numbers, np.int64))
        for number in numbers:
            del self.live[number]

    def check(self, events: list[dict[int, int]]) -> None:
        assert len(self.matcher) == len(self.live)
        found = self.matcher.match(to_events(events))
        pairs = sorted(zip(found.row.tolist(), found.subscription.tolist(), strict=True))
        assert pairs == sorted(
            (row, number)
            for row, event in enumerate(events)
            for number, subscription in self.live.items()
            if satisfies(event, subscription)
        )


@pytest.mark.parametrize("name", make_matchers())
@pytest.mark.parametrize("seed", range(6))
def test_matches_are_those_of_brute_force_while_subscriptions_come_and_go(
    name: str, seed: int
) -> None:
    rng = np.random.default_rng([seed, 1])
    attributes, values = int(rng.integers(2, 9)), int(rng.integers(1, 8))
    held = ManySubscriptions(make_matchers()[name])
    for _ in range(8):
        held.insert([draw_subscription(rng, attributes, values) for _ in range(120)])
        held.check([draw_event(rng, attributes, values) for _ in range(15)])
        keys = rng.permutation(list(held.live))
        held.delete(keys[: int(len(keys) * rng.random())].tolist())
        events = [draw_event(rng, attributes, values) for _ in range(15)]
        held.check(events)
        held.matcher.observe(count_events(to_events(events)))
        held.check(events)
    held.delete(list(held.live))
    held.check(events)


def conjunction(rng: np.random.Generator, fixed: tuple[int, ...]) -> list[Predicate]:
    free = rng.permutation(np.arange(4, 8))[:2].tolist()
    return [(a, EQ, int(rng.integers(0, 4))) for a in (*fixed, *free)]


def test_tables_are_made_where_they_pay_and_dropped_when_nobody_is_left() -> None:
    rng = np.random.default_rng(7)
    matcher = ClusterMatcher(assume_uniform(4, 0), limits=ClusteringLimits(2, 50, 100))
    held = ManySubscriptions(matcher)
    events = [{a: int(rng.integers(0, 4)) for a in range(8)} for _ in range(20)]
    held.insert([conjunction(rng, (0, 1)) for _ in range(600)])
    held.check(events)
    assert (0, 1) in matcher.tables()
    old = list(held.live)
    held.insert([conjunction(rng, (2, 3)) for _ in range(600)])
    held.check(events)
    assert (2, 3) in matcher.tables()
    held.delete(old)
    held.check(events)
    assert (0, 1) not in matcher.tables()
    assert (2, 3) in matcher.tables()
    changes = matcher.changes()
    assert changes["created"] > changes["dropped"] > 0


def test_a_conjunction_saves_checks() -> None:
    rng = np.random.default_rng(8)
    rows = to_rows([conjunction(rng, (0, 1)) for _ in range(2_000)])
    events = to_events([{a: int(rng.integers(0, 4)) for a in range(8)} for _ in range(50)])
    checks = {}
    for name, limits in (("single", None), ("dynamic", ClusteringLimits(2, 50, 100))):
        matcher = ClusterMatcher(assume_uniform(4, 0), limits=limits)
        matcher.insert(rows)
        matcher.match(events)
        checks[name] = matcher.counts().checks
    assert checks["dynamic"] < checks["single"] / 3


def test_statistics_that_change_move_subscriptions() -> None:
    rng = np.random.default_rng(9)
    matcher = ClusterMatcher(assume_uniform(50, 0), limits=ClusteringLimits(20, 50, 100))
    held = ManySubscriptions(matcher)
    held.insert([conjunction(rng, (0, 1)) for _ in range(600)])
    assert not matcher.tables()
    events = [{a: int(rng.integers(0, 4)) for a in range(8)} for _ in range(400)]
    matcher.observe(count_events(to_events(events)))
    assert matcher.tables()
    held.check(events)


def test_no_equality_is_the_universal_list_and_no_predicate_always_matches() -> None:
    for matcher in make_matchers().values():
        held = ManySubscriptions(matcher)
        held.insert([[], [(3, 0, 5)], [(3, 3, 5), (3, 3, 5)], []])
        held.check([{}, {3: 4}, {3: 5}, {3: 6}, {2: 1}])


def test_more_than_ten_predicates_and_the_most() -> None:
    long = [[(a, EQ, 1) for a in range(n)] for n in (*range(9, 15), 64)]
    for matcher in make_matchers().values():
        held = ManySubscriptions(matcher)
        held.insert(long)
        held.check([dict.fromkeys(range(n), 1) for n in range(8, 65)])


def test_room_for_matches_grows() -> None:
    for matcher in make_matchers().values():
        held = ManySubscriptions(matcher)
        held.insert([[] for _ in range(3_000)] + [[(0, EQ, 1)] for _ in range(3_000)])
        held.check([{0: 1}, {0: 2}, {0: 1}])


def test_an_empty_matcher_finds_nothing() -> None:
    for matcher in make_matchers().values():
        matcher.insert(to_rows([]))
        matcher.delete(np.zeros(0, np.int64))
        assert len(matcher.match(to_events([{0: 1}, {}])).row) == 0
        assert len(matcher.match(to_events([])).row) == 0


@pytest.mark.parametrize("name", make_matchers())
def test_bad_input_is_refused_and_changes_nothing(name: str) -> None:
    matcher = make_matchers()[name]
    numbers = matcher.insert(to_rows([[(0, EQ, 1)]]))
    good = to_rows([[(0, EQ, 1)]])
    for bad in (
        good._replace(attribute=np.array([64], np.uint8)),
        good._replace(operator=np.array([6], np.uint8)),
        good._replace(value=np.zeros(2, np.int64)),
        good._replace(off=np.array([1, 1])),
        to_rows([[(0, EQ, v) for v in range(65)]]),
    ):
        with pytest.raises(ValueError, match=r"off|attribute|operator"):
            matcher.insert(bad)
    twice = to_events([{0: 1}, {0: 1, 1: 1}])
    with pytest.raises(ValueError, match="event 1 has two values"):
        matcher.match(twice._replace(attribute=np.array([0, 0, 0], np.uint8)))
    for wrong in ([5], [-1], [0, 0]):
        with pytest.raises(KeyError):
            matcher.delete(np.array(wrong))
    assert matcher.match(to_events([{0: 1}])).subscription.tolist() == numbers.tolist()
    matcher.delete(numbers)
    with pytest.raises(KeyError):
        matcher.delete(numbers)


def test_numbers_are_reused_and_memory_is_given_back() -> None:
    rng = np.random.default_rng(3)
    rows = to_rows([conjunction(rng, (0, 1)) for _ in range(500)])
    for matcher in make_matchers().values():
        matcher.delete(matcher.insert(rows))
        first = matcher.used_bytes()
        for _ in range(10):
            matcher.delete(matcher.insert(rows))
        assert int(matcher.insert(rows).max()) < 500
        assert matcher.used_bytes() <= 1.5 * first


def test_thresholds_without_hysteresis_are_refused() -> None:
    with pytest.raises(ValueError, match="b_min must be below rp_min"):
        ClusterMatcher(assume_uniform(4), limits=ClusteringLimits(1, 10, 10))


def test_tables_are_checked() -> None:
    for table in ((1,), (1, 1), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match="two or three"):
            ClusterMatcher(assume_uniform(4), [table])


def test_cut_columns_are_views() -> None:
    rows = to_rows([[(0, EQ, 1)], [], [(1, EQ, 2), (2, EQ, 3)]])
    cut = rows.cut(1, 3)
    assert isinstance(cut, SubscriptionRows)
    assert cut.size == 2
    assert cut.off.tolist() == [0, 0, 2]
    assert np.shares_memory(cut.value, rows.value)
