"""The rehearsal that compiles the kernels."""

from __future__ import annotations

import pytest

from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import warm
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_rehearsed_move_ends(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    warm(Topology(built_in_plan(Analysis(salt=0), Grid(), workers)))
    assert [record.getMessage() for record in caplog.records] == []
