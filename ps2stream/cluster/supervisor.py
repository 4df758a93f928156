"""Watches the actors: who died is replaced, who does not answer is killed and replaced.

A ping renews a lease: until it runs out, and no longer, an actor may answer for its role. It
counts from the last answer that came back, by the actor's own clock, so two hosts need no
common one: the lease of one that does not answer has run out before its successor is made.
Each is replaced on a thread of its own: meanwhile the others' leases are renewed, and one of
them, that is needed for it, may be replaced too.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ps2stream.cluster.shell import Pulse
from ps2stream.errors import Unavailable
from ps2stream.messages import Address

log = logging.getLogger("ps2stream.cluster")
PING_S = 0.25
START_S = 120.0
"""How much longer one that starts may be silent."""
RETRY_S = 0.5
STOP_S = 10.0


class Supervisor:
    """Over `actors`, which `replace(address)` changes; `lock` guards the table. Who has not
    answered for `lease_s` seconds is replaced. `near`: their processes are of this host."""

    def __init__(
        self,
        ray: Any,
        actors: Mapping[Address, Any],
        lock: threading.RLock,
        replace: Callable[[Address], None],
        lease_s: float,
        near: bool = True,
    ) -> None:
        self._ray = ray
        self._actors = actors
        self._lock = lock
        self._replace = replace
        self._lease_s = lease_s
        self._near = near
        self._pulse: dict[Address, Pulse] = {}
        self._answered: dict[Address, float] = {}
        self._lease: dict[Address, float] = {}
        self._asked: dict[Address, tuple[Any, Any]] = {}  # call, the actor
        self._over: dict[Address, Any] = {}  # actors whose leases have run out
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

    def silent_s(self, address: Address) -> float:
        """Seconds since it last answered, or was replaced; inf: never. From any thread."""
        return time.monotonic() - self._answered.get(address, -math.inf)

    def _look(self) -> list[tuple[Address, Any]]:
        """Ping everyone; who is dead."""
        ray, now = self._ray, time.monotonic()
        with self._lock:
            actors = dict(self._actors)
        for address in self._lease.keys() - actors.keys():
            self._forget(address)
        dead: list[tuple[Address, Any]] = []
        for address, actor in actors.items():
            call, of = self._asked.get(address, (None, None))
            if call is not None and of is actor:
                ready, _ = ray.wait([call], timeout=0)
                if ready:
                    del self._asked[address]
                    try:
                        self._pulse[address] = ray.get(call)
                        self._answered[address] = heard = time.monotonic()
                        grace = START_S * self._is_buried(address)
                        self._lease[address] = heard + self._lease_s + grace
                    except ray.exceptions.RayError:
                        if self._near or self._is_over(address, actor, now):
                            dead.append((address, actor))
                            continue
            else:
                self._asked.pop(address, None)
                self._pulse.pop(address, None)
            if address not in self._asked:
                pulse = self._pulse.get(address)
                last = None if pulse is None else pulse.clock
                self._asked[address] = (actor.ping.remote(self._lease_s, last), actor)
                self._lease.setdefault(address, now + self._lease_s + START_S)
            elif now > self._lease[address]:
                dead.append((address, actor))
        return dead

    def _is_over(self, address: Address, actor: Any, now: float) -> bool:
        """Whether the lease is, of one that Ray has lost: it may live where Ray does not see."""
        self._lease[address] = min(self._lease[address], now + self._lease_s)
        return now > self._lease[address] or self._over.get(address) is actor

    def _dead(self, address: Address, actor: Any) -> None:
        pid = self._forget(address)
        self._over[address] = actor
        if self._is_buried(address):  # it died again before it served; whoever waits is told
            if pid:
                _kill(pid)
            elif not self._near:
                self._ray.kill(actor)
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
        """Its process's number, where it is known, and of this host."""
        self._asked.pop(address, None)
        self._lease.pop(address, None)
        pulse = self._pulse.pop(address, None)
        return pulse.pid if pulse is not None and self._near else 0

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
        except Unavailable as error:
            log.warning("%s-%d was not replaced; tried again: %s", *address, error)
            self._stopping.wait(RETRY_S)
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
