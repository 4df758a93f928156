"""Shells without Ray: a bug in a machine ends its shell, visibly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ps2stream.batch import Frame
from ps2stream.cluster.actors import DispatcherShell, MachineShell
from ps2stream.cluster.links import Links
from ps2stream.cluster.topology import Topology
from ps2stream.grid import Grid
from ps2stream.messages import Address, Send, Visible, Watermark
from ps2stream.plan import text_plan
from ps2stream.terms import Analysis

HERE = Address("worker", 0)
TOPOLOGY = Topology(text_plan(Analysis(salt=1), Grid(), 1))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[MachineShell, Links]]:
    shell = MachineShell("worker-0", HERE, TOPOLOGY)
    with closing(Links()) as peer:
        peer.connect({HERE: shell.bind(tmp_path)})
        shell.connect({})
        shell.start()
        yield shell, peer
        shell.stop()


def failed(shell: MachineShell) -> str:
    deadline = time.monotonic() + 60
    while not shell.failure and time.monotonic() < deadline:
        time.sleep(0.01)
    return str(shell.status()["failure"])


def test_a_message_that_a_machine_does_not_take_ends_its_shell(
    worker: tuple[MachineShell, Links],
) -> None:
    shell, peer = worker
    peer.post([Send(HERE, Watermark(0, 1))])
    peer.post([Send(HERE, Visible(1))])
    assert "TypeError" in failed(shell)
    taken: list[object] = []
    came = threading.Event()
    receive = shell.receive

    def watched() -> list[Frame]:
        frames = receive()
        if frames:
            came.set()
        return frames

    shell.receive = watched  # type: ignore[method-assign]
    shell.handle = taken.append  # type: ignore[assignment, method-assign]
    for _ in range(100):  # the call under way may still take the first one
        peer.post([Send(HERE, Watermark(0, 2))])
        if came.wait(0.5):
            break
    assert came.is_set()
    shell.stop()
    assert taken == []


def test_a_failing_tick_is_told_and_not_repeated() -> None:
    shell = DispatcherShell("dispatcher-0", 0, TOPOLOGY)
    ticks = []

    def tick() -> None:
        ticks.append(1)
        raise ValueError("a bug")

    shell.edge.tick = tick  # type: ignore[method-assign]
    for _ in range(3):
        shell.tick()
    assert len(ticks) == 1
    assert "a bug" in shell.status()["failure"]
    shell.stop()
