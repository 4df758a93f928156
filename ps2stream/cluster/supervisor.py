"""Watches the actors: who died is replaced, who does not answer is killed and replaced.

A ping renews a lease: until it runs out, and no longer, an actor may answer for its role. It
counts from the last answer that came back, by the actor's own clock, so two hosts need no
common one: the lease of one that does not answer has run out before its successor is made.
Each is replaced on a thread of its own: meanwhile the others' leases are renewed, and one of
another role, that is needed for it, may be replaced too. Of one role only one is replaced at a
time, and one that dies again and again ever later.

Whose process, on this host, waits for a processor is waited for (see patience). Its own lease may
run out meanwhile; then it does nothing until it is renewed, which is safe, because here a
process is always killed before its successor is made.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ps2stream.cluster.patience import LATE_S, Pace, Silence
from ps2stream.cluster.shell import Pulse
from ps2stream.errors import Unavailable
from ps2stream.observability.process import read_cpu_delays_s
from ps2stream.protocol.addresses import Address

log = logging.getLogger("ps2stream.cluster")
PING_S = 0.25
START_S = 120.0
"""How much longer one that starts may be silent."""
RETRY_S = 0.5
STOP_S = 2.0


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
        read_delays_s: Callable[[int], Mapping[int, float]] = read_cpu_delays_s,
    ) -> None:
        self._ray = ray
        self._actors = actors
        self._lock = lock
        self._replace = replace
        self._lease_s = lease_s
        self._near = near
        self._read_delays_s = read_delays_s
        self._starving: set[Address] = set()  # told so, until they answer
        self._pulse: dict[Address, Pulse] = {}
        self._answered: dict[Address, float] = {}
        self._lease: dict[Address, float] = {}
        self._asked: dict[Address, tuple[Any, Any]] = {}  # call, the actor
        self._asked_at: dict[Address, float] = {}
        self._slow_s: dict[Address, float] = {}  # how long the last answer took, where that is long
        self._silence: dict[Address, Silence] = {}  # of those that are late
        self._pace: dict[Address, Pace] = {}
        self._over: dict[Address, Any] = {}  # actors whose leases have run out
        self._burials: dict[Address, threading.Thread] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="supervisor")

    def start(self, pings: Mapping[Address, Any] = MappingProxyType({})) -> None:
        """`pings`: calls of actors that have started and answered; so a lease of theirs runs."""
        now = time.monotonic()
        for address, call in pings.items():
            self._asked[address], self._asked_at[address] = (call, self._actors[address]), now
        self._thread.start()

    def stop(self) -> None:
        """Replace nobody any more."""
        self._stopping.set()
        deadline = time.monotonic() + STOP_S
        for thread in (self._thread, *self._burials.values()):
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while not self._stopping.wait(PING_S):
            try:
                for address, actor in self._look():
                    if self._may_replace(address):
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
                    try:
                        self._hear(address, ray.get(call))
                    except ray.exceptions.RayError:
                        if self._near or self._is_over(address, actor, now):
                            dead.append((address, actor))
                            continue
                    del self._asked[address]
            else:
                self._asked.pop(address, None)
                self._pulse.pop(address, None)
            if address not in self._asked:
                pulse = self._pulse.get(address)
                last = None if pulse is None else pulse.clock
                lease_s = self._lease_s + self._slow_s.get(address, 0.0)
                self._asked[address] = (actor.ping.remote(lease_s, last), actor)
                self._asked_at[address] = now
                self._lease.setdefault(address, now + self._lease_s)
            elif now > (
                self._lease[address] + self._grace_s(address) + self._starved_s(address, now)
            ):
                dead.append((address, actor))
        return dead

    def _hear(self, address: Address, pulse: Pulse) -> None:
        """Its lease begins anew. One that answers slowly here gets a longer one: else it would
        be over each time the renewal comes."""
        heard = time.monotonic()
        took_s = heard - self._asked_at[address]
        self._slow_s[address] = took_s if self._near and took_s > LATE_S else 0.0
        self._pulse[address], self._answered[address] = pulse, heard
        self._silence.pop(address, None)
        self._starving.discard(address)
        self._lease[address] = heard + self._lease_s + self._slow_s[address]

    def _grace_s(self, address: Address) -> float:
        """How much longer than its lease it may be silent, because it starts."""
        starts = self._is_buried(address) or address not in self._pulse
        return START_S if starts else 0.0

    def _starved_s(self, address: Address, now: float) -> float:
        """For how long of its silence it had no processor; read only once it is late."""
        pulse = self._pulse.get(address)
        late = now - self._answered.get(address, now) > LATE_S
        if pulse is None or not self._near or not late:
            return 0.0
        delays_s = self._read_delays_s(pulse.pid)
        if (silence := self._silence.get(address)) is None:
            self._silence[address] = Silence(delays_s)
            return 0.0
        starved_s = silence.starved_s(delays_s)
        over = now > self._lease[address]
        if over and starved_s > LATE_S and address not in self._starving:
            self._starving.add(address)
            log.warning("%s-%d is late for want of a processor; waited for", *address)
        return starved_s

    def _may_replace(self, address: Address) -> bool:
        """Whether no other of its role is being replaced, and its last time is long enough ago."""
        busy = {a.role for a in list(self._burials) if a != address and self._is_buried(a)}
        now = time.monotonic()
        return address.role not in busy and now >= self._pace_of(address).next_at(now)

    def _pace_of(self, address: Address) -> Pace:
        return self._pace.setdefault(address, Pace())

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
        self._silence.pop(address, None)
        self._starving.discard(address)
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
            now = time.monotonic()
            self._pace_of(address).replace(now)
            self._lease[address] = now + self._lease_s + self._slow_s.get(address, 0.0)
        except Unavailable as error:
            log.warning("%s-%d was not replaced; tried again: %s", *address, error)
            self._end_successor(address, actor)
            self._stopping.wait(RETRY_S)
        except Exception:
            if self._stopping.is_set():
                return
            log.exception("%s-%d was not replaced; tried again", *address)
            self._pace_of(address).replace(time.monotonic())
            self._end_successor(address, actor)
            self._stopping.wait(RETRY_S)

    def _end_successor(self, address: Address, actor: Any) -> None:
        """Of one that could not be replaced. Half made it would answer pings, and so be left."""
        with self._lock:
            successor = self._actors.get(address)
        if successor is not None and successor is not actor:
            self._ray.kill(successor)


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
