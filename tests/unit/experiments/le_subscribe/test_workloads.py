"""Subscriptions and events are those of the specifications."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.le_subscribe.rows import (
    EQ,
    GT,
    LT,
    check_events,
    check_subscriptions,
)
from ps2stream.experiments.le_subscribe.workloads import (
    DRIFT,
    SKEW,
    W0,
    W1,
    W2,
    PredicateWorkload,
)


@pytest.mark.parametrize(
    ("workload", "operators"),
    [
        (W0, [EQ] * 5),
        (W1, [EQ, EQ, GT, EQ]),
        (W2, [EQ, EQ, LT, LT, LT, LT, LT, GT, EQ]),
    ],
)
def test_a_workload_has_its_predicates(workload: PredicateWorkload, operators: list[int]) -> None:
    rows = workload.draw_subscriptions(12_000, np.random.default_rng(1))
    check_subscriptions(rows)
    width, fixed = len(operators), len(workload.fixed)
    assert rows.size == 12_000
    assert rows.operator.reshape(-1, width).tolist() == [operators] * 12_000
    attribute = rows.attribute.reshape(-1, width)
    assert (attribute[:, :fixed] == np.arange(fixed)).all()
    assert set(np.unique(attribute[:, fixed:]).tolist()) == set(range(fixed, 32))
    assert all(len(set(each)) == width for each in attribute.tolist())
    assert set(rows.value.tolist()) == set(range(1, 36))


def test_events_have_all_attributes() -> None:
    events = W0.draw_events(300, np.random.default_rng(1))
    check_events(events)
    assert events.attribute.reshape(-1, 32).tolist() == [list(range(32))] * 300
    assert set(events.value.tolist()) == set(range(1, 36))


def test_a_drift_leads_to_the_other_attributes() -> None:
    rng = np.random.default_rng(1)
    before, after = (workload.draw_subscriptions(2_000, rng) for workload in DRIFT)
    assert set(before.attribute.tolist()) == set(range(16))
    assert set(after.attribute.tolist()) == set(range(16, 32))


def test_a_skew_leaves_two_values_of_one_attribute() -> None:
    rng = np.random.default_rng(1)
    for rows in (SKEW[1].draw_subscriptions(500, rng), SKEW[1].draw_events(500, rng)):
        assert set(rows.value[rows.attribute == 0].tolist()) == {1, 2}
        assert set(rows.value[rows.attribute == 1].tolist()) == set(range(1, 36))


def test_a_seed_draws_the_same_again() -> None:
    one, two = (W0.draw_subscriptions(50, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one.attribute, two.attribute)
    assert np.array_equal(one.value, two.value)
