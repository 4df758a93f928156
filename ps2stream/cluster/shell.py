"""What all actors share: links, the thread that receives, lease, failure, status.

Ray calls an actor to wire it up, start, look at and stop it; its messages come on a
thread of their own. An exception in a machine ends the actor, whose successor rebuilds
itself from what is durable (docs/decisions/0006). So does a lease that has run out: another
incarnation may be there.
"""

from __future__ import annotations

import abc
import logging
import os
import queue
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ps2stream import __version__
from ps2stream.cluster.home import Home, here
from ps2stream.cluster.links import Links
from ps2stream.cluster.log_lines import say_here, send_to
from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.observability.exporters import Recorder
from ps2stream.observability.meter import Meter
from ps2stream.observability.process import resident_bytes
from ps2stream.observability.traces import NO_TRACES, Traces, Tracing
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame, decode

log = logging.getLogger("ps2stream.cluster")
TICK_S = 0.1
GRACE_S = 30.0
"""How long an actor whose lease has run out may wait for another before it ends."""
RENEWAL_S = 0.01
GROUP = 64
"""Messages that are handled together, before one sync."""


class Incarnation(NamedTuple):
    """Where an actor listens, its epoch, and, where peers may be on other hosts, its home."""

    endpoint: str
    epoch: int
    home: Home | None = None


class Lan(NamedTuple):
    """Where actors are on several hosts: the ports that they listen at, any where there are
    none, the level and form of what they log there, and the version of all."""

    ports: range
    level: int
    as_json: bool
    version: str = __version__


class Pulse(NamedTuple):
    """An actor's answer: its process's number, and its monotonic clock, s."""

    pid: int
    clock: float


