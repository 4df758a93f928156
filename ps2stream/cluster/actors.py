"""Ray shells: each moves bytes between its links and one machine, and holds no logic.

Ray calls an actor to wire it up, start, look at and stop it; its messages come on a
thread of their own. An exception in a machine ends the actor, whose successor rebuilds
itself from what is durable (docs/decisions/0006). So does a lease that has run out: another
incarnation may be there.
"""

from __future__ import annotations

import abc
import json
import logging
import os
import queue
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ps2stream.batch import Frame, decode
from ps2stream.cluster.edge import DispatcherEdge, counters_of, wall_clock_ms
from ps2stream.cluster.links import Links
from ps2stream.cluster.log_lines import send_to
from ps2stream.cluster.logs import Logs
from ps2stream.cluster.meter import Meter, matched
from ps2stream.cluster.metering import Recorder
from ps2stream.cluster.process import disk, resident_bytes
from ps2stream.cluster.snapshots import NO_SNAPSHOTS, Policy, Saver
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.traces import NO_TRACES, Key, Traces, Tracing
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.errors import Unavailable
from ps2stream.messages import Address, Completed, MatchBatch, Payload, Send, UpdateRequest
from ps2stream.ports import Store
from ps2stream.security import Security
from ps2stream.store.places import Place

if TYPE_CHECKING:
    from ps2stream.service.server import Server

log = logging.getLogger("ps2stream.cluster")
TICK_S = 0.1
COPY_S = 0.002  # between two looks at whether a copy is done, where updates wait for it
MERGING = 1024  # sampled batches whose completion a merger waits for, at most
GROUP = 64
"""Messages that are handled together, before one sync."""


class Incarnation(NamedTuple):
    """Where an actor listens, and its epoch."""

    endpoint: str
    epoch: int


class Shell(abc.ABC):
    """What all actors share: links, the thread that receives, lease, failure, status."""

    def __init__(self, address: Address, epoch: int) -> None:
        self.address = address
        self.epoch = epoch
        self.name = f"{address.role}-{address.index}"
        self.meter = Meter()
        self.links = Links(address, epoch, self.meter)
        self._recorder: Recorder | None = None
        self.failure = ""
        self.lease = float("inf")
        self._exits = False
        self._stopping = threading.Event()
        self._peers: queue.SimpleQueue[tuple[Address, Incarnation | None]] = queue.SimpleQueue()
        self._known: set[Address] = set()
        self._receiver = threading.Thread(
            target=self._receive, daemon=True, name=f"{self.name}-inbox"
        )

    def bind(self, folder: Path) -> Incarnation:
        """Open the inbox in `folder`, where the log goes, too."""
        send_to(folder, self.name, self.epoch)
        return Incarnation(self.links.bind(folder), self.epoch)

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
        self._receiver.start()

    def stop(self) -> None:
        """Take no further message, once the one under way is done."""
        self._stopping.set()
        if self._receiver.is_alive():
            self._receiver.join()
        self.links.close()
        if self.meter.traces is not None:
            self.meter.traces.close()

    def ping(self, until: float) -> int:
        """Renew the lease, which begins with `start`, to this time (monotonic, s); the
        process's number."""
        if self._receiver.is_alive():
            self.lease = until
        return os.getpid()

    @property
    def lapsed(self) -> bool:
        """Whether another incarnation may be there."""
        return time.monotonic() > self.lease

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
                self._known.discard(peer)
                continue
            self.links.connect(peer, *incarnation)
            if peer in self._known:
                self.joined(peer)
            self._known.add(peer)

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


class WorkerShell(Shell):
    """A worker. Another thread makes its snapshots."""

    def __init__(
        self, address: Address, epoch: int, topology: Topology, policy: Policy = NO_SNAPSHOTS
    ) -> None:
        super().__init__(address, epoch)
        self.saver = Saver(policy, self.name, address.index, topology.plan.route, epoch)
        self.machine = topology.worker(address.index, self.saver.load())
        self._writer = threading.Thread(target=self._save, daemon=True, name=f"{self.name}-saver")

    @property
    def busy(self) -> bool:
        return self.saver.frozen and self.machine.blocked

    def handle(self, frames: list[Frame]) -> None:
        if not frames and not self.saver.copied.is_set():
            time.sleep(COPY_S)
        self.post(self.saver.thaw(self.machine, time.monotonic()))
        for frame in frames:
            self.post(matched(self.machine, frame, self.meter))

    def joined(self, peer: Address) -> None:
        self.post(self.machine.joined(peer))

    def tick(self) -> None:
        self.post(self.saver.thaw(self.machine, time.monotonic()))
        self.post(self.machine.tick())
        self.saver.look(self.machine, time.monotonic())

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: Tracing = NO_TRACES
    ) -> None:
        super().start(exits, metrics_s, tracing)
        self._writer.start()

    def stop(self) -> None:
        """Keep what was applied."""
        super().stop()
        self.saver.wanted.set()
        if self._writer.is_alive():
            self._writer.join()
        with self.watched():
            self.saver.end(self.machine, self.holds)

    def status(self) -> dict[str, Any]:
        return super().status() | counters_of(self.machine) | {"snapshot": self.saver.status()}

    def holds(self) -> bool:
        """Whether nobody else can be in its place."""
        return not self.lapsed

    def _save(self) -> None:
        while not self._stopping.is_set():
            self.saver.wanted.wait()
            with self.watched():
                if self.saver.frozen:
                    self.saver.copy()
                    self.saver.write(self.holds)
                else:
                    self.saver.prepare()


