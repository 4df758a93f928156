"""`ps2stream status` and `migrations` for people, and what they ask of the service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream import Client
from ps2stream.cli import main
from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.running_service import RunningService
from ps2stream.dispatcher.open_requests import OpenRequests
from ps2stream.protocol.addresses import SEQUENCER

BUDGET_S = 0.05
"""Processor time of the service and its client, for one of these calls."""


def run(target: str, *words: str) -> str:
    found = CliRunner().invoke(main, [*words, "--server", target, "--timeout", "90"])
    assert found.exit_code == 0, found.output
    return found.output


def await_status(client: Client, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not holds(found := client.status()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_status_says_healthy_and_shows_every_actor(client: Client, target: str) -> None:
    client.insert("s1", "flood", session="s")
    client.publish([{"lon": 1, "lat": 2, "text": "flood"}] * 7)
    found = await_status(client, lambda s: s["census"] and s["census"]["backlog_matches"] == 7)
    assert (found["healthy"], found["problems"]) == (True, [])
    lines = run(target, "status").splitlines()
    assert lines[0] == "healthy"
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:] if "  " in line}
    assert rows["queries"] == "1 live"
    assert "7 matches not acknowledged, 7 of them of one session" in rows["sessions"]
    assert rows["disk"].endswith("GB free")
    assert rows["rates"].count("/s") == 3
    names = [line.split()[0] for line in lines[lines.index("") + 2 :]]
    assert names == ["controller-0", "dispatcher-0", "merger-0", "sequencer-0", "worker-0",
                     "worker-1"]  # fmt: skip
    client.delete("s1")


def test_verbose_gives_every_counter_a_meaning(client: Client, target: str) -> None:
    plain = run(target, "status")
    assert "log_bytes" not in plain
    (line,) = [x for x in run(target, "status", "--verbose").splitlines() if "log_bytes" in x]
    assert line.split(maxsplit=3)[2:] == ["bytes", "Disk space used by an object log or match log"]
    told = json.loads(run(target, "status", "--json"))
    assert {"version", "plan_version", "live_queries", "log_bytes", "endpoints"} <= told.keys()
    shown = run(target, "status", "--verbose").split("\n\n")[-1].splitlines()
    for row in shown:
        assert len(row.split("  ", 1)[1].split(maxsplit=1)) == 2, f"without a meaning: {row}"


@pytest.mark.takes_turns
def test_an_unhealthy_service_says_why(
    service: RunningService, client: Client, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(service, LocalService)
    status = service.status

    def broken() -> dict[str, Any]:
        return status() | {"worker-1": {"failure": "RayActorError: does not answer"}}

    monkeypatch.setattr(service._census, "_status", broken)
    await_status(client, lambda found: not found["healthy"])
    lines = run(target, "status").splitlines()
    assert lines[:2] == [
        "NOT healthy",
        "  - worker-1 does not work: RayActorError: does not answer",
    ]
    monkeypatch.undo()
    await_status(client, lambda found: bool(found["healthy"]))


def test_migrations_of_a_service_that_made_none(target: str) -> None:
    assert run(target, "migrations") == "no plan change has ended yet\n"
    assert run(target, "migrations", "--json") == ""


def test_each_call_asks_the_sequencer_once_and_no_other(
    service: RunningService, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.insert_many([(f"l{i}", "flood OR river", [1, 2, 3, 4]) for i in range(500)])
    asked: list[Any] = []
    ask = OpenRequests.ask

    def counted(self: OpenRequests, caller: Any, request: Any, to: Any, **named: Any) -> None:
        asked.append(to)
        ask(self, caller, request, to, **named)

    monkeypatch.setattr(OpenRequests, "ask", counted)
    calls: dict[str, Callable[[], object]] = {
        "status": client.status,
        "moves": client.migrations,
        "list": lambda: list(client.list(page_size=500)),
    }
    for name, call in calls.items():
        took = []
        for _ in range(10):
            asked.clear()
            begun = time.process_time()
            call()
            took.append(time.process_time() - begun)
            assert asked == [SEQUENCER], name  # one question
        assert min(took) < BUDGET_S, name
    client.delete_many([f"l{i}" for i in range(500)])
