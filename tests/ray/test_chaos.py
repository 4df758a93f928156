"""Two minutes of real faults; `make chaos` makes longer ones."""

from __future__ import annotations

import pytest

from tests.chaos.run import run

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_nothing_acknowledged_is_lost_or_comes_twice_under_kills() -> None:
    found = run(minutes=2, seed=20)
    assert found["held"], found
    assert found["kills_total"] >= 10
    assert found["delivered"] >= found["expected"] > 1000