class MergerShell(Shell):
    """A merger: nothing leaves before what it follows from is durable. While one thread syncs,
    the other goes on; what it would send waits for the next sync."""

    def __init__(self, address: Address, epoch: int, topology: Topology, logs: Logs) -> None:
        super().__init__(address, epoch)
        self._log = logs.open(address)
        self.machine = topology.merger(address.index, self._log)
        self._changed = threading.Condition()
        self._waiting: list[Send] = []  # until the next sync
        self._due = False  # something was appended since the last one began
        self._syncing = False
        self._merging: dict[Key, int] = {}  # sampled batches: since when, Unix ns
        self._syncer = threading.Thread(target=self._sync, daemon=True, name=f"{self.name}-log")

    @property
    def busy(self) -> bool:
        return self.machine.busy

    def handle(self, frames: list[Frame]) -> None:
        if (traces := self.meter.traces) is not None:
            now = time.time_ns()
            for frame in frames:
                if isinstance(frame, MatchBatch | Payload):
                    key = (frame.dispatcher, frame.batch)
                    if traces.wanted(key) and len(self._merging) < MERGING:
                        self._merging.setdefault(key, now)
        with self.meter.time("merge"):
            sends = self.machine.on_many(frames)
        self._commit(sends)

    def post(self, sends: list[Send]) -> None:
        super().post(sends)
        if (traces := self.meter.traces) is not None:
            done = [(to.index, f.batch.tolist()) for to, f in sends if isinstance(f, Completed)]
            for key in [(of, batch) for of, batches in done for batch in batches]:
                if (begun := self._merging.pop(key, 0)) > 0:
                    traces.part("merge", key, begun, time.time_ns())

    def joined(self, peer: Address) -> None:
        self._commit(self.machine.joined(peer))

    def lost(self, peer: Address) -> None:
        self._commit(self.machine.lost(peer))

    def tick(self) -> None:
        self._commit(self.machine.tick(wall_clock_ms()))

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: Tracing = NO_TRACES
    ) -> None:
        super().start(exits, metrics_s, tracing)
        self._syncer.start()

    def stop(self) -> None:
        """Keep what was acknowledged lately, and close the log."""
        super().stop()
        with self._changed:
            self._changed.notify()
        if self._syncer.is_alive():
            self._syncer.join()
        self._log.sync()
        self._log.close()

    def status(self) -> dict[str, Any]:
        return super().status() | {"log_bytes": self._log.bytes} | counters_of(self.machine)

    @property
    def unsynced(self) -> bool:
        """Whether `sync` is to be called."""
        return self._due or bool(self._waiting)

    def sync(self) -> None:
        """Make durable what was done, and send what waited for it. On one thread."""
        with self._changed:
            sends, self._waiting = self._waiting, []
            self._due, self._syncing = False, True
        with self.meter.time("sync"):
            self._log.sync()
        self.post(sends)
        with self._changed:
            self._syncing = False

    def _commit(self, sends: list[Send]) -> None:
        unsynced = self.machine.hand_over()
        with self._changed:
            self._due |= unsynced
            if self._due or self._waiting or self._syncing:
                self._waiting += sends
                self._changed.notify()
                return
        self.post(sends)

    def _sync(self) -> None:
        while not self._stopping.is_set():
            with self.watched():
                with self._changed:
                    while not self.unsynced and not self._stopping.is_set():
                        self._changed.wait()
                self.sync()


