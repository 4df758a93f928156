"""The supervisor of the actors, which replaces those that die or do not answer.

A ping renews a lease: until it runs out, and no longer, an actor may answer for its role. It
counts from the last answer that came back, by the actor's own clock, so two hosts need no common
clock: the lease of an actor that does not answer has run out before its successor is created,
unless its process is known to be gone.
Each actor is replaced on a thread of its own: meanwhile the leases of the others are renewed, and
an actor of another role that the successor needs may be replaced, too. Only one actor of a role is
replaced at a time, and one that dies again and again is replaced ever later.

An actor whose process, on this host, lacks a processor is given more time (see patience). Its
lease may run out meanwhile; then it does nothing until it is renewed, which is safe because on
one host a process is always killed before its successor is created.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ps2stream.cluster.death_witnesses import DeathWitnesses
from ps2stream.cluster.intervals import JOIN_S, REPLACE_S
from ps2stream.cluster.lease_rules import LATE_S, ActorSilence, ReplacementPace
from ps2stream.cluster.process_exits import ProcessExits
from ps2stream.cluster.shell import PingAnswer
from ps2stream.errors import Unavailable
from ps2stream.observability.process import read_cpu_delays_s
from ps2stream.protocol.addresses import Address

log = logging.getLogger("ps2stream.cluster")
PING_S = 0.25
CALM_S = 2.0
"""An actor that has not answered for so long may be dead."""
START_S = 120.0
"""How much longer an actor that starts may be silent."""


class ActorSupervisor:
    """Watches `actors`, a table that `lock` guards. Those that have not answered for `lease_s`
    seconds are replaced by `replace(address)`, which changes the table. `witnesses`: of deaths
    where actors are on several hosts; without them all processes are on this host."""

    def __init__(
        self,
        ray: Any,
        actors: Mapping[Address, Any],
        lock: threading.RLock,
        replace: Callable[[Address], None],
        lease_s: float,
        witnesses: DeathWitnesses | None = None,
        read_delays_s: Callable[[int], Mapping[int, float]] = read_cpu_delays_s,
    ) -> None:
        self._ray = ray
        self._actors = actors
        self._lock = lock
        self._replace = replace
        self._lease_s = lease_s
        self._near = witnesses is None
        self._witnesses = witnesses
        self._read_delays_s = read_delays_s
        self._starving: set[Address] = set()  # actors that lack a processor, until they answer
        self._pulse: dict[Address, PingAnswer] = {}
        self._answered: dict[Address, float] = {}
        self._lease: dict[Address, float] = {}
        self._pings: dict[Address, tuple[Any, Any]] = {}  # the call, the actor
        self._pinged_at: dict[Address, float] = {}
        self._slow_answer_s: dict[
            Address, float
        ] = {}  # time of the last answer, where that was long
        self._silence: dict[Address, ActorSilence] = {}  # of actors that are late
        self._pace: dict[Address, ReplacementPace] = {}
        self._expired: dict[Address, Any] = {}  # actors whose leases have run out
        self._replacements: dict[Address, threading.Thread] = {}
        self._exits: ProcessExits | None = None  # from the start on
        self._ended: set[int] = set()  # processes of actors that are not forgotten yet
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch_actors, daemon=True, name="supervisor")

    def start(self, pings: Mapping[Address, Any] = MappingProxyType({})) -> None:
        """Starts watching. `pings`: calls to actors that have started and answered, whose leases
        run already."""
        now = time.monotonic()
        for address, call in pings.items():
            self._pings[address], self._pinged_at[address] = (call, self._actors[address]), now
        self._exits = ProcessExits()
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch: no actor is replaced any more."""
        self._stopping.set()
        if self._exits is not None:
            self._exits.wake()
        deadline = time.monotonic() + JOIN_S
        for thread in (self._thread, *self._replacements.values()):
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _watch_actors(self) -> None:
        assert self._exits is not None
        with contextlib.closing(self._exits) as exits:
            while not self._stopping.is_set():
                try:
                    self._watch_processes(exits)
                    for address, actor in self._find_dead_actors():
                        if self._may_replace(address):
                            self._handle_death(address, actor)
                except Exception:
                    log.exception("the supervisor continues after an error")

    def _watch_processes(self, exits: ProcessExits) -> None:
        """Waits until the next pings are due, or the process of an actor on this host ends."""
        pids = {pulse.pid for pulse in self._pulse.values()} if self._near else set()
        self._ended &= pids
        exits.watch(pids - self._ended)
        self._ended |= exits.wait(PING_S)

    def silent_s(self, address: Address) -> float:
        """Returns the seconds since an actor last answered; inf: it never did. From any thread."""
        return time.monotonic() - self._answered.get(address, -math.inf)

    def is_calm(self) -> bool:
        """Returns whether all actors answer, and none is being replaced. From any thread."""
        with self._lock:
            actors = list(self._actors)
        return not any(self._is_being_replaced(address) for address in actors) and all(
            self.silent_s(address) <= CALM_S for address in actors
        )

    def _find_dead_actors(self) -> list[tuple[Address, Any]]:
        """Pings all actors; returns those that are dead."""
        ray, now = self._ray, time.monotonic()
        with self._lock:
            actors = dict(self._actors)
        for address in self._lease.keys() - actors.keys():
            self._forget_actor(address)
        dead: list[tuple[Address, Any]] = []
        for address, actor in actors.items():
            call, pinged = self._pings.get(address, (None, None))
            if call is not None and pinged is actor:
                ready, _ = ray.wait([call], timeout=0)
                if ready:
                    try:
                        self._note_answer(address, ray.get(call))
                    except ray.exceptions.RayError:
                        if (
                            self._near
                            or self._is_expired(address, actor, now)
                            or self._is_witnessed(address, actor)
                        ):
                            dead.append((address, actor))
                            continue
                    del self._pings[address]
            else:
                self._pings.pop(address, None)
                self._pulse.pop(address, None)
            pulse = self._pulse.get(address)
            if pulse is not None and pulse.pid in self._ended:
                dead.append((address, actor))
            elif address not in self._pings:
                last = None if pulse is None else pulse.clock
                lease_s = self._lease_s + self._slow_answer_s.get(address, 0.0)
                self._pings[address] = (actor.ping.remote(lease_s, last), actor)
                self._pinged_at[address] = now
                self._lease.setdefault(address, now + self._lease_s)
            elif now > (
                self._lease[address] + self._grace_s(address) + self._starved_s(address, now)
            ):
                dead.append((address, actor))
        return dead

    def _note_answer(self, address: Address, pulse: PingAnswer) -> None:
        """Begins a new lease for an actor that answered. One on this host that answers slowly gets
        a longer one, which would otherwise be over whenever the renewal comes."""
        now = time.monotonic()
        took_s = now - self._pinged_at[address]
        self._slow_answer_s[address] = took_s if self._near and took_s > LATE_S else 0.0
        self._pulse[address], self._answered[address] = pulse, now
        self._silence.pop(address, None)
        self._starving.discard(address)
        self._lease[address] = now + self._lease_s + self._slow_answer_s[address]

    def _grace_s(self, address: Address) -> float:
        """Returns how much longer than its lease an actor may be silent because it starts."""
        starts = self._is_being_replaced(address) or address not in self._pulse
        return START_S if starts else 0.0

    def _starved_s(self, address: Address, now: float) -> float:
        """Returns for how long of its silence an actor lacked a processor; 0 until it is late."""
        pulse = self._pulse.get(address)
        late = now - self._answered.get(address, now) > LATE_S
        if pulse is None or not self._near or not late:
            return 0.0
        delays_s = self._read_delays_s(pulse.pid)
        if (silence := self._silence.get(address)) is None:
            self._silence[address] = ActorSilence(delays_s)
            return 0.0
        starved_s = silence.starved_s(delays_s)
        over = now > self._lease[address]
        if over and starved_s > LATE_S and address not in self._starving:
            self._starving.add(address)
            log.warning("%s-%d is late because it lacks a processor; waiting for it", *address)
        return starved_s

    def _may_replace(self, address: Address) -> bool:
        """Returns whether no other of its role is being replaced, and its pace allows it."""
        busy = {
            a.role for a in list(self._replacements) if a != address and self._is_being_replaced(a)
        }
        now = time.monotonic()
        return address.role not in busy and now >= self._pace_of(address).next_at(now)

    def _pace_of(self, address: Address) -> ReplacementPace:
        return self._pace.setdefault(address, ReplacementPace())

    def _is_expired(self, address: Address, actor: Any, now: float) -> bool:
        """Returns whether the lease is over of an actor that Ray has lost, but which may live."""
        self._lease[address] = min(self._lease[address], now + self._lease_s)
        return now > self._lease[address] or self._expired.get(address) is actor

    def _is_witnessed(self, address: Address, actor: Any) -> bool:
        """Returns whether another actor knows that one that Ray has lost is dead."""
        pulse = self._pulse.get(address)
        if pulse is None or self._witnesses is None:
            return False
        return self._witnesses.is_dead(address, actor, pulse.pid)

    def _handle_death(self, address: Address, actor: Any) -> None:
        pid = self._forget_actor(address)
        self._expired[address] = actor
        if self._is_being_replaced(address):
            # It died again before it served; the thread that waits for it sees that.
            if pid:
                _kill_process(pid)
            elif not self._near:
                self._ray.kill(actor)
            return
        thread = threading.Thread(
            target=self._replace_dead_actor,
            args=(address, actor, pid),
            daemon=True,
            name=f"burial-{address.role}",
        )
        self._replacements[address] = thread
        thread.start()

    def _forget_actor(self, address: Address) -> int:
        """Drops the state of an actor; returns its process id, 0 if unknown or on another host."""
        self._pings.pop(address, None)
        self._lease.pop(address, None)
        self._silence.pop(address, None)
        self._starving.discard(address)
        pulse = self._pulse.pop(address, None)
        return pulse.pid if pulse is not None and self._near else 0

    def _is_being_replaced(self, address: Address) -> bool:
        """Returns whether the successor of an actor is being created."""
        thread = self._replacements.get(address)
        return thread is not None and thread.is_alive()

    def _replace_dead_actor(self, address: Address, actor: Any, pid: int) -> None:
        self._ray.kill(actor)
        if pid:
            _end_process(pid)
        try:
            self._replace(address)
            now = time.monotonic()
            self._pace_of(address).replace(now)
            self._lease[address] = now + self._lease_s + self._slow_answer_s.get(address, 0.0)
        except Unavailable as error:
            log.warning("%s-%d was not replaced; retrying: %s", *address, error)
            self._end_successor(address, actor)
            self._stopping.wait(REPLACE_S)
        except Exception:
            if self._stopping.is_set():
                return
            log.exception("%s-%d was not replaced; retrying", *address)
            self._pace_of(address).replace(time.monotonic())
            self._end_successor(address, actor)
            self._stopping.wait(REPLACE_S)

    def _end_successor(self, address: Address, actor: Any) -> None:
        """Kills the unfinished successor of an actor that could not be replaced: it would answer
        pings, and so be kept."""
        with self._lock:
            successor = self._actors.get(address)
        if successor is not None and successor is not actor:
            self._ray.kill(successor)


def _kill_process(pid: int) -> bool:
    """Kills a process; returns whether it still existed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _end_process(pid: int) -> None:
    """Kills a process, even a stopped one, and waits until it is gone, since it may hold locks."""
    deadline = time.monotonic() + 5.0
    while _kill_process(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
