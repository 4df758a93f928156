"""Delivered set = oracle under random interleavings."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sim.interleavings import run
from tests.support.shortening import choose_first


@pytest.mark.parametrize("seed", choose_first(range(20), 8))
def test_delivered_set_is_the_oracles(seed: int) -> None:
    run(seed, 120)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1000, 2**32))
def test_delivered_set_is_the_oracles_on_any_seed(seed: int) -> None:
    run(seed, 60)
