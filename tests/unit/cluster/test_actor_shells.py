"""The shell of a merger: who syncs its log, and that nothing leaves before. The shell of the first
sequencer: what it raises of a ledger that it cannot open."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ps2stream.cluster.actor_shells import MergerShell, SequencerShell
from ps2stream.cluster.logs import ServiceLogs
from ps2stream.cluster.shell import GROUP
from ps2stream.cluster.topology import Topology
from ps2stream.errors import DataDirectoryError
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.messages.objects import ReleasesKept
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid
from ps2stream.store.directory import lock_directory
from ps2stream.store.places import DataDirectory
from tests.support.memory_log import MemoryLog

TOPOLOGY = Topology(text_plan(Analysis(salt=1), Grid(), 1))
KEPT = Send(Address("dispatcher", 0), ReleasesKept(0, np.zeros(1, np.int64)))
MESSAGE = [LedgerTip(0, 0).encode()]


class RecordedMerger:
    """A merger shell whose machine answers every turn with KEPT, which must wait for a sync.
    `done` lists what was done, and on which thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, str]] = []
        self.begun = threading.Semaphore(0)  # syncs
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.messages: list[Any] = []
        log = MemoryLog()
        logs: Any = SimpleNamespace(open=lambda _: log)
        self.shell = MergerShell(Address("merger", 0), 1, TOPOLOGY, logs)
        machine = self.shell.machine
        monkeypatch.setattr(machine, "on_many", self._merge)
        monkeypatch.setattr(machine, "hand_over", lambda: True)
        monkeypatch.setattr(machine, "tick", lambda _: [])
        monkeypatch.setattr(self.shell._reporter, "report", lambda _: [])
        monkeypatch.setattr(log, "sync", self._sync)
        monkeypatch.setattr(self.shell.links, "post", self._post)
        monkeypatch.setattr(self.shell.links, "receive", self._receive)
        self.shell._tick_due = float("inf")

    def _merge(self, _: Any) -> list[Send]:
        self._note("merged")
        return [KEPT]

    def _sync(self) -> int:
        self.begun.release()
        assert self.may_sync.wait(60)
        self._note("synced")
        return 0

    def _post(self, sends: list[Send]) -> None:
        self._note(*["sent"] * len(sends))

    def _receive(self, _: int) -> Any:
        return self.messages.pop() if self.messages else None

    def _note(self, *what: str) -> None:
        self.done += [(each, threading.current_thread().name) for each in what]


@pytest.fixture
def merger(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedMerger]:
    recorded = RecordedMerger(monkeypatch)
    recorded.shell._syncer.start()
    yield recorded
    recorded.may_sync.set()
    recorded.shell.stop()


def test_a_merger_to_which_nothing_else_comes_syncs_on_the_thread_that_receives(
    merger: RecordedMerger,
) -> None:
    here = threading.current_thread().name
    for _ in range(3):
        merger.done.clear()
        merger.messages = [MESSAGE]
        merger.shell.take_turn(0)
        assert merger.done == [("merged", here), ("synced", here), ("sent", here)]


def test_a_merger_goes_on_while_another_thread_syncs_if_messages_wait(
    merger: RecordedMerger,
) -> None:
    here = threading.current_thread().name
    merger.may_sync.clear()
    merger.messages = [MESSAGE] * (GROUP + 1)
    assert merger.shell.take_turn(0)
    assert merger.begun.acquire(timeout=60)
    assert not merger.shell.take_turn(0)  # nothing waits any more, but a sync is under way
    assert merger.done == [("merged", here), ("merged", here)]
    merger.may_sync.set()
    assert merger.begun.acquire(timeout=60)  # of what came during the first sync
    merger.shell.stop()
    there = "merger-0-log"
    assert merger.done[2:6] == [("synced", there), ("sent", there)] * 2


@pytest.mark.parametrize("lapsed", [False, True])
def test_a_merger_writes_at_its_end_unless_another_may_have_its_log(
    merger: RecordedMerger, monkeypatch: pytest.MonkeyPatch, lapsed: bool
) -> None:
    monkeypatch.setattr(merger.shell.machine, "end", lambda: merger._note("ended"))
    merger.shell.lease = 0.0 if lapsed else float("inf")
    merger.shell.stop()
    done = [what for what, _ in merger.done]
    assert ("ended" in done, done[-1]) == (not lapsed, "synced")


def test_the_first_sequencer_raises_with_its_first_call(tmp_path: Path) -> None:
    place = DataDirectory(tmp_path)
    with contextlib.closing(lock_directory(tmp_path)):
        shell = SequencerShell(SEQUENCER, place, TOPOLOGY, True)
        assert repr(shell) == ""  # which Ray shows
        with pytest.raises(DataDirectoryError, match="in use by process"):
            shell.pair_logs(ServiceLogs(place), accept_loss=False)
        shell.stop()
        (tmp_path / "ledger.db").touch()
        with pytest.raises(DataDirectoryError, match="in use by process"):
            SequencerShell(SEQUENCER, place, TOPOLOGY, False)
