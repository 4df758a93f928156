"""The return of actors to a host that has joined the cluster, or that is there again.

The actors of a host that dies start on the others, which then have too many. Once a host has been
there for some time, actors of the crowded hosts go to it, one at a time: as few as spread them
again. An actor goes by its death, as that is what a service stands anyway: it is killed, and its
successor starts where there is most room.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ps2stream.cluster.actor_creation import ActorCreator
from ps2stream.cluster.intervals import JOIN_S, RETURN_LOOK_S
from ps2stream.cluster.shell import ActorIncarnation
from ps2stream.protocol.addresses import Address

log = logging.getLogger("ps2stream.cluster")
CALM_S = 5.0
"""How long all actors must have been calm before another one goes."""


class ActorReturns:
    """Has actors go to hosts that join after `start`, once they have been there for `wait_s`; 0:
    never. actors and peers: the tables of the service, which `lock` guards. is_calm: whether all
    actors answer, and none is being replaced. On a thread of its own."""

    def __init__(
        self,
        ray: Any,
        creator: ActorCreator,
        actors: Mapping[Address, Any],
        peers: Mapping[Address, ActorIncarnation],
        lock: threading.RLock,
        is_calm: Callable[[], bool],
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray = ray
        self._creator = creator
        self._actors = actors
        self._peers = peers
        self._lock = lock
        self._is_calm = is_calm
        self._wait_s = wait_s
        self._clock = clock
        self._first: set[str] = set()  # hosts that were there at the start
        self._since: dict[str, float] = {}  # when each of the others was first seen
        self._calm_since = 0.0
        self._warned: set[str] = set()  # kinds of errors
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch_hosts, daemon=True, name="returns")

    def start(self) -> None:
        """Notes the hosts that are there, which keep what they have."""
        if self._wait_s:
            self._first.update(self._creator.list_hosts())
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _watch_hosts(self) -> None:
        while not self._stopping.wait(RETURN_LOOK_S):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  Ray's, also when it dies meanwhile
                if not self._stopping.is_set():
                    self._warn_once(error)

    def _warn_once(self, error: Exception) -> None:
        """Logs an error of a look, the first one of its kind: the next look may come a second
        later, and fail in the same way."""
        kind = type(error).__name__
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("no actor goes to hosts that have joined: %s: %s", kind, error)

    def look(self) -> None:
        """Has one actor go, if one should."""
        now = self._clock()
        joined = set(self._creator.list_hosts()) - self._first
        self._since = {host: self._since.get(host, now) for host in joined}
        with self._lock:
            actors = dict(self._actors)
            homes = {a: peer.home for a, peer in self._peers.items() if peer.home is not None}
        if not self._is_calm():
            self._calm_since = now
        if now - self._calm_since < CALM_S:
            return
        for host, since in self._since.items():
            if now - since < self._wait_s:
                continue
            actor = self._creator.find_move(host, homes)
            if actor is not None and actor in actors:
                log.warning("%s-%d leaves %s for a host with room", *actor, homes[actor].host)
                self._calm_since = now
                self._ray.kill(actors[actor])  # the supervisor notices
                return
