"""Shells without Ray: a bug in a machine ends its shell, visibly."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps2stream.cluster.actor_shells import WorkerShell
from ps2stream.cluster.links import PeerLinks
from ps2stream.cluster.shell import GRACE_S, GROUP, ActorIncarnation
from ps2stream.cluster.topology import Topology
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.objects import ReleasesKept, WatermarkNotice
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.protocol.ticks import TICK_S
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid

HERE = Address("worker", 0)
PEER = Address("dispatcher", 0)
TOPOLOGY = Topology(text_plan(Analysis(salt=1), Grid(), 1))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[WorkerShell, PeerLinks]]:
    shell = WorkerShell(HERE, 1, TOPOLOGY)
    with closing(PeerLinks(PEER, 1)) as peer:
        peer.connect(HERE, *shell.bind(tmp_path))
        shell.start()
        yield shell, peer
        shell.stop()


def failed(shell: WorkerShell) -> str:
    deadline = time.monotonic() + 60
    while not shell.failure and time.monotonic() < deadline:
        time.sleep(0.01)
    return str(shell.status()["failure"])


def test_a_message_that_a_machine_does_not_take_ends_its_shell(
    worker: tuple[WorkerShell, PeerLinks],
) -> None:
    shell, peer = worker
    peer.post([Send(HERE, WatermarkNotice(0, 1))])
    peer.post([Send(HERE, ReleasesKept(0, np.zeros(0, np.int64)))])
    assert "TypeError" in failed(shell)
    taken: list[object] = []
    shell.handle = taken.append  # type: ignore[assignment, method-assign]
    for _ in range(20):
        peer.post([Send(HERE, WatermarkNotice(0, 2))])
        time.sleep(0.02)
    shell.stop()
    assert taken == []


def test_no_message_is_lost_between_two_turns(tmp_path: Path) -> None:
    shell = WorkerShell(HERE, 1, TOPOLOGY)
    groups: list[list[int]] = []

    def handle(frames: list[Any]) -> None:
        groups.append([frame.lsn for frame in frames])

    shell.handle = handle  # type: ignore[method-assign]
    n = 3 * GROUP + 1
    with closing(PeerLinks(PEER, 1)) as peer:
        peer.connect(HERE, *shell.bind(tmp_path))
        for lsn in range(n):
            peer.post([Send(HERE, LedgerTip(lsn, 0))])
        while sum(map(len, groups)) < n and shell.take_turn(0):
            pass
        shell.take_turn(0)
    shell.stop()
    assert [lsn for group in groups for lsn in group] == list(range(n))
    assert max(map(len, groups)) == GROUP


@pytest.mark.parametrize("exits", [False, True])
def test_collections_pass_over_what_an_actor_of_its_own_process_has_loaded(
    tmp_path: Path, exits: bool
) -> None:
    shell = WorkerShell(HERE, 1, TOPOLOGY)
    shell.bind(tmp_path)
    before = gc.get_freeze_count()
    shell.start(exits)
    try:
        assert (gc.get_freeze_count() > before) == exits
    finally:
        shell.stop()
        gc.unfreeze()


def test_an_inbox_that_fails_ends_the_shell(
    worker: tuple[WorkerShell, PeerLinks], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, _ = worker

    def fail(_: int) -> None:
        monkeypatch.undo()
        raise OSError("no watch is left")

    monkeypatch.setattr(shell.links, "receive", fail)
    assert "no watch is left" in failed(shell)


def test_a_failing_tick_ends_the_shell(worker: tuple[WorkerShell, PeerLinks]) -> None:
    shell, _ = worker
    ticks = []

    def tick() -> None:
        ticks.append(1)
        raise ValueError("a bug")

    shell.tick = tick  # type: ignore[method-assign]
    assert "a bug" in failed(shell)
    time.sleep(3 * TICK_S)
    assert len(ticks) == 1


def test_a_shell_past_its_lease_sends_nothing_more(worker: tuple[WorkerShell, PeerLinks]) -> None:
    shell, peer = worker
    with closing(PeerLinks(Address("sequencer", 0), 1)) as inbox:
        shell.connect({inbox.owner: ActorIncarnation(inbox.bind(Path(tempfile.mkdtemp())), 1)})
        shell.ping(1.0, time.monotonic() - GRACE_S - 2.0)
        assert "lease" in failed(shell)
        peer.post([Send(HERE, LedgerTip(9, 0))])
        assert inbox.receive() is None


def test_a_shell_past_its_lease_waits_and_goes_on_once_it_is_renewed(
    worker: tuple[WorkerShell, PeerLinks],
) -> None:
    shell, _ = worker
    with closing(PeerLinks(Address("sequencer", 0), 1)) as inbox:
        shell.connect({inbox.owner: ActorIncarnation(inbox.bind(Path(tempfile.mkdtemp())), 1)})
        shell.ping(1.0, time.monotonic() - 2.0)
        posting = threading.Thread(target=shell.post, args=([Send(inbox.owner, LedgerTip(9, 0))],))
        posting.start()
        for _ in range(30):
            time.sleep(0.01)
            assert inbox.receive(0) is None
        assert posting.is_alive()
        shell.ping(60.0, time.monotonic())
        posting.join()
        deadline = time.monotonic() + 60
        while inbox.receive(0) is None:
            assert time.monotonic() < deadline
        assert not shell.failure


def test_a_lease_begins_with_the_start_and_a_ping_that_waited_does_not_renew_it(
    tmp_path: Path,
) -> None:
    shell = WorkerShell(HERE, 1, TOPOLOGY)
    shell.bind(tmp_path)
    began = shell.ping(6.0, None).clock
    assert shell.lease == float("inf")
    shell.start()
    try:
        lease = shell.lease
        assert began + 6.0 <= lease < float("inf")
        shell.ping(600.0, None)  # sent before the first answer had come back
        assert shell.lease == lease
        shell.ping(6.0, heard=lease)
        assert shell.lease == lease + 6.0
    finally:
        shell.stop()
