"""The pools of a service pass on to it for whom they are."""

from __future__ import annotations

from ps2stream.cluster.actor_scaling import ActorScaler
from ps2stream.cluster.ray_pools import make_pools
from ps2stream.protocol.addresses import Address, Role


class Service:
    def __init__(self) -> None:
        self.running: dict[Role, int] = {"worker": 2, "merger": 1, "dispatcher": 1}
        self.wanted: dict[Role, int] = {"worker": 1, "merger": 3, "dispatcher": 2}
        self.done: list[tuple[str, Address]] = []
        self.looks = 0  # for dispatchers that accept something now

    def count_actors(self, role: Role) -> int:
        return self.running[role]

    def report_running(self, role: Role, _running: int) -> int:
        return self.wanted[role]

    def start_actor(self, address: Address) -> None:
        self.done.append(("start", address))

    def open_endpoints(self) -> None:
        self.looks += 1

    def dismiss_actor(self, address: Address) -> None:
        self.done.append(("dismiss", address))


def test_each_role_is_scaled_by_itself() -> None:
    service = Service()
    pools = make_pools(service)
    scaler = ActorScaler(pools)
    for pool in pools:
        scaler.look(pool)
    assert service.done == [
        ("dismiss", Address("worker", 1)),
        ("start", Address("merger", 1)),
        ("start", Address("merger", 2)),
        ("start", Address("dispatcher", 1)),
    ]
    assert service.looks == 2
