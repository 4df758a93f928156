"""Some real faults, and kills at chosen steps of moves; `make chaos` makes more."""

from __future__ import annotations

import pytest

from tests.chaos.run import run, sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_nothing_acknowledged_is_lost_or_comes_twice_under_kills() -> None:
    found = run(minutes=0.5, seed=20, kills=4)
    assert found["held"], found
    assert found["kills_total"] >= 4
    assert found["delivered"] >= found["expected"] > 300


def test_whoever_is_killed_at_whichever_step_of_a_move_nothing_is_lost() -> None:
    roles = ("source", "target", "controller")
    found = sweep(seed=2, roles=roles)
    assert found["held"], found
    steps = {f"{role}, {step}" for role in roles for step in ("loading", "retiring")}
    assert found["killed_amid_moves"].keys() == steps
    assert found["delivered"] >= found["expected"] > 500
