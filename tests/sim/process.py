"""A process of the simulator: one of the real shells of cluster/, without its thread.

`Process` calls the shell as the shell's own thread would: messages in groups, ticks, news of
peers. What a shell takes for the outside world is replaced for a run by `patched`.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

from ps2stream.cluster import (
    actor_shells,
    dispatcher_driver,
    dispatcher_edge,
    dispatcher_shell,
    shell,
)
from ps2stream.cluster.actor_shells import MergerShell, WorkerShell
from ps2stream.cluster.dispatcher_shell import DispatcherShell
from ps2stream.cluster.fence import MessageHead
from ps2stream.cluster.shell import GROUP, ActorIncarnation, ActorShell
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.ports import Log
from ps2stream.service.inbox import StreamInboxes
from tests.sim.clock import Clock
from tests.sim.disk import PowerCut
from tests.sim.network import Network, SimLinks

TICK_MS = 100
FSYNC_MS = 12  # at most


class Poison(Exception):
    """An object killed the process that looked at it."""


class Host(Protocol):
    """What a process needs of the world."""

    clock: Clock

    def ended(self, process: Process, why: str) -> None: ...
    def wrong(self, what: str) -> None: ...


class SimLoop:
    """The service's loop of one process: whoever calls is on it, and what is posted to it runs
    later, by the clock."""

    is_here = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.run: Callable[[Callable[[], object]], None] = lambda do: None

    def post(self, do: Callable[..., object], *args: Any) -> None:
        self._clock.after(0, self.run, partial(do, *args))

    def call_later(self, seconds: float, do: Callable[[], object]) -> None:
        self._clock.after(math.ceil(1000 * seconds), self.run, do)


class Process:
    """One incarnation. `over`: it does nothing any more; `paused`: it does nothing now."""

    def __init__(
        self, host: Host, shell: ActorShell, seed: str, powered: Callable[[], None]
    ) -> None:
        self.host = host
        self.shell = shell
        self.address = shell.address
        self.name = f"{shell.name}.{shell.epoch}"
        self.rng = random.Random(f"{seed} {self.name}")
        self.over = False
        self.paused = False
        self.started = False
        self.killable = True
        self.given_up = False  # its successor is due, and no lease of it is renewed any more
        self.serves = False
        self.broken: list[Callable[[str], None]] = []  # whom to tell of the end
        self.unanswered: dict[str, int] = {}  # calls, by what was asked
        limit = random.Random(f"{seed} {self.name} inboxes").choice([300, 2_000, 16 << 20])
        self.inboxes = StreamInboxes(limit)  # of its Deliver streams
        self._power_cut = powered
        self._links = shell.links
        self._dispatcher = shell if isinstance(shell, DispatcherShell) else None
        self._merger = shell if isinstance(shell, MergerShell) else None
        self._worker = shell if isinstance(shell, WorkerShell) else None
        self._inbox: deque[list[bytes]] = deque()
        self._later: list[Callable[[], object]] = []  # while it is paused
        self._scheduled = False
        self._syncing = False
        self._saving = False
        self._paces = random.Random(f"{seed} {self.name} snapshots")
        if self._dispatcher is not None:
            loop: Any = self._dispatcher._loop
            loop.run = lambda do: self.do(partial(self.run, do))

    @property
    def edge(self) -> Any:
        """The Gateway of a dispatcher."""
        assert self._dispatcher is not None
        return self._dispatcher.edge

    def start(self) -> None:
        self.started = True
        self.host.clock.after(self.rng.randrange(TICK_MS), self._tick)
        self._schedule()

    def take(self, message: list[bytes]) -> None:
        """A message has come to the inbox."""
        if not self.over:
            self._inbox.append(message)
            self._schedule()

    def tell(self, peers: dict[Address, ActorIncarnation]) -> None:
        """Who has come."""
        self.do(partial(self.run, partial(self.shell.connect, peers)))

    def do(self, action: Callable[[], object]) -> None:
        """Now, or when it wakes up, or never."""
        if self.paused:
            self._later.append(action)
        elif not self.over:
            action()

    def wake(self) -> None:
        self.paused = False
        actions, self._later = self._later, []
        for action in actions:
            self.do(action)
        self._schedule()

    def run(self, action: Callable[[], object]) -> bool:
        """Something that the shell does on a thread of its own: an exception ends it."""
        if self.over or self.paused:
            return False
        try:
            action()
        except PowerCut:
            self._power_cut()
            return False
        except (Unavailable, Poison) as error:
            self.host.ended(self, f"{type(error).__name__}: {error}")
            return False
        except RuntimeError as error:
            if "lease" not in str(error):
                raise
            self.host.ended(self, "its lease has run out")
            return False
        self.look()
        return True

    def look(self) -> None:
        """Whether there is something to sync; a thread of its own does it."""
        if not self._syncing and self._unsynced:
            self._syncing = True
            self.host.clock.after(self.rng.randrange(FSYNC_MS), self._sync)
        worker = self._worker
        if worker is not None and not self._saving and worker.saver.wanted.is_set():
            self._saving = True
            self.host.clock.after(self._paces.choice([0, 3, 30, 300]), self._copy, worker)

    @property
    def _unsynced(self) -> bool:
        if self._dispatcher is not None:
            return self._dispatcher._unsynced.is_set()
        return self._merger is not None and self._merger.unsynced

    def _sync(self) -> None:
        self._syncing = False
        if self.paused:
            self._later.append(self.look)
        elif self._dispatcher is not None:
            self._dispatcher._unsynced.clear()
            self.run(self._dispatcher.sync)
        elif self._merger is not None:
            self.run(self._merger.sync)

    def _copy(self, shell: WorkerShell) -> None:
        if self.paused:
            self._later.append(partial(self._copy, shell))
        elif not shell.saver.frozen:
            self._saving = False
            self.run(shell.saver.prepare)
        elif self.run(shell.saver.copy):
            self.host.clock.after(self._paces.choice([0, 3, 30, 300]), self._write, shell)
            self._schedule()

    def _write(self, shell: WorkerShell) -> None:
        if self.paused:
            self._later.append(partial(self._write, shell))
        else:
            self._saving = False
            self.run(partial(shell.saver.write, shell.holds))

    def _schedule(self) -> None:
        if not self._scheduled and self.started and (self._inbox or self.shell.busy):
            self._scheduled = True
            self.host.clock.after(self.rng.randrange(3), self._work)

    def _work(self) -> None:
        self._scheduled = False
        if not self.paused and self.run(self._handle):
            self._schedule()

    def _handle(self) -> None:
        frames: list[Frame] = []
        for _ in range(min(GROUP, len(self._inbox))):
            head, *data = self._inbox.popleft()
            if self._links.fence.accept(MessageHead.decode(head)):
                frames += map(decode, data)
        if frames or self.shell.busy:
            self.shell.handle(frames)

    def _tick(self) -> None:
        if self.over:
            return
        if self.run(self.shell.tick):
            self._schedule()
        self.host.clock.after(TICK_MS, self._tick)


def _let_fail(_: ActorShell) -> AbstractContextManager[None]:
    """Returns a context out of which exceptions come as they are."""
    return nullcontext()


def _trim_at_once(log: Log) -> Log:
    """Returns a log that is trimmed at once, so that what is gone is gone as early as may be."""
    return log


@contextmanager
def patched(clock: Clock, network: Network) -> Iterator[None]:
    """Clock and network of the simulator in the place of those of the machine. Nobody waits for
    a renewal of a lease: no time passes in between two events."""

    time = SimpleNamespace(monotonic=clock.monotonic, sleep=lambda _: None)
    dispatchers = partial(clock.wall_ms, "dispatchers")
    with (
        mock.patch.multiple(shell, PeerLinks=partial(SimLinks, network), time=time, GRACE_S=0.0),
        mock.patch.multiple(
            actor_shells,
            time=time,
            wall_clock_ms=partial(clock.wall_ms, "actors"),
            TrimmedLater=_trim_at_once,
        ),
        mock.patch.multiple(
            dispatcher_shell,
            time=time,
            service_loop=partial(SimLoop, clock),
            TrimmedLater=_trim_at_once,
        ),
        mock.patch.multiple(dispatcher_driver, time=time, wall_clock_ms=dispatchers),
        mock.patch.multiple(dispatcher_edge, time=time, wall_clock_ms=dispatchers),
        mock.patch.object(ActorShell, "watched", _let_fail),
    ):
        yield
