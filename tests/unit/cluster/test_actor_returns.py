"""Actors go to a host that has joined, one at a time, and only while all is calm."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.actor_returns import CALM_S, ActorReturns
from ps2stream.cluster.placement import ClusterPlacement
from ps2stream.cluster.roles import ROLES, resources
from ps2stream.cluster.shell import ActorIncarnation, LanSettings
from ps2stream.protocol.addresses import Address

WAIT_S = 30.0


class Cluster:
    """Hosts that offer five of each role, and actors; a killed one starts where there is most
    room."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = dict.fromkeys(hosts, dict.fromkeys(ROLES, 5))
        context = SimpleNamespace(get_node_id=lambda: "a")
        ray: Any = SimpleNamespace(nodes=self._list_nodes, get_runtime_context=lambda: context)
        self.placement = ClusterPlacement(ray, LanSettings(range(0), 20, as_json=False), 0.0)
        self.peers: dict[Address, ActorIncarnation] = {}
        self.now = 0.0
        self.is_calm = True
        self.killed: list[Address] = []
        self.has_standby = True
        self.returns = self.watch(WAIT_S)

    def watch(self, wait_s: float) -> ActorReturns:
        creator: Any = SimpleNamespace(list_hosts=lambda: [*self.hosts], find_move=self._find_move)
        actors: Any = self.peers  # only their names are looked at
        killing: Any = SimpleNamespace(kill=self._kill)
        found = ActorReturns(
            killing, creator, actors, self.peers, threading.RLock(),
            lambda: self.is_calm, wait_s, lambda: self.now,
        )  # fmt: skip
        found._first.update(self.hosts)
        return found

    def _list_nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "Alive": True, "Resources": resources(offered)}
            for name, offered in self.hosts.items()
        ]

    def _find_move(self, to: str, homes: dict[Address, ActorHome]) -> Address | None:
        return self.placement.find_move(to, homes) if self.has_standby else None

    def place(self, actor: Address, host: str = "") -> None:
        homes = {a: peer.home for a, peer in self.peers.items() if peer.home is not None}
        host = host or self.placement.find_hosts(actor, homes, lambda _: 0.0)[0]
        self.peers[actor] = ActorIncarnation("", 1, ActorHome(host, host, ""))

    def _kill(self, incarnation: ActorIncarnation) -> None:
        (actor,) = (a for a, peer in self.peers.items() if peer is incarnation)
        self.killed.append(actor)
        self.place(actor)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.returns.look()

    def count(self, host: str) -> int:
        return sum(p.home is not None and p.home.node == host for p in self.peers.values())


@pytest.fixture
def crowded() -> Cluster:
    """A cluster of one host, with all actors."""
    cluster = Cluster("a")
    for role in ("worker", "merger", "dispatcher"):
        for i in range(2):
            cluster.place(Address(role, i), "a")
    for role in ("sequencer", "controller"):
        cluster.place(Address(role, 0), "a")  # type: ignore[arg-type]
    return cluster


def test_actors_go_one_at_a_time_until_the_hosts_have_as_many(crowded: Cluster) -> None:
    crowded.pass_time(9)
    crowded.hosts["b"] = crowded.hosts["a"]
    crowded.pass_time(WAIT_S)
    assert not crowded.killed
    crowded.pass_time(1)
    assert len(crowded.killed) == 1
    crowded.pass_time(CALM_S - 1)
    assert len(crowded.killed) == 1
    crowded.pass_time(100)
    assert [actor.role for actor in crowded.killed] == [
        "worker", "merger", "dispatcher", "controller",
    ]  # fmt: skip
    assert crowded.count("a") == crowded.count("b") == 4


def test_none_goes_while_another_is_replaced_or_no_standby_is_ready(crowded: Cluster) -> None:
    crowded.hosts["b"] = crowded.hosts["a"]
    crowded.is_calm = False
    crowded.pass_time(100)
    crowded.is_calm = True
    crowded.has_standby = False
    crowded.pass_time(100)
    assert not crowded.killed
    crowded.has_standby = True
    crowded.pass_time(1)
    assert len(crowded.killed) == 1


def test_a_host_that_is_gone_again_begins_anew(crowded: Cluster) -> None:
    for _ in range(5):
        crowded.hosts["b"] = crowded.hosts["a"]
        crowded.pass_time(WAIT_S)
        del crowded.hosts["b"]
        crowded.pass_time(1)
    assert not crowded.killed


def test_hosts_of_the_start_keep_what_they_have_and_zero_means_never(crowded: Cluster) -> None:
    crowded.hosts["b"] = crowded.hosts["a"]
    crowded.returns = crowded.watch(WAIT_S)
    crowded.pass_time(200)
    assert not crowded.killed
    never = crowded.watch(0.0)
    never.start()
    assert not never._thread.is_alive()


@pytest.mark.parametrize("seed", range(20))
def test_however_actors_lie_they_come_to_rest(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster("a", "b")
    for role in ROLES:
        for i in range(rng.randint(0, 4)):
            cluster.place(Address(role, i), rng.choice("ab"))  # type: ignore[arg-type]
    for host in "cd":
        cluster.hosts[host] = {role: rng.randint(0, 3) for role in ROLES}
    cluster.pass_time(150)
    before = len(cluster.killed)
    assert before <= len(cluster.peers)
    cluster.pass_time(60)
    assert len(cluster.killed) == before


def test_a_look_that_fails_is_a_warning_once_for_each_kind_of_error(
    crowded: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [ConnectionError("a"), ConnectionError("b"), ValueError("c")]
    calm = threading.Event()

    def is_calm() -> bool:
        if errors:
            raise errors.pop(0)
        calm.set()
        return True

    monkeypatch.setattr("ps2stream.cluster.actor_returns.RETURN_LOOK_S", 0.001)
    monkeypatch.setattr(crowded.returns, "_is_calm", is_calm)
    crowded.returns.start()
    try:
        assert calm.wait(60)  # it goes on
    finally:
        crowded.returns.stop()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "no actor goes to hosts that have joined: ConnectionError: a"),
        ("WARNING", "no actor goes to hosts that have joined: ValueError: c"),
    ]
