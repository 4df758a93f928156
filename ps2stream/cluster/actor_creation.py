"""The creation of actors: as new processes, or out of standbys."""

from __future__ import annotations

import time
from typing import Any

from ps2stream.cluster.placement import Homes, Silence
from ps2stream.cluster.ray_instance import NAMESPACE, RayInstance
from ps2stream.cluster.shell import ActorShell
from ps2stream.cluster.standbys import StandbyPool
from ps2stream.cluster.topology import Topology
from ps2stream.protocol.addresses import Address


class ActorCreator:
    """Creates the actors of a service. per_host: standbys on each host."""

    def __init__(self, instance: RayInstance, topology: Topology, per_host: int) -> None:
        self._instance = instance
        self.standbys = StandbyPool(instance.ray, topology, per_host, self.list_hosts, NAMESPACE)

    def list_hosts(self) -> list[str]:
        """Returns Ray's ids of the hosts where actors may run."""
        return self._instance.placement.list_hosts()  # another placement once Ray was restarted

    def find_move(self, to: str, homes: Homes) -> Address | None:
        """Returns an actor that should go to this host, see `ActorPlacement.find_move`; None also
        while its standbys, if it is to have any, are not ready."""
        return self._instance.placement.find_move(to, homes) if self.standbys.has(to) else None

    def create(
        self,
        shell: type[ActorShell],
        address: Address,
        args: tuple[Any, ...],
        first: bool,
        homes: Homes,
        silent_s: Silence,
    ) -> Any:
        """Returns a new actor with this shell. `first`: it has no predecessor. Raises Unavailable
        when no host has room."""
        placement = self._instance.placement
        hosts = placement.find_hosts(address, homes, silent_s)
        standby = None if first else self.standbys.take(hosts)
        if standby is not None:
            standby.become.remote(shell, address, args)
            return standby
        alone = first and placement.lan is None  # otherwise the name may be taken
        name = f"{address.role}-{address.index}" + ("" if alone else f".{time.time_ns():x}")
        made = self._instance.ray.remote(shell).options(
            name=name,
            namespace=NAMESPACE,
            num_cpus=0,
            **placement.options(address, hosts),
            max_task_retries=0,
            enable_task_events=False,
        )
        return made.remote(address, *args)
