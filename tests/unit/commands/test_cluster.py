"""`ps2stream cluster`: what it refuses before it starts anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.cluster import ray_environment, ray_node, shell, warm
from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.actor_shells import WorkerShell
from ps2stream.cluster.shell import LanSettings
from ps2stream.cluster.topology import Topology
from ps2stream.errors import FailedPrecondition
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid

HEAD = "10.0.0.1:6379"


@pytest.fixture(autouse=True)
def _nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(ray_environment.TOKEN, raising=False)
    monkeypatch.delenv(ray_environment.TOKEN_PATH, raising=False)
    monkeypatch.setenv(ray_environment.MODE, "token")

    def started(_: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(ray_node, "RayNode", started)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["join", "somewhere"], 2, "expected HOST:PORT, got 'somewhere'"),
        (["join", HEAD, "--roles", "wroker"], 2, "'wroker' is not a role"),
        (["join", HEAD, "--ray-ports", "1-2"], 2, "--ray-ports: expected LOW-HIGH"),
        (["join", HEAD, "--ray-ports", "70000-71000"], 2, "expected LOW-HIGH from 1 to 65535"),
        (["join", HEAD], 7, "none was found: set RAY_AUTH_TOKEN_PATH"),
        (["join", HEAD, "--serve"], 2, "ray_address: needs database_url"),
        (["start"], 2, "ray_address: needs database_url"),
        (["start", "--no-serve", "--workers", "0"], 2, "workers"),
        (
            ["start", "--database-url", "postgresql://h/d", "--replan-s", "5"],
            2,
            "`ps2stream replan` from a timer",
        ),
    ],
)
def test_what_makes_no_cluster_is_refused(
    words: list[str], code: int, why: str, tmp_path: Path
) -> None:
    found = CliRunner().invoke(main, ["cluster", *words, "--json"])
    assert found.exit_code == code
    assert why in json.loads(found.stderr)["error"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_a_mode_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ray_environment.MODE, "disabled")
    found = CliRunner().invoke(main, ["cluster", "join", HEAD, "--json"])
    assert found.exit_code == 7
    assert "could run code on all hosts" in json.loads(found.stderr)["error"]["message"]


def test_a_host_compiles_the_kernels_before_it_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    monkeypatch.setattr(warm, "prepare_host", prepared.append)
    monkeypatch.setenv(ray_environment.TOKEN, "t" * 40)
    words = ["cluster", "join", HEAD, "--index", "gi2-radix"]
    with pytest.raises(AssertionError, match="Ray was started"):
        CliRunner().invoke(main, words, catch_exceptions=False)
    assert prepared == ["gi2-radix"]


def test_an_actor_of_another_version_is_none_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "here", lambda: ActorHome("node", "127.0.0.1", ""))
    monkeypatch.setattr(shell, "say_here", lambda *_: None)
    topology = Topology(text_plan(Analysis(salt=1), Grid(), 1))
    actor = WorkerShell(Address("worker", 0), 1, topology)
    lan = LanSettings(range(0), 20, as_json=False)
    with pytest.raises(
        FailedPrecondition, match=r"host 127.0.0.1 runs ps2stream .*, but the service runs 0"
    ):
        actor.bind(tmp_path, lan._replace(version="0"))
    incarnation = actor.bind(tmp_path, lan)
    actor.stop()
    assert incarnation.endpoint.startswith("tcp://127.0.0.1:")
    assert incarnation.home is not None
    assert len(incarnation.home.key) == 40
