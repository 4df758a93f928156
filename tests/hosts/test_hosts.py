"""One of two hosts dies; `make chaos` also cuts its cable, and kills it amid a move."""

from __future__ import annotations

import pytest

from tests.hosts.run import DISPATCHERS, run
from tests.support.postgres_server import Server

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_when_a_host_dies_nothing_acknowledged_is_lost_or_comes_twice(postgres: Server) -> None:
    found = run(postgres, ["kill"], seed=3)
    assert found["held"], found
    assert found["recovery_s"]["all"]["kill"]["n"] == 1
    assert found["endpoints"] == found["hosts"][:1] * DISPATCHERS
    assert found["delivered"] >= found["expected"] > 300
