"""Witnesses of deaths on other hosts: the actors beside the one that Ray has lost.

Ray loses an actor that died, and one whose host is cut off, which may live and act until its lease
is over. An actor on the same host knows which it is, from the kernel; if it can be asked, the host
is not cut off. So a successor need not wait for the lease of an actor that is known to be dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ps2stream.cluster.placement import SILENT_S
from ps2stream.cluster.shell import ActorIncarnation
from ps2stream.protocol.addresses import Address


class DeathWitnesses:
    """Asks the actors of `actors` about their neighbours; `peers` says where each of them is.
    `lock` guards both tables. silent_s: for how many seconds an actor has not answered."""

    def __init__(
        self,
        ray: Any,
        actors: Mapping[Address, Any],
        peers: Mapping[Address, ActorIncarnation],
        lock: threading.RLock,
        silent_s: Callable[[Address], float],
    ) -> None:
        self._ray = ray
        self._actors = actors
        self._peers = peers
        self._lock = lock
        self._silent_s = silent_s
        self._questions: dict[Address, tuple[Any, Any]] = {}  # the actor, the call about it

    def is_dead(self, address: Address, actor: Any, pid: int) -> bool:
        """Returns whether a witness has said that the process `pid` of an actor is gone. It does
        not wait: it asks, and returns the answer of an earlier call. False where nobody can say."""
        about, call = self._questions.pop(address, (None, None))
        if about is not actor:
            witness = self._find_witness(address)
            if witness is not None:
                self._questions[address] = actor, witness.has_ended.remote(pid)
            return False
        ready, _ = self._ray.wait([call], timeout=0)
        if not ready:
            self._questions[address] = actor, call
            return False
        try:
            return bool(self._ray.get(call))
        except self._ray.exceptions.RayError:
            return False

    def _find_witness(self, address: Address) -> Any:
        """Returns the actor on the same host that answered last; None without one that answers."""
        with self._lock:
            home = self._peers[address].home if address in self._peers else None
            if home is None:
                return None
            near = [
                (self._silent_s(peer), peer)
                for peer, incarnation in self._peers.items()
                if peer != address
                and incarnation.home is not None
                and incarnation.home.node == home.node
            ]
            silent_s, witness = min(near, default=(SILENT_S, address))
            return self._actors.get(witness) if silent_s < SILENT_S else None