class SequencerShell(Shell):
    """The sequencer: what has queued up while a commit ran goes into the next one."""

    def __init__(self, address: Address, place: Place, topology: Topology, first: bool) -> None:
        analysis = json.dumps(topology.plan.analysis.to_dict())
        self._place = place
        self._ledger: Store = place.open_ledger(analysis, again=not first)
        super().__init__(address, self._ledger.epoch(address.role, address.index))
        self.machine = topology.sequencer(self._ledger, self.epoch, restarts=first)
        self._lock = threading.Lock()

    def admit(self, peers: list[Address]) -> list[int]:
        """New epochs for new incarnations of these."""
        with self._lock:
            return [self._ledger.epoch(*peer) for peer in peers]

    def fence(self, dispatcher: int) -> None:
        """Wait no longer for this dispatcher."""
        with self._lock:
            self.post(self.machine.fence(dispatcher))

    def identity(self) -> int:
        """The number of the data directory."""
        return self._ledger.identity

    def handle(self, frames: list[Frame]) -> None:
        requests = [f for f in frames if isinstance(f, UpdateRequest)]
        with self._lock:
            if requests:
                self.post(self.machine.append(requests))
            for frame in frames:
                if not isinstance(frame, UpdateRequest):
                    self.post(self.machine.on(frame))

    def joined(self, peer: Address) -> None:
        with self._lock:
            self.post(self.machine.joined(peer))

    def tick(self) -> None:
        with self._lock:
            self.post(self.machine.tick(wall_clock_ms()))

    def workers(self, running: int) -> int:
        """See SequencerMachine.run."""
        with self._lock:
            return self.machine.run(running)

    def stop(self) -> None:
        """Commit what is queued and close the ledger."""
        super().stop()
        self._ledger.close()

    def status(self) -> dict[str, Any]:
        return super().status() | disk(self._place.folder) | counters_of(self.machine)


class ControllerShell(Shell):
    """The controller, which keeps nothing."""

    def __init__(self, address: Address, epoch: int, topology: Topology) -> None:
        super().__init__(address, epoch)
        self.machine = topology.controller(epoch)

    def handle(self, frames: list[Frame]) -> None:
        for frame in frames:
            self.post(self.machine.on(frame))

    def joined(self, peer: Address) -> None:
        self.post(self.machine.joined(peer))

    def tick(self) -> None:
        self.post(self.machine.tick())

    def status(self) -> dict[str, Any]:
        return super().status() | counters_of(self.machine)


class DispatcherShell(Shell):
    """A dispatcher: its router machine behind the edge, and the gRPC server."""

    def __init__(
        self, address: Address, epoch: int, topology: Topology, logs: Logs, identity: int
    ) -> None:
        super().__init__(address, epoch)
        analyzer = topology.analyzer()
        self._log = logs.open(address)
        objects = ObjectLog(self._log)
        self._unsynced = threading.Event()
        self.edge = DispatcherEdge(
            topology.router(address.index, analyzer, epoch, objects),
            analyzer,
            topology.frequencies(analyzer),
            self.post,
            wall_clock_ms,
            objects,
            reservoir=topology.reservoir(address.index),
            wake=self._unsynced.set,
            lapsed=lambda: self.lapsed,
            incarnation=identity,
            meter=self.meter,
            costs=topology.policy.rules.costs,
        )
        self._servers: list[Server] = []

    def handle(self, frames: list[Frame]) -> None:
        for frame in frames:
            self.edge.on(frame)

    def joined(self, peer: Address) -> None:
        self.edge.joined(peer)

    def tick(self) -> None:
        self.edge.tick()

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: Tracing = NO_TRACES
    ) -> None:
        super().start(exits, metrics_s, tracing)
        threading.Thread(target=self._sync, daemon=True, name=f"{self.name}-log").start()

    def ready(self) -> bool:
        """Whether it has caught up and may serve."""
        return self.edge.machine.ready

    def serve(self, host: str, port: int, security: Security, private: Path | None = None) -> int:
        """Open the gRPC endpoint; the port that it has. Raises when it is in use. private: the
        Unix socket of another one."""
        from ps2stream.service.server import serve, serve_privately

        self._servers.append(serve(self.edge, host, port, security))
        if private is not None:
            self._servers.append(serve_privately(self.edge, private))
        return self._servers[0].port

    def note(self, counters: Mapping[str, float]) -> None:
        """What else `status` is to tell."""
        self.edge.noted = counters

    def stop(self) -> None:
        """Take no new calls, let running ones finish for a moment."""
        for server in self._servers:
            server.stop(1.0)
        super().stop()  # a straggling handler finds the links closed
        self._unsynced.set()

    def status(self) -> dict[str, Any]:
        served = self._servers[0].status() if self._servers else {}
        return super().status() | self.edge.status() | served

    def _sync(self) -> None:
        while not self._stopping.is_set():
            self._unsynced.wait()
            self._unsynced.clear()
            with self.watched():
                self.edge.sync()
        self._log.close()
