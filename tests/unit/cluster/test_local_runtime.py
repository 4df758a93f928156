"""The embedded runtime after its end: a call is refused, and never waits; and an actor that cannot
join yet."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.errors import DataDirectoryError, NothingDone
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address
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


def test_an_actor_whose_log_is_gone_joins_once_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    gone = True

    def make_log(owner: Address) -> None:
        if gone:
            raise DataDirectoryError(f"the log of {owner.role} is missing")

    topology = Topology(text_plan(Analysis(salt=1), Grid(), 1))
    runtime = LocalRuntime(topology, MemoryStore(), make_log=make_log)
    edge = runtime.edges[0]
    for ask, role in ((edge.dispatchers, "dispatcher"), (edge.mergers, "merger")):
        gone = True
        ask(2)
        for _ in range(3):
            runtime.tick()
        told = f"{role}-1 was not started; retrying: the log of {role} is missing"
        assert [record.getMessage() for record in caplog.records].count(told) == 1
        assert f"{role}-1" not in runtime.status()
        gone = False
        for _ in range(20):
            runtime.tick()
        assert f"{role}-1" in runtime.status()
    runtime.close()
