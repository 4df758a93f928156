"""The common part of all actors: links, the thread that receives, lease, failure, status.

Ray's calls connect, start, inspect and stop an actor; its messages come on a thread of their own.
An exception in a machine ends the actor, whose successor rebuilds itself from what is durable
(docs/decisions/0006). A lease that has run out ends it, too, since another incarnation may run.
"""

from __future__ import annotations

import abc
import gc
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
from ps2stream.cluster.actor_home import ActorHome, here
from ps2stream.cluster.links import POLL_MS, PeerLinks
from ps2stream.cluster.log_lines import log_to_folder, say_here
from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.observability.exporters import MetricRecorder
from ps2stream.observability.meter import StageMeter
from ps2stream.observability.process import is_running, resident_bytes
from ps2stream.observability.traces import NO_TRACES, ActorTraces, TraceSampling
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.ticks import TICK_S

log = logging.getLogger("ps2stream.cluster")
GRACE_S = 30.0
"""How long an actor whose lease has run out may wait for a renewal before it ends."""
RENEWAL_S = 0.01
GROUP = 64
"""Most messages that are handled together, before one sync."""


class ActorIncarnation(NamedTuple):
    """An incarnation of an actor: its endpoint and epoch, and its home if on several hosts."""

    endpoint: str
    epoch: int
    home: ActorHome | None = None


class LanSettings(NamedTuple):
    """The settings of actors on several hosts: the ports that they listen at, any if there are
    none, the level and format of their logs, and the version that all must have."""

    ports: range
    level: int
    as_json: bool
    version: str = __version__


class PingAnswer(NamedTuple):
    """An actor's answer to a ping: its process id, and its monotonic clock, s."""

    pid: int
    clock: float


