"""The shell of each role, and the arguments that it is created with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ps2stream.cluster.actor_shells import ControllerShell, MergerShell, SequencerShell, WorkerShell
from ps2stream.cluster.dispatcher_shell import DispatcherShell
from ps2stream.cluster.logs import ServiceLogs
from ps2stream.cluster.shell import ActorShell
from ps2stream.cluster.snapshots import SnapshotPolicy
from ps2stream.cluster.topology import Topology
from ps2stream.protocol.addresses import Address


def find_shell(
    address: Address,
    epoch: int,
    topology: Topology,
    logs: ServiceLogs,
    read_identity: Callable[[], int],
    snapshot_s: float,
    first: bool,
) -> tuple[type[ActorShell], tuple[Any, ...]]:
    """Returns the class of the actor at `address`, and its arguments after the address.

    `read_identity` asks the sequencer for the number of the data directory; `first`: it is the
    service's first, not a successor.
    """
    match address.role:
        case "sequencer":
            return SequencerShell, (logs.place, topology, first)
        case "worker":
            policy = SnapshotPolicy(logs.place, read_identity(), snapshot_s)
            return WorkerShell, (epoch, topology, policy)
        case "merger":
            return MergerShell, (epoch, topology, logs)
        case "controller":
            return ControllerShell, (epoch, topology)
        case _:
            return DispatcherShell, (epoch, topology, logs, read_identity())
