"""Static clustering: the cost model's example, and tables that pay within their space."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.le_subscribe.greedy import (
    ClusterCosts,
    choose_tables,
    count_checks,
    make_example,
)
from ps2stream.experiments.le_subscribe.layout import SelectivityColumns
from ps2stream.experiments.le_subscribe.matcher import ClusterMatcher
from ps2stream.experiments.le_subscribe.rows import EQ, GT, SubscriptionRows
from ps2stream.experiments.le_subscribe.selectivity import assume_uniform
from ps2stream.experiments.le_subscribe.workloads import W0
from tests.support.subscriptions import draw_subscription, to_rows

pytestmark = pytest.mark.takes_turns(2)

SINGLE = ((0,), (1,), (2,))


def test_the_example_of_the_paper_takes_its_look_ups_and_checks() -> None:
    subscriptions, values = make_example()
    assert sum(subscriptions.values()) == 7_000_000
    probes, checks = count_checks(subscriptions, values, SINGLE, (0, 1))
    # The paper rounds 2.33 million subscriptions by 100 values to 23,300.
    assert (probes, round(float(checks))) == (2, 46_667)
    probes, checks = count_checks(subscriptions, values, (*SINGLE, (0, 1), (1, 2)), (0, 1))
    assert (probes, float(checks)) == (3, 25_150)


def draw_workload(n: int = 20_000) -> tuple[SubscriptionRows, SelectivityColumns]:
    rng = np.random.default_rng(1)
    return W0.draw_subscriptions(n, rng), W0.learn(rng)


def test_the_first_table_is_that_of_the_fixed_attributes() -> None:
    rows, known = draw_workload()
    steps = choose_tables(rows, known)
    assert steps[0].schema == (0, 1)
    assert all(step.benefit > 0 for step in steps)
    assert [step.benefit for step in steps] == sorted((s.benefit for s in steps), reverse=True)


def test_no_table_is_chosen_that_exceeds_the_space() -> None:
    rng = np.random.default_rng(2)
    rows = to_rows([draw_subscription(rng, 5, 4) for _ in range(1_000)])
    known, free = assume_uniform(4, 0), ClusterCosts(retrieve=0, probe=0, attribute=0)
    everything = choose_tables(rows, known, costs=free)
    start = float(len(rows.value))
    bound = start + sum(step.words for step in everything) / 2
    some = choose_tables(rows, known, bound, free)
    assert 0 < len(some) < len(everything)
    assert start + sum(step.words for step in some) <= bound
    assert choose_tables(rows, known, 0.0, free) == []


def test_no_table_is_chosen_that_does_not_pay() -> None:
    rows, known = draw_workload(500)
    assert choose_tables(rows, known, costs=ClusterCosts(probe=1e9)) == []


def test_rare_attributes_and_inequalities_make_no_group() -> None:
    common = [[(0, EQ, k % 5), (1, EQ, k % 7), (3, GT, 1)] for k in range(995)]
    rare = [[(0, EQ, 1), (2, EQ, 1)] for _ in range(5)]
    free = ClusterCosts(retrieve=0, probe=0, attribute=0)
    steps = choose_tables(to_rows(common + rare), assume_uniform(7, 0), costs=free)
    assert [step.schema for step in steps] == [(0, 1)]


@pytest.mark.parametrize("seed", range(4))
def test_the_benefit_is_what_the_matcher_saves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = to_rows([draw_subscription(rng, 5, 4) for _ in range(2_000)])
    known = assume_uniform(4, 0)
    free = ClusterCosts(retrieve=0, probe=0, attribute=0)
    steps = choose_tables(rows, known, costs=free)
    assert steps

    def cost_of(tables: list[tuple[int, ...]]) -> float:
        matcher = ClusterMatcher(known, tables)
        matcher.insert(rows)
        return matcher.expected_checks()

    before = cost_of([])
    for n, step in enumerate(steps):
        after = cost_of([s.schema for s in steps[: n + 1]])
        assert before - after == pytest.approx(step.benefit)
        before = after


def test_nothing_comes_of_nothing() -> None:
    assert choose_tables(to_rows([]), assume_uniform(4)) == []
    assert choose_tables(to_rows([[], [(0, GT, 1)]]), assume_uniform(4)) == []
