"""The placement of actors: on the host that starts them, or spread over a Ray cluster's hosts.

In a cluster an actor takes a unit of the resource `ps2stream-<role>` that its host offers. Ray
notices only after seconds that a host has died, and until then would place actors on it; so hosts
none of whose actors answers are left out while others have room.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.intervals import LOOK_S
from ps2stream.cluster.shell import LanSettings
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Address

log = logging.getLogger("ps2stream.cluster")
SILENT_S = 2.0
"""A host none of whose actors has answered for so long may be dead."""
LOG_S = 15.0
PREFIX = "ps2stream-"
_LAST_MOVED = ("controller", "worker", "merger", "dispatcher", "sequencer")
"""Roles by what their absence interrupts."""
Homes = Mapping[Address, ActorHome]
Silence = Callable[[Address], float]


def resource(role: str) -> str:
    """Returns the name of the resource whose units hosts offer for actors of this role."""
    return PREFIX + role


class ActorPlacement(Protocol):
    """Decides where actors run. `lan` is None where all actors are on one host."""

    lan: LanSettings | None

    def await_room(self, actors: Iterable[Address], stopping: threading.Event) -> None:
        """Waits until there is room for all of these. Raises Unavailable if there is none in
        time, or once `stopping` is set."""
        ...

    def list_hosts(self) -> list[str]:
        """Returns Ray's ids of the hosts where actors may run."""
        ...

    def find_hosts(self, actor: Address, homes: Homes, silent_s: Silence) -> list[str]:
        """Returns Ray's ids of the hosts that have room for an actor, those with fewer actors
        first. `homes`: those of the actors that run; `silent_s`: for how many seconds one has not
        answered. Raises Unavailable when there is no room."""
        ...

    def find_move(self, to: str, homes: Homes) -> Address | None:
        """Returns an actor that should go to this host because it has room and the actor's is
        crowded: that has two more of the role, or one more and two more actors. None: there is
        no such actor, so a host that has been filled so keeps what it has."""
        ...

    def options(self, actor: Address, hosts: list[str]) -> dict[str, Any]:
        """Returns Ray's options for the creation of an actor on one of these hosts."""
        ...


class OneHostPlacement:
    """The placement of all actors on this host."""

    lan: LanSettings | None = None

    def __init__(self, ray: Any) -> None:
        self._node: str = ray.get_runtime_context().get_node_id()
        self._here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._node, soft=False
        )

    def await_room(self, actors: Iterable[Address], stopping: threading.Event) -> None:
        """Returns at once: this host has room for all."""

    def list_hosts(self) -> list[str]:
        return [self._node]

    def find_hosts(self, actor: Address, homes: Homes, silent_s: Silence) -> list[str]:
        return [self._node]

    def find_move(self, to: str, homes: Homes) -> Address | None:
        return None

    def options(self, actor: Address, hosts: list[str]) -> dict[str, Any]:
        return {"scheduling_strategy": self._here}


class ClusterPlacement:
    """The placement on the hosts of a Ray cluster that offer units of the role."""

    def __init__(self, ray: Any, lan: LanSettings, wait_s: float) -> None:
        self.lan: LanSettings | None = lan
        self._ray = ray
        self._wait_s = wait_s

    def await_room(self, actors: Iterable[Address], stopping: threading.Event) -> None:
        wanted = Counter(resource(actor.role) for actor in actors)
        begun = logged = time.monotonic()
        while True:
            offered = self._ray.available_resources()
            lacking = {name: n - int(offered.get(name, 0)) for name, n in wanted.items()}
            missing = ", ".join(f"{n} of {name}" for name, n in lacking.items() if n > 0)
            if not missing:
                return
            now = time.monotonic()
            if now - begun >= self._wait_s:
                raise Unavailable(
                    "the hosts of the Ray cluster offer too few places for actors; missing are "
                    f"{missing}: join more hosts with `ps2stream cluster join`, or offer more "
                    "with --roles, within nodes_s"
                )
            if now - logged >= LOG_S:
                logged = now
                log.info("waiting for hosts that offer %s", missing)
            if stopping.wait(LOOK_S):
                raise Unavailable(
                    f"the service was stopped while it waited for hosts that offer {missing}"
                )

    def list_hosts(self) -> list[str]:
        return sorted(
            node["NodeID"]
            for node in self._ray.nodes()
            if node["Alive"] and any(name.startswith(PREFIX) for name in node["Resources"])
        )

    def find_hosts(self, actor: Address, homes: Homes, silent_s: Silence) -> list[str]:
        name = resource(actor.role)
        taken = Counter(home.node for of, home in homes.items() if of.role == actor.role)
        if actor in homes:
            taken[homes[actor].node] -= 1  # the unit of its predecessor is free again
        free = {node for node, units in self._list_units(name).items() if units > taken[node]}
        if not free:
            raise Unavailable(
                f"{actor.role}-{actor.index} cannot be placed: no live host offers another unit "
                f"of {name}"
            )
        actors = Counter(home.node for of, home in homes.items() if of != actor)
        answering = free - self._find_silent_hosts(homes, silent_s)
        return sorted(answering or free, key=lambda node: (taken[node], actors[node], node))

    def find_move(self, to: str, homes: Homes) -> Address | None:
        found: tuple[int, int, int, Address] | None = None
        actors = Counter(home.node for home in homes.values())
        for rank, role in enumerate(_LAST_MOVED):
            taken = Counter(home.node for of, home in homes.items() if of.role == role)
            if self._list_units(resource(role)).get(to, 0) <= taken[to]:
                continue
            for actor in sorted(of for of in homes if of.role == role):
                node = homes[actor].node
                more, beside = taken[node] - taken[to], actors[node] - actors[to]
                if more > 1 or (more == 1 and beside > 1):
                    found = min(found or (0, 0, 0, actor), (-more, -beside, rank, actor))
        return found and found[-1]

    def options(self, actor: Address, hosts: list[str]) -> dict[str, Any]:
        name = resource(actor.role)
        chosen: dict[str, Any] = {"resources": {name: 1}, "scheduling_strategy": "SPREAD"}
        if self._list_units(name).keys() - hosts:
            # By Ray's count others may have room: a standby took none of Ray's units.
            chosen["label_selector"] = {"ray.io/node-id": f"in({','.join(hosts)})"}
        return chosen

    def _list_units(self, name: str) -> dict[str, float]:
        """Returns the live hosts that offer units of a resource, and how many."""
        nodes = {node["NodeID"]: node["Resources"] for node in self._ray.nodes() if node["Alive"]}
        return {node: has[name] for node, has in nodes.items() if has.get(name, 0) > 0}

    def _find_silent_hosts(self, homes: Homes, silent_s: Silence) -> set[str]:
        """Returns the hosts, except this one, none of whose actors answers."""
        answering = {home.node for of, home in homes.items() if silent_s(of) < SILENT_S}
        here = self._ray.get_runtime_context().get_node_id()
        return {home.node for home in homes.values()} - answering - {here}
