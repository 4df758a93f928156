"""A dispatcher that stops in order: its log tells how far objects are complete."""

from __future__ import annotations

import math
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster import dispatcher_shell
from ps2stream.cluster.dispatcher_shell import DispatcherShell
from ps2stream.cluster.links import PeerLinks
from ps2stream.cluster.service import start
from ps2stream.cluster.topology import Topology
from ps2stream.config import Settings
from ps2stream.dispatcher.events import AnswersDue
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid
from tests.support.memory_log import MemoryLog

TOPOLOGY = Topology(text_plan(Analysis(salt=1), Grid(), 1))


def run(log: MemoryLog, folder: Path) -> DispatcherShell:
    logs: Any = SimpleNamespace(open=lambda _: log)
    shell = DispatcherShell(Address("dispatcher", 0), 1, TOPOLOGY, logs, 1)
    shell.bind(folder)
    shell.start()
    return shell


def test_progress_is_noted_and_then_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    log = MemoryLog()
    shell = run(log, tmp_path)
    publications = shell.edge.machine.publications
    monkeypatch.setattr(publications, "note_progress", lambda: done.append("noted"))

    def sync() -> int:
        done.append("synced")
        return log.end

    monkeypatch.setattr(log, "sync", sync)
    monkeypatch.setattr(log, "close", lambda: done.append("closed"))
    shell.stop()
    assert done[0] == "noted"
    assert done[-2:] == ["synced", "closed"]


def test_the_machine_is_informed_when_answers_have_waited_long_enough(tmp_path: Path) -> None:
    shell = run(MemoryLog(), tmp_path)
    machine: Any = shell.edge.machine
    informed = threading.Event()

    def note(_: AnswersDue) -> None:
        machine.router.__dict__.pop("release_late")
        informed.set()

    machine._handlers[AnswersDue] = note
    due = time.monotonic() + 0.2
    kind = type(machine.router)
    late = property(lambda router: math.inf if informed.is_set() else due)
    with pytest.MonkeyPatch.context() as patch:
        machine.router.release_late = lambda now: []
        patch.setattr(kind, "answers_due", late)
        shell.joined(Address("worker", 0))
        assert informed.wait(60)
        assert time.monotonic() >= due
    shell.stop()


def test_a_message_of_a_peer_is_handled_on_the_loop_with_no_tick_between(tmp_path: Path) -> None:
    shell = run(MemoryLog(), tmp_path)
    handled = threading.Event()
    names: list[str] = []

    def note(frame: Any) -> list[Any]:
        names.append(threading.current_thread().name)
        handled.set()
        return []

    shell.edge.machine.router.on = note  # type: ignore[method-assign]
    shell.tick = lambda: None  # type: ignore[method-assign]
    peer = Address("sequencer", 0)
    with closing(PeerLinks(peer, 1)) as links:
        links.connect(shell.address, f"ipc://{tmp_path}/dispatcher-0.1", 1)
        links.post([Send(shell.address, LedgerTip(0, 0))])
        assert handled.wait(60)
    assert names == ["ps2stream-service-loop"]
    shell.stop()


def test_a_peer_that_ends_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = run(MemoryLog(), tmp_path)
    gone = threading.Event()
    peer = Address("worker", 0)
    monkeypatch.setattr(shell, "lost", lambda _: gone.set())
    with closing(PeerLinks(peer, 1)) as links:
        endpoint = links.bind(tmp_path)
        shell._loop.run(connect(shell, peer, endpoint))
        shell.post([Send(peer, LedgerTip(0, 0))])
        assert links.receive(60_000) is not None  # now the sockets have met
    assert gone.wait(60)
    shell.stop()


async def connect(shell: DispatcherShell, peer: Address, endpoint: str) -> None:
    shell.links.connect(peer, endpoint, 1)


def test_what_fails_amid_a_turn_ends_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = run(MemoryLog(), tmp_path)
    failed = threading.Event()

    def receive(_: int = 0) -> None:
        failed.set()
        raise ValueError("a bug")

    monkeypatch.setattr(shell.links, "receive", receive)
    assert failed.wait(60)
    deadline = time.monotonic() + 60
    while not shell.failure:
        assert time.monotonic() < deadline
    assert "a bug" in shell.failure
    shell.stop()


def test_a_log_that_does_not_answer_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    log = MemoryLog()
    shell = run(log, tmp_path)
    monkeypatch.setattr(dispatcher_shell, "JOIN_S", 0.1)
    monkeypatch.setattr(log, "sync", lambda: int(over.wait(60)))
    begun = time.monotonic()
    shell.stop()
    assert time.monotonic() - begun < 30
    over.set()


def test_a_service_may_start_with_fewer_dispatchers_at_once(tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, workers=1, dispatchers=2, data_dir=tmp_path)
    with start(settings) as service:
        for number, target in enumerate(service.targets):
            with Client(target, timeout=60) as client:
                client.publish([{"id": f"o{number}", "lon": 1.0, "lat": 2.0, "text": "flood"}])
        deadline = time.monotonic() + 60
        while any(found.get("in_flight") for found in service.status().values()):
            assert time.monotonic() < deadline
    fewer = settings.model_copy(update={"dispatchers": 1})
    with start(fewer) as service:  # or else: batches that are not complete
        assert len(service.targets) == 1
