"""One of two hosts dies and returns; `make chaos` also cuts its cable, and kills it amid a move."""

from __future__ import annotations

import pytest

from tests.hosts.run import run
from tests.support.postgres_server import Server

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.takes_turns(2)
def test_when_a_host_dies_nothing_acknowledged_is_lost_or_comes_twice(postgres: Server) -> None:
    found = run(postgres, ["kill", "return"], seed=3)
    assert found["held"], found
    assert found["recovery_s"]["all"]["kill"]["n"] == 1
    assert sorted(found["endpoints"]) == found["hosts"], "one dispatcher went back"
    assert found["delivered"] >= found["expected"] > 300
