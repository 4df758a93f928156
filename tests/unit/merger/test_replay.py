"""The merger through losses, repeats and crashes, against the pairs that there are."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.merger_world import run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a short run reaches."""
    monkeypatch.setattr("ps2stream.merger.backlog.BLOCK", 3)
    monkeypatch.setattr("ps2stream.merger.fanout.MAX_BYTES", 400)
    monkeypatch.setattr("ps2stream.merger.subscribers.TURN", 40_000)
    monkeypatch.setattr("ps2stream.merger.journal.CACHE_BYTES", 2_000)
    monkeypatch.setattr("ps2stream.merger.dedup.EARLY", 6)
    monkeypatch.setattr("ps2stream.merger.forgotten.MAX_RECORDS", 2)
    monkeypatch.setattr("ps2stream.merger.places.FOLD", 8)
    monkeypatch.setattr("ps2stream.merger.recovery.FOLD", 8)


@pytest.mark.parametrize("seed", range(40))
def test_every_pair_once_by_number(seed: int) -> None:
    run(seed, 300)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(1_000, 2**32))
def test_every_pair_once_by_number_on_any_seed(seed: int) -> None:
    run(seed, 150)
