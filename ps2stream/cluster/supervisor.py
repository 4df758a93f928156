"""Watches the actors: who died is replaced, who does not answer is killed and replaced.

A ping carries a lease: until then, and no longer, an actor may answer for its role. The
lease of one that does not answer has run out before its successor is made. Each is replaced
on a thread of its own: meanwhile the others' leases are renewed, and one of them, that is
needed for it, may be replaced too.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ps2stream.messages import Address

log = logging.getLogger("ps2stream.cluster")
PING_S = 0.25
START_S = 120.0
"""How much longer one that starts may be silent."""
RETRY_S = 0.5
STOP_S = 10.0


class Supervisor:
    """Over `actors`, which `replace(address)` changes; `lock` guards the table. Who has not
    answered for `lease_s` seconds is replaced."""

    def __init__(
        self,
        ray: Any,
        actors: Mapping[Address, Any],
        lock: threading.RLock,
        replace: Callable[[Address], None],
        lease_s: float,
    ) -> None:
        self._ray = ray
        self._actors = actors
        self._lock = lock
        self._replace = replace
        self._lease_s = lease_s
        self._pids: dict[Address, int] = {}
        self._lease: dict[Address, float] = {}
        self._asked: dict[Address, tuple[Any, float, Any]] = {}  # call, its lease, the actor
        self._burials: dict[Address, threading.Thread] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="supervisor")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Replace nobody any more."""
        self._stopping.set()
        for thread in (self._thread, *self._burials.values()):
            if thread.is_alive():
                thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(PING_S):
            try:
                for address, actor in self._look():
                    self._dead(address, actor)
            except Exception:
                log.exception("the supervisor goes on after an error")

    def _look(self) -> list[tuple[Address, Any]]:
        """Ping everyone; who is dead."""
        ray, now = self._ray, time.monotonic()
        with self._lock:
            actors = dict(self._actors)
        for address in self._lease.keys() - actors.keys():
            self._forget(address)
        dead: list[tuple[Address, Any]] = []
        for address, actor in actors.items():
            call, lease, of = self._asked.get(address, (None, 0.0, None))
            if call is not None and of is actor:
                ready, _ = ray.wait([call], timeout=0)
                if ready:
                    del self._asked[address]
                    try:
                        self._pids[address] = ray.get(call)
                        self._lease[address] = lease + START_S * self._is_buried(address)
                    except ray.exceptions.RayError:
                        dead.append((address, actor))
                        continue
            else:
                self._asked.pop(address, None)
            if address not in self._asked:
                until = now + self._lease_s
                self._asked[address] = (actor.ping.remote(until), until, actor)
                self._lease.setdefault(address, until + START_S)
            elif now > self._lease[address]:
                dead.append((address, actor))
        return dead

    def _dead(self, address: Address, actor: Any) -> None:
        pid = self._forget(address)
        if self._is_buried(address):
            if pid:  # it died again before it served; whoever waits for it is told
                _kill(pid)
            return
        burial = threading.Thread(
            target=self._bury,
            args=(address, actor, pid),
            daemon=True,
            name=f"burial-{address.role}",
        )
        self._burials[address] = burial
        burial.start()

    def _forget(self, address: Address) -> int:
        """Its process's number, where it is known."""
        self._asked.pop(address, None)
        self._lease.pop(address, None)
        return self._pids.pop(address, 0)

    def _is_buried(self, address: Address) -> bool:
        """Whether its successor is being made."""
        burial = self._burials.get(address)
        return burial is not None and burial.is_alive()

    def _bury(self, address: Address, actor: Any, pid: int) -> None:
        self._ray.kill(actor)
        if pid:
            _end(pid)
        try:
            self._replace(address)
        except Exception:
            if self._stopping.is_set():
                return
            log.exception("%s-%d was not replaced; tried again", *address)
            self._stopping.wait(RETRY_S)


def _kill(pid: int) -> bool:
    """Whether the process was still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _end(pid: int) -> None:
    """Kill a process, also a stopped one, and wait until it is gone: it may hold locks."""
    deadline = time.monotonic() + 5.0
    while _kill(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
