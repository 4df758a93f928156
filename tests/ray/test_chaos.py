"""Some real faults. `make chaos` makes more, and kills every role at each step of a move, which
tests/sim/test_moves.py does without Ray."""

from __future__ import annotations

import pytest

from tests.chaos.faults import AMID_MOVES, ROLES
from tests.chaos.run import ray_deaths, rehearse
from tests.support.shortening import choose_first

pytestmark = [pytest.mark.ray, pytest.mark.slow]
DAEMONS = choose_first(("raylet", "gcs_server"), 1)
"""The daemons of Ray after whose death the service serves again. In CI the GCS dies as the service
is ended: what watches a daemon and starts Ray again is the same for both."""


@pytest.mark.takes_turns(0)
def test_nothing_is_lost_or_comes_twice_under_kills_and_beside_busy_programs() -> None:
    found = rehearse(seed=20, hogs_s=7)  # longer than a lease, after which an actor is replaced
    assert found["held"], str(found)
    assert found["beside_hogs"]["matches"] >= 20
    assert found["kills"] == dict.fromkeys(ROLES, 1), found
    assert found["stops"] == {"dispatcher": 1}
    assert found["killed_amid_moves"] == {f"{role}, {step}": 1 for role, step in AMID_MOVES.items()}
    assert found["delivered"] >= found["expected"] > 300


@pytest.mark.takes_turns(1)
def test_nothing_is_lost_when_supervisor_or_ray_dies_and_sigterm_ends_the_service_then() -> None:
    found = ray_deaths(seed=4, daemons=DAEMONS)
    assert found["held"], str(found)
    assert all(found["recovery_s"][name] for name in DAEMONS)
    assert found["delivered"] >= found["expected"] > 300
