"""Statistics on events are what a count of the sample says."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES
from ps2stream.experiments.le_subscribe.selectivity import (
    assume_uniform,
    count_events,
    find_share,
    find_shares,
)
from tests.support.subscriptions import EXTREMES, draw_event, to_events


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_the_sample(seed: int) -> None:
    rng = np.random.default_rng(seed)
    events = [draw_event(rng, 6, 5) for _ in range(60)]
    known = count_events(to_events(events))
    for attribute in range(8):
        present = sum(attribute in event for event in events)
        assert known.presence[attribute] == present / 60
        for value in (*range(-1, 7), *EXTREMES):
            count = sum(event.get(attribute) == value for event in events)
            assert find_share(known, attribute, value) == (count / 60 if count else 0.5 / 60)


def test_shares_of_many_are_those_of_each() -> None:
    known = count_events(to_events([{1: 5, 2: 5}, {1: 5}, {1: 6}]))
    attribute, value = np.array([1, 1, 2, 3]), np.array([5, 6, 5, 5])
    out = np.empty(4)
    find_shares(known, attribute, value, out)
    assert out.tolist() == [find_share(known, a, v) for a, v in zip(attribute, value, strict=True)]


def test_no_event_says_nothing() -> None:
    known = count_events(to_events([]))
    assert find_share(known, 0, 1) == 0.5
    assert known.presence.tolist() == [0.0] * ATTRIBUTES


def test_uniform_events_have_all_values_alike() -> None:
    known = assume_uniform(5, 1)
    assert {find_share(known, 63, v) for v in range(1, 6)} == {0.2}
    assert find_share(known, 63, 0) < 0.2