class ActorShell(abc.ABC):
    """An actor around one machine. It transports bytes, and holds no logic."""

    name = ""
    """Role and index, `worker-0`. Ray reads it also of an actor whose constructor has raised."""

    def __init__(self, address: Address, epoch: int) -> None:
        self.address = address
        self.epoch = epoch
        self.name = f"{address.role}-{address.index}"
        self.meter = StageMeter()
        self.links = PeerLinks(address, epoch, self.meter)
        self._recorder: MetricRecorder | None = None
        self.failure = ""
        self.lease = float("inf")
        self._lease_s = float("inf")  # the lease that pings before `start` ask for
        self._grace_s = 0.0
        self._exits = False
        self._stopping = threading.Event()
        self._peer_changes: queue.SimpleQueue[tuple[Address, ActorIncarnation | None]] = (
            queue.SimpleQueue()
        )
        self._peer_epochs: dict[Address, int] = {}
        self._is_receiving = False
        self._is_inbox_empty = False  # nothing waits beyond the messages of this turn
        self._tick_due = 0.0
        self._receiver = threading.Thread(
            target=self._receive_messages, daemon=True, name=f"{self.name}-inbox"
        )

    def __repr__(self) -> str:
        """Returns role and index, `worker-0`. Ray reads this once, when the actor is created, and
        shows it in its table of actors and before lines of its log, so it must not change."""
        return self.name

    def bind(self, folder: Path, lan: LanSettings | None = None) -> ActorIncarnation:
        """Opens the inbox in `folder`, to which the log is sent as well, or to the hosts of
        `lan`. Raises FailedPrecondition on a host of another version."""
        if lan is None:
            self._grace_s = GRACE_S
            log_to_folder(folder, self.name, self.epoch)
            return ActorIncarnation(self.links.bind(folder), self.epoch)
        say_here(self.name, self.epoch, lan.level, lan.as_json)
        where = here()
        if lan.version != __version__:
            raise FailedPrecondition(
                f"host {where.host} runs ps2stream {__version__}, but the service runs "
                f"{lan.version}; install the same version on all hosts"
            )
        endpoint, home = self.links.listen(where, lan.ports)
        return ActorIncarnation(endpoint, self.epoch, home)

    def expect(self, peers: Mapping[Address, ActorIncarnation]) -> None:
        """Admits peers of other hosts that will send soon; `connect` follows."""
        for peer, incarnation in peers.items():
            if incarnation.home is not None:
                self.links.admit(peer, incarnation.home)

    def connect(self, peers: Mapping[Address, ActorIncarnation | None]) -> None:
        """Connects to these incarnations of peers, and disconnects from peers that are None.

        Before `start` this is done at once, after it between two messages.
        """
        for peer in peers.items():
            self._peer_changes.put(peer)
        if self._is_receiving:
            self.wake_receiver()
        else:
            self._connect_peers()

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: TraceSampling = NO_TRACES
    ) -> None:
        """Handles messages from now on. `exits`: a failure ends the process. `metrics_s`: seconds
        between two reports of the metrics to Ray; 0: none. `tracing`: the batches to trace."""
        self._exits = exits
        if exits:
            # What the process has loaded stays: a full collection would look through it, 60-100 ms.
            gc.freeze()
        if metrics_s:
            self._recorder = MetricRecorder(*self.address, round(metrics_s / TICK_S))
        if tracing.every:
            self.meter.traces = ActorTraces(tracing, self.address)
        self.lease = time.monotonic() + self._lease_s
        self._is_receiving = True
        self.start_receiving()

    def start_receiving(self) -> None:
        """Begins to take turns; from now on only whoever takes them uses the links' inbox."""
        self._receiver.start()

    def end_receiving(self) -> None:
        """Returns once no further turn is taken."""
        self._receiver.join()

    def wake_receiver(self) -> None:  # noqa: B027
        """Has a turn taken soon. The thread takes one at least every POLL_MS."""

    def stop(self) -> None:
        """Handles no further message, once the one under way is done."""
        self._stopping.set()
        if self._is_receiving:
            self.end_receiving()
        self.links.close()
        if self.meter.traces is not None:
            self.meter.traces.close()

    def ping(self, lease_s: float, heard: float | None) -> PingAnswer:
        """Renews the lease, which begins with `start`, and returns a pulse.

        It lasts `lease_s` from the last answer that the supervisor received, which was given at
        `heard` by this actor's clock. None: it has received none yet. Then the lease is not
        extended, because such a ping may have waited until a stopped process went on.
        """
        now = time.monotonic()
        if not self._is_receiving:
            self._lease_s = lease_s
        elif heard is None:
            self.lease = min(self.lease, now + lease_s)
        else:
            self.lease = heard + lease_s
        return PingAnswer(os.getpid(), now)

    def has_ended(self, pid: int) -> bool:
        """Returns whether this host has no such process any more."""
        return not is_running(pid)

    @property
    def lapsed(self) -> bool:
        """True if another incarnation may run, so that this one must end. On one host this one is
        killed first; so there it waits a while for a renewal, and sends and answers nothing."""
        while (now := time.monotonic()) > self.lease:
            if now > self.lease + self._grace_s or self._stopping.is_set():
                return True
            time.sleep(RENEWAL_S)
        return False

    @property
    def busy(self) -> bool:
        """True if there is more to do without a message."""
        return False

    @abc.abstractmethod
    def handle(self, frames: list[Frame]) -> None:
        """Handles messages in order."""

    @abc.abstractmethod
    def joined(self, peer: Address) -> None:
        """Handles that a peer was replaced."""

    def lost(self, peer: Address) -> None:  # noqa: B027
        """Handles that a peer's process seems to be gone."""

    @abc.abstractmethod
    def tick(self) -> None:
        """Does periodic work; called ten times a second."""

    def status(self) -> dict[str, Any]:
        return {
            "failure": self.failure,
            "up": 1,
            "epoch": self.epoch,
            "pid": os.getpid(),
            "refused": self.links.fence.refused,
            "dropped": self.links.dropped,
            "sent_frames": self.links.sent_frames,
            "sent_bytes": self.links.sent_bytes,
            "cpu_seconds": time.process_time(),
            "resident_bytes": resident_bytes(),
            "stages": self.meter.stages,
        }

    def post(self, sends: list[Send]) -> None:
        """Sends frames. Raises Unavailable once the lease has run out."""
        if self.lapsed:
            raise Unavailable("this actor's lease has run out, and another may have replaced it")
        self.links.post(sends)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A context in which any exception ends this shell."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            if self._stopping.is_set():
                return
            self.failure = str(error) if self.lapsed else traceback.format_exc()
            log.critical("%s stopped: %s", self.name, self.failure)
            if self._exits:
                os._exit(70)

    def _connect_peers(self) -> None:
        while True:
            try:
                peer, incarnation = self._peer_changes.get_nowait()
            except queue.Empty:
                return
            if incarnation is None:
                self.links.disconnect(peer)
                self._peer_epochs.pop(peer, None)
                continue
            before = self._peer_epochs.get(peer)
            if before is not None and incarnation.epoch < before:
                continue  # old news, as may happen where many are replaced at once
            self.links.connect(peer, *incarnation)
            self._peer_epochs[peer] = incarnation.epoch
            if before is not None:
                self.joined(peer)

    def take_turn(self, wait_ms: int) -> bool:
        """Handles the messages that come within `wait_ms`, changes of peers, and a tick that is
        due. Returns whether it may have left messages for the next turn."""
        frames: list[Frame] = []
        is_full = False
        with self.watched():
            data = self.links.receive(wait_ms)
            taken = 0
            while data is not None:
                frames += map(decode, data)
                taken += 1
                if is_full := taken == GROUP:
                    break
                data = self.links.receive(0)
            self._is_inbox_empty = data is None
            if self.failure:
                return is_full
            self._connect_peers()
            while self.links.gone:
                self.lost(self.links.gone.popleft())
            if frames or self.busy:
                self.handle(frames)
            if time.monotonic() >= self._tick_due:
                self._tick_due = time.monotonic() + TICK_S
                self.tick()
                if self._recorder is not None:
                    self._recorder.tick(self.status)
        return is_full

    def _receive_messages(self) -> None:
        while not self._stopping.is_set():
            self.take_turn(0 if self.busy else POLL_MS)
