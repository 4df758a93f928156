"""The embedded runtime after its end: a call is refused, and never waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.errors import NothingDone
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid
from ps2stream.store.memory import MemoryStore


@pytest.fixture
def ended() -> LocalRuntime:
    runtime = LocalRuntime(Topology(text_plan(Analysis(salt=1), Grid(), 1)), MemoryStore())
    assert runtime.status()["sequencer-0"]["up"] == 1
    runtime.close()
    return runtime


@pytest.mark.parametrize(
    "call",
    [
        LocalRuntime.status,
        lambda runtime: runtime.edges[0].status(),
        lambda runtime: runtime.edges[0].lookup("q", 0, 0, 1).result(),
    ],
    ids=["runtime", "dispatcher", "sequencer"],
)
def test_a_call_after_the_end_is_refused(ended: LocalRuntime, call: Any) -> None:
    found: list[str] = []

    def ask() -> None:
        try:
            call(ended)
        except NothingDone as error:
            found.append(str(error))

    asking = threading.Thread(target=ask, daemon=True)  # it would wait for ever
    asking.start()
    asking.join(20)
    assert found == ["this dispatcher has stopped"]
