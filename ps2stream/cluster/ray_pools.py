"""The workers and the mergers of a service of Ray actors, as they are scaled."""

from __future__ import annotations

from typing import Protocol

from ps2stream.protocol.addresses import Address, Role


class ScalableService(Protocol):
    """What a service does for its pools."""

    def count_actors(self, role: Role) -> int: ...
    def report_running(self, role: Role, running: int) -> int: ...
    def start_actor(self, address: Address) -> None: ...
    def dismiss_actor(self, address: Address) -> None: ...


class RolePool:
    """The actors of one role of a service; see ActorPool."""

    def __init__(self, service: ScalableService, role: Role) -> None:
        self._service = service
        self.role = role

    @property
    def running(self) -> int:
        return self._service.count_actors(self.role)

    def tell(self, running: int) -> int:
        return self._service.report_running(self.role, running)

    def start_actor(self, index: int) -> None:
        self._service.start_actor(Address(self.role, index))

    def dismiss(self, index: int) -> None:
        self._service.dismiss_actor(Address(self.role, index))
