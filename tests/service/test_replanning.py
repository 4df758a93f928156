"""The service checks by itself whether another plan would do better."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster import replanning
from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.replanning import PeriodicReplanning
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.observability.metrics import samples
from tests.support.certificates import Authority
from tests.support.moving import World, by_text, settled

PATIENCE_S = 120.0


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.takes_turns
def test_a_guarded_service_finds_a_better_plan_and_leaves_the_old_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    data = tmp_path / "data"
    tokens = [token(data, *scopes) for scopes in (("admin",), ("publish", "subscribe"))]
    settings = Settings(
        runtime="local", port=0, workers=2, dispatchers=2, data_dir=data, load_period_s=0.5,
        replan_s=0.5, replan_engine="numpy", auth=True, tls_cert=pair.cert, tls_key=pair.key,
        tls_client_ca=authority.ca, hot="off", adjust="off",
    )  # fmt: skip
    mine = authority.issue("me")
    with start(settings, by_text()) as service:
        assert isinstance(service, LocalService)
        target = service.targets[0]
        known: dict[str, Any] = {"tls_cert": mine.cert, "tls_key": mine.key}
        open_client = functools.partial(Client, target, tls_ca=authority.ca, timeout=90, **known)
        with open_client(token=tokens[0]) as admin, open_client(token=tokens[1]) as client:
            world = World(client)
            world.insert(60)
            for _ in range(3):
                world.publish(60)
            until(lambda: admin.migrations().state == "coexisting")
            world.publish(20)
            world.insert(10)
            world.publish(20)
            world.delete(60)
            world.publish(20)
            found = settled(admin)
            assert (found.plan_version, found.migrations[0].outcome) == (2, "done")
            assert found.migrations[0].coexisting_lsn
            world.publish(20)
            world.check()
            until(lambda: "replans" in admin.status())
            assert admin.status()["replans_failed"] == 0
        told = {
            sample.metric.name: sample.value
            for actor in ("dispatcher", "controller")
            for sample in samples(actor, 0, service.status()[f"{actor}-0"])
        }
        assert told["ps2stream_replans_total"]
        assert told["ps2stream_sunsets_total"] == 1
        assert told["ps2stream_replans_failed_total"] == 0
        assert service.status()["replanning-0"]["said"]
        sockets = service.sockets
        assert sockets.stat().st_mode & 0o777 == 0o700
    assert not sockets.exists()


def token(data: Path, *scopes: str) -> str:
    words = ["--scope", ",".join(scopes)]
    made = CliRunner().invoke(main, ["token", "create", "--data-dir", str(data), *words, "--json"])
    return str(json.loads(made.output)["token"])


def replanning_of(
    folder: Path, program: str
) -> tuple[PeriodicReplanning, list[Mapping[str, float]]]:
    noted: list[Mapping[str, float]] = []
    settings = Settings(data_dir=folder, replan_s=0.01)
    return PeriodicReplanning(settings, folder, noted.append, program), noted


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise SystemExit(3)", "it ended with code 3"),
        ("import os; os.abort()", "it ended with code -6"),
        ('import sys; sys.exit("no room")', "no room"),
        ('import sys; sys.exit(\'{"error": {"message": "no Java"}}\')', "no Java"),
    ],
)
def test_its_failure_is_told_and_it_is_tried_again(
    tmp_path: Path, program: str, error: str
) -> None:
    replans, noted = replanning_of(tmp_path, program)
    replans.start()
    until(lambda: len(noted) > 1)
    replans.stop()
    assert noted[1] == {"replans": 2.0, "replans_failed": 2.0}
    assert error in replans.status()["replanning-0"]["failure"]


@pytest.mark.parametrize("migrate", [False, True])
def test_it_migrates_where_that_is_set(tmp_path: Path, migrate: bool) -> None:
    settings = Settings(data_dir=tmp_path, replan_s=1.0, replan_migrate=migrate)
    told = "import json, sys; print(json.dumps(sys.argv[1:]))"
    replans = PeriodicReplanning(settings, tmp_path, lambda counts: None, told)
    replans.once()
    [command] = replans.status()["replanning-0"]["said"]
    assert command[0] == "replan"
    assert ("--migrate" in command) == migrate


def test_dispatchers_that_listen_are_asked(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, replan_s=1.0)
    told = "import json, sys; print(json.dumps(sys.argv[1:]))"
    replans = PeriodicReplanning(settings, tmp_path, lambda counts: None, told)
    paths = [replans.socket(dispatcher) for dispatcher in range(3)]
    replans.forget(1)
    replans.once()
    [command] = replans.status()["replanning-0"]["said"]
    asked = [command[i + 1] for i, word in enumerate(command) if word == "--from-service"]
    assert asked == [f"unix:{paths[0]}", f"unix:{paths[2]}"]
    assert command[command.index("--server") + 1] == asked[0]


def test_it_ends_with_the_service(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = (
        "import os, pathlib, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(900)'])\n"
        f"pathlib.Path({str(pid)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(900)\n"
    )
    replans, noted = replanning_of(tmp_path, program)
    replans.start()
    until(lambda: pid.exists() and len(pid.read_text().split()) == 2)
    replans.stop()
    for number in map(int, pid.read_text().split()):
        until(lambda number=number: _gone(number))  # type: ignore[misc]
    assert noted == []


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_one_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replanning, "LIMIT_S", 0.2)
    replans, _ = replanning_of(tmp_path, "import time; time.sleep(900)")
    replans.once()
    assert replans.status()["replanning-0"]["replans_failed"] == 1
    assert "more than 0.2 s" in replans.status()["replanning-0"]["failure"]
