"""A dispatcher that stops in order: its log tells how far objects are complete."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster import dispatcher_shell
from ps2stream.cluster.dispatcher_shell import ANSWERS_MS, DispatcherShell
from ps2stream.cluster.links import POLL_MS
from ps2stream.cluster.service import start
from ps2stream.cluster.topology import Topology
from ps2stream.config import Settings
from ps2stream.dispatcher.events import AnswersDue
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address
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


def test_a_shell_looks_again_soon_while_answers_wait(tmp_path: Path) -> None:
    shell = run(MemoryLog(), tmp_path)
    shell.stop()
    handled: list[Any] = []
    machine: Any = shell.edge.machine
    shell._events = SimpleNamespace(put=lambda *events: handled.extend(events))  # type: ignore[assignment]
    assert (shell.wait_ms, shell.busy) == (POLL_MS, False)
    machine.answers_due = time.monotonic() + 60
    assert (shell.wait_ms, shell.busy) == (ANSWERS_MS, False)
    machine.answers_due = time.monotonic()
    assert (shell.wait_ms, shell.busy) == (ANSWERS_MS, True)
    shell.handle([])
    assert handled == [AnswersDue()]


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
