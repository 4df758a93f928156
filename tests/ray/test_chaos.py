"""Some real faults, and kills at chosen steps of moves; `make chaos` makes more."""

from __future__ import annotations

import pytest

from tests.chaos.run import beside_hogs, ray_deaths, run, sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_nothing_acknowledged_is_lost_or_comes_twice_under_kills() -> None:
    found = run(minutes=0.5, seed=20, kills=4)
    assert found["held"], found
    assert found["kills_total"] >= 4
    assert found["delivered"] >= found["expected"] > 300


def test_nothing_is_lost_when_ray_itself_dies_and_sigterm_ends_the_service_then() -> None:
    found = ray_deaths(seed=4)
    assert found["held"], found
    assert all(found["recovery_s"][name] for name in ("raylet", "gcs_server"))
    assert found["delivered"] >= found["expected"] > 300


def test_beside_busy_programs_no_actor_is_replaced_and_matches_come() -> None:
    found = beside_hogs(seconds=10)
    assert found["held"], found
    assert found["matches"] >= 20


def test_whoever_is_killed_at_whichever_step_of_a_move_nothing_is_lost() -> None:
    roles = ("source", "target", "controller")
    found = sweep(seed=2, roles=roles)
    assert found["held"], found
    steps = {f"{role}, {step}" for role in roles for step in ("transferring", "retiring")}
    assert found["killed_amid_moves"].keys() == steps
    assert found["delivered"] >= found["expected"] > 500
