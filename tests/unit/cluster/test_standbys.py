"""How many standbys there are, and who gets them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.cluster.standbys import REST_S, StandbyPool


class Standby:
    """A process of Ray's that answers once it is `loaded`, unless it `died`."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.loaded = self.died = self.is_of_dead_ray = False
        self.is_loaded = SimpleNamespace(remote=lambda: self)


class World:
    """A Ray of some hosts, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, per_host: int) -> None:
        self.now = 1000.0
        self.hosts = ["a", "b"]
        self.made: list[Standby] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        affinity = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        ray: Any = SimpleNamespace(
            remote=lambda _: SimpleNamespace(options=self._options),
            wait=self._wait,
            get=self._get,
            util=SimpleNamespace(scheduling_strategies=affinity),
        )
        self.pool = StandbyPool(ray, None, per_host, lambda: self.hosts, "here")  # type: ignore[arg-type]
        monkeypatch.setattr(
            self.pool, "_thread", SimpleNamespace(is_alive=lambda: False, start=int)
        )
        self.pool.start()

    def _options(self, scheduling_strategy: str, **_: object) -> Any:
        def create(_: object) -> Standby:
            self.made.append(Standby(scheduling_strategy))
            return self.made[-1]

        return SimpleNamespace(remote=create)

    @staticmethod
    def _wait(calls: list[Standby], timeout: float) -> tuple[list[Standby], list[Standby]]:
        if any(call.is_of_dead_ray for call in calls):
            raise ValueError("Ray does not know it")
        return [call for call in calls if call.loaded or call.died], []

    @staticmethod
    def _get(call: Standby) -> None:
        if call.died:
            raise OSError("it died")

    def load_all(self) -> None:
        for standby in self.made:
            standby.loaded = True
        self.pool.fill()


def test_each_host_has_its_standbys_which_load_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, 2)
    world.pool.fill()
    world.pool.fill()
    assert sorted(standby.node for standby in world.made) == ["a", "b"]
    world.load_all()
    world.load_all()
    world.pool.fill()
    assert sorted(standby.node for standby in world.made) == ["a", "a", "b", "b"]
    taken = [world.pool.take(["b", "a"]) for _ in range(3)]
    assert [standby.node for standby in taken] == ["b", "b", "a"]
    assert world.pool.take(["b"]) is None
    world.pool.fill()
    assert len(world.made) == 4  # a successor is starting, and needs the processors
    world.now += REST_S
    world.load_all()
    world.load_all()
    assert sorted(standby.node for standby in world.made[4:]) == ["a", "b", "b"]


def test_one_that_loads_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 1)
    world.pool.fill()
    _, loaded = world.made
    loaded.loaded = True
    world.pool.fill()
    assert [world.pool.take(["a", "b"]) for _ in range(2)] == [loaded, None]


def test_a_host_has_one_once_it_has_loaded_or_where_there_are_to_be_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, 1)
    world.pool.fill()
    world.made[0].loaded = True
    assert not world.pool.has("a")
    world.pool.fill()
    assert (world.pool.has("a"), world.pool.has("b")) == (True, False)
    world.pool.take(["a"])
    assert not world.pool.has("a")
    assert World(monkeypatch, 0).pool.has("a")


@pytest.mark.parametrize("how", ["died", "is_of_dead_ray"])
def test_one_that_died_or_whose_host_left_is_not_taken(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, 1)
    world.pool.fill()
    world.load_all()
    setattr(world.made[0], how, True)
    world.hosts.remove(world.made[0].node)
    world.pool.fill()
    assert world.pool.take(["a"]) is None
    assert len(world.made) == 2
    world.hosts.append("a")
    world.pool.fill()
    assert [standby.node for standby in world.made[2:]] == ["a"]


def test_none_are_left_once_ray_has_died_until_the_service_has_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, 1)
    world.pool.fill()
    world.load_all()
    world.pool.clear()
    world.pool.fill()
    assert world.pool.take(["a", "b"]) is None
    assert len(world.made) == 2
    world.pool.start()
    world.pool.fill()
    assert len(world.made) == 4
    world.pool.stop()
    world.load_all()
    assert world.pool.take(["a", "b"]) is None


def test_one_that_starts_as_ray_dies_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 1)

    def list_hosts() -> list[str]:
        world.pool.clear()
        world.pool.start()
        return ["a"]

    monkeypatch.setattr(world.pool, "_list_hosts", list_hosts)
    world.pool.fill()
    assert [standby.node for standby in world.made] == ["a"]
    assert world.pool.take(["a"]) is None
