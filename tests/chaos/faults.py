"""What goes wrong, at random but by a seed: kills, stops, restarts."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ps2stream.cluster.ray_instance import DAEMONS
from tests.chaos.host import Host, send
from tests.chaos.moves import HOLDERS, TRIES, Mover
from tests.chaos.moves import ROLES as VICTIMS
from tests.chaos.scaling import DISPATCHERS, MERGERS, RoleScaler

STOPPED_S = 10.0
PAUSE_S = 2.0
ROLES = ("dispatcher", "worker", "merger", "sequencer", "controller")
AMID_MOVES = {"target": "transferring", "controller": "retiring"}
"""Who is killed at each step of a move where there is no time for all."""


class DataServer(Protocol):
    """A server in which the service keeps data."""

    def crash(self) -> None: ...
    def start(self) -> None: ...


@dataclass
class Tally:
    """What was done: counts by role, and when each kill, stop and start was."""

    kills: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    started: list[tuple[float, str]] = field(default_factory=list)
    killed: list[tuple[float, str]] = field(default_factory=list)
    stopped: list[tuple[float, str]] = field(default_factory=list)

    def kill(self, what: str) -> None:
        self.kills[what] += 1
        (self.killed if what in (*ROLES, *DAEMONS) else self.stopped).append(
            (time.monotonic(), what)
        )

    def start(self, what: str) -> None:
        self.restarts[what] += 1
        self.started.append((time.monotonic(), what))

    def stop(self, what: str) -> None:
        self.stops[what] += 1
        self.stopped.append((time.monotonic(), what))


class Faults:
    """Does one thing after the other. `say` is told of each."""

    def __init__(
        self,
        host: Host,
        seed: int,
        say: Callable[[str], None],
        servers: Mapping[str, DataServer] | None = None,
    ) -> None:
        self.host = host
        self.servers = servers or {}
        self.rng = random.Random(seed)
        self.say = say
        self.tally = Tally()
        self.mover = Mover(host, self.rng, say)
        self.mergers = RoleScaler(host, self.rng, say, MERGERS)
        self.dispatchers = RoleScaler(host, self.rng, say, DISPATCHERS)
        self._waking: list[threading.Thread] = []
        self._deeds: dict[Callable[[], None], int] = {
            self.one: 72,
            self.two_at_once: 8,
            self.during_recovery: 8,
            self.stop_one: 5,
            self.stop_supervisor: 2,
            self.kill_supervisor: 2,
            self.kill_everything: 3,
            self.kill_ray: 4,
            self.move: 12,
            self.kill_amid_a_move: 24,
            self.scale_mergers: 16,
            self.scale_dispatchers: 16,
        }
        if self.servers:
            self._deeds[self.kill_server] = 12

    def run(
        self,
        seconds: float,
        kills: int = 0,
        pause: tuple[float, float] = (3.0, 7.0),
        often: str = "",
    ) -> None:
        """Until `seconds` are over and so many were killed, or ten times as long. often: a deed
        that is drawn five times as often."""
        begin = time.monotonic()
        weights = [n * (5 if deed.__name__ == often else 1) for deed, n in self._deeds.items()]
        while True:
            rest = self.rng.uniform(*pause)
            spent = time.monotonic() + rest - begin
            if spent > 10 * seconds or (spent > seconds and self.tally.kills.total() >= kills):
                break
            time.sleep(rest)
            if not self.host.running:
                raise RuntimeError("the service ended although nobody killed it")
            deed = self.rng.choices(list(self._deeds), weights=weights)[0]
            deed()
        for thread in self._waking:
            thread.join()

    def run_each(self) -> None:
        """Once: kill -9 of each role and of one role at each step of a move, and a stop. Raises
        TimeoutError when a move has no end."""
        for role in ROLES * TRIES:  # who is being replaced is not there to be killed
            if not self.tally.kills[role]:
                self._kill(role)
                time.sleep(PAUSE_S)
        for role, step in AMID_MOVES.items():
            self.mover.kill_at_step(role, step)
        time.sleep(PAUSE_S)
        self.stop_one("dispatcher")
        for thread in self._waking:
            thread.join()

    def one(self) -> None:
        """kill -9 of an actor; every role as often."""
        self._kill(self.rng.choice(ROLES))

    def two_at_once(self) -> None:
        first, second = self.rng.sample(ROLES, 2)
        self._kill(first)
        self._kill(second)

    def during_recovery(self) -> None:
        """A second kill while the first is being recovered from: perhaps of its successor."""
        role = self.rng.choice(ROLES)
        self._kill(role)
        time.sleep(self.rng.uniform(0.2, 2.5))
        self._kill(self.rng.choice([role, *ROLES]))

    def stop_one(self, role: str = "") -> None:
        """SIGSTOP, and SIGCONT ten seconds later if it is still there."""
        actors = list(self.host.actors().values())
        role = role or self.rng.choice(ROLES)
        mine = [a for a in actors if a.role == role]
        if mine:
            actor = self.rng.choice(mine)
            self._stop(actor.pid, f"{role}")
            self.say(f"stop {actor.name}")

    def stop_supervisor(self) -> None:
        """All leases run out: everyone must end, and come back."""
        self.say("stop the supervisor")
        self._stop(self.host.leader, "supervisor")

    def kill_supervisor(self) -> None:
        """And start the service beside what of the old one is dying."""
        self.say("kill the supervisor")
        self.tally.kill("supervisor")
        send(self.host.leader, signal.SIGKILL)
        self._restart(kill=self.rng.random() < 0.5)

    def kill_everything(self) -> None:
        self.say("kill everything")
        self.tally.kill("everything")
        self.host.kill()
        self._restart(kill=True)

    def kill_ray(self) -> None:
        """kill -9 of the raylet or the GCS: Ray and all actors are started again."""
        name = self.rng.choice(list(DAEMONS))
        self.say(f"kill Ray's {name}")
        if name in (found := self.host.daemons()) and send(found[name], signal.SIGKILL):
            self.tally.kill(name)

    def move(self) -> None:
        """To another plan or number of workers; what comes next may come amid it."""
        self.mover.move()

    def kill_amid_a_move(self) -> None:
        role = self.mover.move(self.rng.choice(VICTIMS), self.rng.choice(list(HOLDERS)))
        if role:  # beside somebody who was stopped: its recovery is not told
            self.tally.kills[role] += 1
            self.tally.stopped.append((time.monotonic(), role))

    def scale_mergers(self) -> None:
        """To another number of mergers; half the time somebody is killed amid it."""
        if self.mergers.scale() and self.rng.random() < 0.5:
            time.sleep(self.rng.uniform(0, 0.5))
            self._kill(self.rng.choice(["merger", "merger", "dispatcher", "sequencer"]))

    def scale_dispatchers(self) -> None:
        """To another number of dispatchers; half the time somebody is killed amid it."""
        if self.dispatchers.scale() and self.rng.random() < 0.5:
            time.sleep(self.rng.uniform(0, 1))
            self._kill(self.rng.choice(["dispatcher", "dispatcher", *ROLES]))

    def kill_server(self) -> None:
        """kill -9 of PostgreSQL or of a broker of Kafka, and its start after a while."""
        name = self.rng.choice(list(self.servers))
        self.say(f"kill the {name}")
        self.tally.kill(name)
        self.servers[name].crash()
        time.sleep(self.rng.choice([0.0, 1.0, 4.0]))
        self.servers[name].start()
        self.say(f"the {name} is back")

    def _restart(self, kill: bool) -> None:
        for thread in self._waking:
            thread.join()
        time.sleep(self.rng.uniform(0, 3))
        if kill:
            self.host.kill()
        self.tally.start("service")
        self.host.start()
        self.say("the service is back")

    def _kill(self, role: str) -> None:
        actors = [a for a in self.host.actors().values() if a.role == role]
        if not actors:
            self.say(f"no {role} to kill")
            return
        actor = self.rng.choice(actors)
        self.say(f"kill {actor.name}, epoch {actor.epoch}")
        if send(actor.pid, signal.SIGKILL):
            self.tally.kill(role)

    def _stop(self, pid: int, what: str) -> None:
        send(pid, signal.SIGSTOP)
        self.tally.stop(what)

        def wake() -> None:
            time.sleep(STOPPED_S)
            send(pid, signal.SIGCONT)

        self._waking.append(threading.Thread(target=wake, daemon=True))
        self._waking[-1].start()