class Shell(abc.ABC):
    """An actor around one machine. It moves bytes, and holds no logic."""

    def __init__(self, address: Address, epoch: int) -> None:
        self.address = address
        self.epoch = epoch
        self.name = f"{address.role}-{address.index}"
        self.meter = Meter()
        self.links = Links(address, epoch, self.meter)
        self._recorder: Recorder | None = None
        self.failure = ""
        self.lease = float("inf")
        self._lease_s = float("inf")  # of the pings before `start`
        self._grace_s = 0.0
        self._exits = False
        self._stopping = threading.Event()
        self._peers: queue.SimpleQueue[tuple[Address, Incarnation | None]] = queue.SimpleQueue()
        self._known: dict[Address, int] = {}  # their epochs
        self._receiver = threading.Thread(
            target=self._receive, daemon=True, name=f"{self.name}-inbox"
        )

    def __repr__(self) -> str:
        """Role and index, `worker-0`. Ray asks once, when the actor has been made, and shows it in
        its table of actors and before lines of its log: so nothing that changes belongs here."""
        return self.name

    def bind(self, folder: Path, lan: Lan | None = None) -> Incarnation:
        """Open the inbox in `folder`, where the log goes, too, or to the hosts of `lan`. Raises
        FailedPrecondition on a host of another version."""
        if lan is None:
            self._grace_s = GRACE_S
            send_to(folder, self.name, self.epoch)
            return Incarnation(self.links.bind(folder), self.epoch)
        say_here(self.name, self.epoch, lan.level, lan.as_json)
        where = here()
        if lan.version != __version__:
            raise FailedPrecondition(
                f"host {where.host} has ps2stream {__version__}, the service {lan.version}"
            )
        endpoint, home = self.links.listen(where, lan.ports)
        return Incarnation(endpoint, self.epoch, home)

    def expect(self, peers: Mapping[Address, Incarnation]) -> None:
        """Who of other hosts will send soon; `connect` is to follow."""
        for peer, incarnation in peers.items():
            if incarnation.home is not None:
                self.links.admit(peer, incarnation.home)

    def connect(self, peers: Mapping[Address, Incarnation | None]) -> None:
        """Who is there, and later who has been replaced; None: who has gone. Before `start` at
        once, after it between two messages."""
        for peer in peers.items():
            self._peers.put(peer)
        if not self._receiver.is_alive():
            self._connect()

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: Tracing = NO_TRACES
    ) -> None:
        """Take messages from now on. `exits`: a failure ends the process. `metrics_s`: seconds
        after which Ray is told the metrics again; 0: never. `tracing`: of which batches."""
        self._exits = exits
        if metrics_s:
            self._recorder = Recorder(*self.address, round(metrics_s / TICK_S))
        if tracing.every:
            self.meter.traces = Traces(tracing, self.address)
        self.lease = time.monotonic() + self._lease_s
        self._receiver.start()

    def stop(self) -> None:
        """Take no further message, once the one under way is done."""
        self._stopping.set()
        if self._receiver.is_alive():
            self._receiver.join()
        self.links.close()
        if self.meter.traces is not None:
            self.meter.traces.close()

    def ping(self, lease_s: float, heard: float | None) -> Pulse:
        """Renew the lease, which begins with `start`: it lasts so long from the last answer that
        came back, which was `heard` by its clock, this actor's; None: none yet, which renews
        nothing, because such a ping may have waited until a stopped process went on."""
        now = time.monotonic()
        if not self._receiver.is_alive():
            self._lease_s = lease_s
        elif heard is None:
            self.lease = min(self.lease, now + lease_s)
        else:
            self.lease = heard + lease_s
        return Pulse(os.getpid(), now)

    @property
    def lapsed(self) -> bool:
        """Whether another incarnation may be there, so that this one must end. On one host it is
        killed first: there it waits a while, and nothing is sent or answered, for a renewal."""
        while (now := time.monotonic()) > self.lease:
            if now > self.lease + self._grace_s or self._stopping.is_set():
                return True
            time.sleep(RENEWAL_S)
        return False

    @property
    def busy(self) -> bool:
        """Whether there is more to do without a message."""
        return False

    @abc.abstractmethod
    def handle(self, frames: list[Frame]) -> None:
        """Some messages, in order."""

    @abc.abstractmethod
    def joined(self, peer: Address) -> None:
        """A peer was replaced."""

    def lost(self, peer: Address) -> None:  # noqa: B027
        """A peer's process is gone, as it seems."""

    @abc.abstractmethod
    def tick(self) -> None:
        """Ten times a second."""

    def status(self) -> dict[str, Any]:
        return {
            "failure": self.failure,
            "up": 1,
            "epoch": self.epoch,
            "pid": os.getpid(),
            "refused": self.links.fence.refused,
            "dropped": self.links.dropped,
            "cpu_seconds": time.process_time(),
            "resident_bytes": resident_bytes(),
            "stages": self.meter.stages,
        }

    def post(self, sends: list[Send]) -> None:
        """Send. Raises Unavailable once the lease has run out."""
        if self.lapsed:
            raise Unavailable("this actor's lease has run out; another may be in its place")
        self.links.post(sends)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """An exception inside, whatever it is, ends this shell."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            if self._stopping.is_set():
                return
            self.failure = str(error) if self.lapsed else traceback.format_exc()
            log.critical("%s stopped: %s", self.name, self.failure)
            if self._exits:
                os._exit(70)

    def _connect(self) -> None:
        while True:
            try:
                peer, incarnation = self._peers.get_nowait()
            except queue.Empty:
                return
            if incarnation is None:
                self.links.disconnect(peer)
                self._known.pop(peer, None)
                continue
            before = self._known.get(peer)
            if before is not None and incarnation.epoch < before:
                continue  # where many are replaced at once, this may be old
            self.links.connect(peer, *incarnation)
            self._known[peer] = incarnation.epoch
            if before is not None:
                self.joined(peer)

    def _receive(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            data = self.links.receive(wait=not self.busy)
            frames: list[Frame] = []
            with self.watched():
                for _ in range(GROUP):
                    if data is None:
                        break
                    frames += map(decode, data)
                    data = self.links.receive(wait=False)
                if self.failure:
                    continue
                self._connect()
                while self.links.gone:
                    self.lost(self.links.gone.popleft())
                if frames or self.busy:
                    self.handle(frames)
                if time.monotonic() >= due:
                    due = time.monotonic() + TICK_S
                    self.tick()
                    if self._recorder is not None:
                        self._recorder.tick(self.status)
