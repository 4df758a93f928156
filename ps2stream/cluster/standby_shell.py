"""An actor without a role, which waits to take one over: its modules and kernels are loaded.

It is one Ray actor from its start to its end. `become` gives it the shell of a role, to which it
then passes all calls, so that it is an actor of this role to the others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from ps2stream.cluster.actor_shells import ControllerShell, MergerShell, SequencerShell, WorkerShell
from ps2stream.cluster.dispatcher_shell import DispatcherShell
from ps2stream.cluster.shell import ActorShell
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import load_kernels
from ps2stream.protocol.addresses import Address

log = logging.getLogger("ps2stream.cluster")
SHELLS: tuple[type[ActorShell], ...] = (
    ControllerShell,
    DispatcherShell,
    MergerShell,
    SequencerShell,
    WorkerShell,
)


class StandbyShell:
    """A process that can become an actor of any role, once."""

    def __init__(self, topology: Topology) -> None:
        load_kernels(topology)
        self._shell: Any = None

    def __repr__(self) -> str:
        """Returns the name by which Ray knows the process, also once it has a role."""
        return "standby"

    def is_loaded(self) -> bool:
        """Returns True: calls are answered from when the constructor has returned."""
        return True

    def become(self, shell: type[ActorShell], address: Address, args: tuple[Any, ...]) -> None:
        """Makes the shell of a role. A failure ends the process, as that of the constructor of any
        other actor does."""
        try:
            self._shell = shell(address, *args)
        except BaseException:
            log.critical("%s-%d cannot be made", *address, exc_info=True)
            os._exit(70)


def _pass_on(name: str) -> Callable[..., Any]:
    """Returns a method that calls that of the shell."""

    def call(self: StandbyShell, *args: Any) -> Any:
        return getattr(self._shell, name)(*args)

    call.__name__ = name
    return call


for _shell in SHELLS:
    for _name in dir(_shell):
        if not _name.startswith("_") and callable(getattr(_shell, _name)):
            setattr(StandbyShell, _name, _pass_on(_name))
