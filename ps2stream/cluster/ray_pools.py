"""The actors of a service of Ray actors, as they are scaled."""

from __future__ import annotations

from typing import Protocol

from ps2stream.protocol.addresses import Address, Role


class ScalableService(Protocol):
    """What a service does for its pools."""

    def count_actors(self, role: Role) -> int: ...
    def report_running(self, role: Role, running: int) -> int: ...
    def start_actor(self, address: Address) -> None: ...
    def dismiss_actor(self, address: Address) -> None: ...
    def open_endpoints(self) -> None: ...


class RolePool:
    """The actors of one role of a service; see ActorPool."""

    def __init__(self, service: ScalableService, role: Role) -> None:
        self._service = service
        self.role = role

    @property
    def running(self) -> int:
        return self._service.count_actors(self.role)

    def tell(self, running: int) -> int:
        wanted = self._service.report_running(self.role, running)
        if self.role == "dispatcher":
            self._service.open_endpoints()
        return wanted

    def start_actor(self, index: int) -> None:
        self._service.start_actor(Address(self.role, index))

    def dismiss(self, index: int) -> None:
        self._service.dismiss_actor(Address(self.role, index))


def make_pools(service: ScalableService) -> list[RolePool]:
    """Returns the pools of all roles of which there may be more."""
    return [
        RolePool(service, "worker"),
        RolePool(service, "merger"),
        RolePool(service, "dispatcher"),
    ]
