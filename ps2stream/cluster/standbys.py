"""The standbys of a service: on each host some processes that wait to become an actor.

A successor that has to start a process loads modules and kernels first, which takes a core some
seconds, and the actors of a dead host all start at once. A standby has done that before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ps2stream.cluster.intervals import JOIN_S
from ps2stream.cluster.standby_shell import StandbyShell
from ps2stream.cluster.topology import Topology

log = logging.getLogger("ps2stream.cluster")
FILL_S = 2.0
"""Time between two looks whether all standbys live."""
REST_S = 5.0
"""Time from the last take-over to the start of another standby, which would slow it down."""


class _Standby(NamedTuple):
    node: str
    actor: Any


class StandbyPool:
    """Keeps `per_host` standbys on each of `list_hosts()`, Ray's ids. `namespace`: of their
    names."""

    def __init__(
        self,
        ray: Any,
        topology: Topology,
        per_host: int,
        list_hosts: Callable[[], Collection[str]],
        namespace: str,
    ) -> None:
        self._ray = ray
        self._topology = topology
        self._per_host = per_host
        self._list_hosts = list_hosts
        self._namespace = namespace
        self._lock = threading.Lock()
        self._calls: dict[_Standby, Any] = {}  # the last call to each
        self._ready: set[_Standby] = set()  # those that have answered one
        self._taken_at = 0.0
        self._may_fill = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_filled, daemon=True, name="standbys")

    def start(self) -> None:
        """Starts standbys from now on, also after `clear`, unless there are to be none."""
        self._may_fill.set()
        if self._per_host and not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Ends all standbys that have no role."""
        self._stopping.set()
        self.clear()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def clear(self) -> None:
        """Drops all standbys, and starts none until `start`, as their Ray may have died. A Ray that
        lives ends an actor that nobody can call any more."""
        with self._lock:
            self._may_fill.clear()
            self._calls, self._ready = {}, set()

    def take(self, nodes: Collection[str]) -> Any:
        """Returns a standby on the first of these hosts that has one, for the caller to use; None
        without one that has loaded: a new process loads less."""
        with self._lock:
            for node in nodes:
                for standby in self._ready:
                    if standby.node == node:
                        self._forget(standby)
                        self._taken_at = time.monotonic()
                        return standby.actor
        return None

    def has(self, node: str) -> bool:
        """Returns whether a standby of this host is ready, or there are to be none."""
        with self._lock:
            return not self._per_host or any(standby.node == node for standby in self._ready)

    def _keep_filled(self) -> None:
        while not self._stopping.wait(FILL_S):
            try:
                self.fill()
            except Exception as error:  # noqa: BLE001  Ray's, also when it dies meanwhile
                if self._may_fill.is_set():
                    log.warning("no standby can be started; retrying: %s", _first_line(error))

    def fill(self) -> None:
        """Notes which standbys are ready and which have died, and starts those that lack, one at a
        time on each host: the actors need the processors."""
        with self._lock:
            if not self._may_fill.is_set():
                return
            calls = self._calls
            for standby in list(calls):
                self._look_at(standby)
            if time.monotonic() - self._taken_at < REST_S:
                return
            there = Counter(standby.node for standby in self._calls)
            loading = {standby.node for standby in self._calls if standby not in self._ready}
        for node in self._list_hosts():  # without the lock: these calls wait for Ray's GCS
            if there[node] < self._per_host and node not in loading:
                actor = self._create(node)
                with self._lock:
                    if self._calls is calls:  # otherwise it may be one of a Ray that has died
                        self._calls[_Standby(node, actor)] = actor.is_loaded.remote()

    def _look_at(self, standby: _Standby) -> None:
        ray, call = self._ray, self._calls[standby]
        try:
            if not ray.wait([call], timeout=0)[0]:
                return
            ray.get(call)
            self._calls[standby] = standby.actor.is_loaded.remote()
        except Exception as error:  # noqa: BLE001  of a Ray that was started again, too
            log.warning("a standby has ended: %s", _first_line(error))
            self._forget(standby)
        else:
            self._ready.add(standby)

    def _forget(self, standby: _Standby) -> None:
        del self._calls[standby]
        self._ready.discard(standby)

    def _create(self, node: str) -> Any:
        ray = self._ray
        where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        made = ray.remote(StandbyShell).options(
            name=f"standby.{time.time_ns():x}",
            namespace=self._namespace,
            num_cpus=0,
            scheduling_strategy=where,
            max_task_retries=0,
            enable_task_events=False,
        )
        return made.remote(self._topology)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
