"""The shells of workers, mergers, sequencer and controller: each adds to its machine what a
machine must not know, which is threads, the clock and files."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from ps2stream.cluster.allocator import return_free_memory
from ps2stream.cluster.later_trims import TrimmedLater
from ps2stream.cluster.log_pairing import make_log, pair_logs
from ps2stream.cluster.logs import LogReporter, ServiceLogs
from ps2stream.cluster.shell import ActorShell
from ps2stream.cluster.snapshots import NO_SNAPSHOTS, SnapshotPolicy, SnapshotSaver
from ps2stream.cluster.topology import Topology
from ps2stream.errors import Ps2StreamError
from ps2stream.observability.meter import matched
from ps2stream.observability.process import counters_of, disk, log_figures, wall_clock_ms
from ps2stream.observability.traces import NO_TRACES, Key, TraceSampling
from ps2stream.protocol.addresses import Address, Role, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import MatchRelease, ReleasesKept
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.ports import Store
from ps2stream.store.places import StoragePlace, describe_promises

COPY_S = 0.002  # between two checks whether a copy is done, while updates wait for it
MERGING = 1024  # sampled releases that a merger times at once, at most


class WorkerShell(ActorShell):
    """The shell of a worker. Another thread makes its snapshots."""

    def __init__(
        self,
        address: Address,
        epoch: int,
        topology: Topology,
        policy: SnapshotPolicy = NO_SNAPSHOTS,
    ) -> None:
        super().__init__(address, epoch)
        route, layout = topology.plan.route, topology.snapshot_format
        self.saver = SnapshotSaver(policy, self.name, address.index, route, epoch, layout)
        self.machine = topology.worker(address.index, self.saver.load())
        self._writer = threading.Thread(
            target=self._save_snapshots, daemon=True, name=f"{self.name}-saver"
        )

    @property
    def busy(self) -> bool:
        return self.saver.frozen and self.machine.blocked

    def handle(self, frames: list[Frame]) -> None:
        if not frames and not self.saver.copied.is_set():
            time.sleep(COPY_S)
        self.post(self.saver.thaw(self.machine, time.monotonic()))
        for frame in frames:
            if self.saver.frozen:  # otherwise updates would wait until all frames are handled
                self.post(self.saver.thaw(self.machine, time.monotonic()))
            self.post(matched(self.machine, frame, self.meter))

    def joined(self, peer: Address) -> None:
        self.post(self.machine.joined(peer))

    def tick(self) -> None:
        self.post(self.saver.thaw(self.machine, time.monotonic()))
        self.post(self.machine.tick())
        self.saver.look(self.machine, time.monotonic())

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: TraceSampling = NO_TRACES
    ) -> None:
        super().start(exits, metrics_s, tracing)
        self._writer.start()

    def stop(self) -> None:
        """Stops the threads and keeps what was applied in a last snapshot, if that is worth it."""
        super().stop()
        self.saver.wanted.set()
        if self._writer.is_alive():
            self._writer.join()
        with self.watched():
            self.saver.end(self.machine, self.holds)

    def status(self) -> dict[str, Any]:
        return super().status() | counters_of(self.machine) | {"snapshot": self.saver.status()}

    def holds(self) -> bool:
        """Returns whether no other incarnation can be in its place."""
        return not self.lapsed

    def _save_snapshots(self) -> None:
        while not self._stopping.is_set():
            self.saver.wanted.wait()
            with self.watched():
                if self.saver.frozen:
                    self.saver.copy()
                    self.saver.write(self.holds)
                else:
                    self.saver.prepare()


class MergerShell(ActorShell):
    """The shell of a merger, which sends nothing before what it follows from is durable.

    If no message waits, the thread that receives syncs: it has nothing else to do, and no other
    need be woken. Otherwise another thread syncs while this one goes on, and what it would send
    waits for the next sync.
    """

    def __init__(self, address: Address, epoch: int, topology: Topology, logs: ServiceLogs) -> None:
        super().__init__(address, epoch)
        self._log = TrimmedLater(logs.open(address))
        self.machine = topology.merger(address.index, self._log)
        self._reporter = LogReporter(address, self._log)
        self._changed = threading.Condition()
        self._waiting: list[Send] = []  # until the next sync
        self._due = False  # something was appended since the last one began
        self._syncing = False
        # Sampled batches by dispatcher and release, and when their merging began, Unix ns.
        self._merging: dict[tuple[int, int], tuple[Key, int]] = {}
        self._syncer = threading.Thread(target=self._sync_log, daemon=True, name=f"{self.name}-log")

    @property
    def busy(self) -> bool:
        return self.machine.busy

    def handle(self, frames: list[Frame]) -> None:
        if (traces := self.meter.traces) is not None:
            now = time.time_ns()
            for frame in frames:
                if isinstance(frame, MatchRelease):
                    batch = (frame.dispatcher, frame.batch)
                    if traces.wanted(batch) and len(self._merging) < MERGING:
                        key = (frame.dispatcher, frame.release)
                        self._merging.setdefault(key, (batch, now))
        with self.meter.time("merge"):
            sends = self.machine.on_many(frames)
        self._commit_sends(sends)

    def post(self, sends: list[Send]) -> None:
        super().post(sends)
        if (traces := self.meter.traces) is not None:
            kept = [(to.index, f.release) for to, f in sends if isinstance(f, ReleasesKept)]
            for key in [(of, release) for of, numbers in kept for release in numbers.tolist()]:
                if (found := self._merging.pop(key, None)) is not None:
                    traces.part("merge", found[0], found[1], time.time_ns())

    def joined(self, peer: Address) -> None:
        self._commit_sends(self.machine.joined(peer))

    def tick(self) -> None:
        sends = self.machine.tick(wall_clock_ms())
        if self._reporter.due:
            sends += self._reporter.report(self.machine.highest)
        self._commit_sends(sends)

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: TraceSampling = NO_TRACES
    ) -> None:
        super().start(exits, metrics_s, tracing)
        self._syncer.start()

    def stop(self) -> None:
        """Stops the threads, syncs the last acknowledgements, and closes the log."""
        super().stop()
        with self._changed:
            self._changed.notify()
        if self._syncer.is_alive():
            self._syncer.join()
        if not self.lapsed:  # else the log may be another incarnation's
            self.machine.end()
        self._log.sync()
        self._log.close()

    def status(self) -> dict[str, Any]:
        of_log = log_figures(self._log.problem, self._log.bytes)
        return super().status() | of_log | counters_of(self.machine)

    @property
    def unsynced(self) -> bool:
        """True when `sync` should be called."""
        return self._due or bool(self._waiting)

    def sync(self) -> None:
        """Makes durable what was done, and sends what waited for that. By one thread at a time."""
        with self._changed:
            sends = self._begin_sync()
        self._finish_sync(sends)

    def _commit_sends(self, sends: list[Send]) -> None:
        unsynced = self.machine.hand_over()
        with self._changed:
            self._due |= unsynced
            must_sync = self._due or bool(self._waiting) or self._syncing
            if must_sync:
                self._waiting += sends
                if self._syncing or self.busy or not self._is_inbox_empty:
                    self._changed.notify()
                    return
                sends = self._begin_sync()
        if must_sync:
            self._finish_sync(sends)
        else:
            self.post(sends)

    def _begin_sync(self) -> list[Send]:
        """Returns what waits for the sync that begins; with the lock held."""
        sends, self._waiting = self._waiting, []
        self._due, self._syncing = False, True
        return sends

    def _finish_sync(self, sends: list[Send]) -> None:
        with self.meter.time("sync"):
            self._log.sync()
        self.post(sends)
        with self._changed:
            self._syncing = False

    def _sync_log(self) -> None:
        while not self._stopping.is_set():
            with self.watched():
                with self._changed:
                    while not self.unsynced and not self._stopping.is_set():
                        self._changed.wait()
                    # In one step, so that the thread that receives does not begin one meanwhile.
                    sends = self._begin_sync()
                self._finish_sync(sends)


class SequencerShell(ActorShell):
    """The shell of the sequencer: requests that queue up during a commit go into the next one.

    What the first one of a service raises in its constructor is raised by `pair_logs`, the first
    call of it, because Ray brings no more than the text of a constructor's error back.
    """

    def __init__(
        self, address: Address, place: StoragePlace, topology: Topology, first: bool
    ) -> None:
        self._place = place
        self._topology = topology
        self._promises = describe_promises(place)
        self._lock = threading.Lock()
        self._refusal: Ps2StreamError | None = None
        try:
            self._open_ledger(address, first)
        except Ps2StreamError as error:
            if not first:
                raise
            self._refusal = error

    def _open_ledger(self, address: Address, first: bool) -> None:
        analysis = json.dumps(self._topology.plan.analysis.to_dict())
        self._ledger: Store = self._place.open_ledger(analysis, again=not first)
        self._found_lsn = self._ledger.lsn
        super().__init__(address, self._ledger.epoch(address.role, address.index))
        self.machine = self._topology.sequencer(self._ledger, self.epoch, restarts=first)
        return_free_memory()  # what the replay has freed

    def pair_logs(self, logs: ServiceLogs, accept_loss: bool) -> None:
        """Pairs the logs with the ledger (see pairing.pair_logs) before others open a log.

        An older ledger that goes on is read again: its LSNs now begin above those of the logs.
        """
        if self._refusal is not None:
            raise self._refusal
        pair_logs(logs, self._ledger, self._topology, accept_loss, self._found_lsn)
        if self._ledger.lsn != self.machine.lsn:
            self.machine = self._topology.sequencer(self._ledger, self.epoch, restarts=True)

    def make_log(self, logs: ServiceLogs, owner: Address) -> None:
        """Makes the log of an actor that is about to start; see log_pairing.make_log."""
        with self._lock:
            make_log(logs, self._ledger, owner)

    def admit(self, peers: list[Address]) -> list[int]:
        """Returns new epochs for new incarnations of these peers."""
        with self._lock:
            return [self._ledger.epoch(*peer) for peer in peers]

    def fence(self, dispatcher: int) -> None:
        """Stops waiting for the incarnation of this dispatcher that has died."""
        with self._lock:
            self.post(self.machine.fence(dispatcher))

    def identity(self) -> int:
        """Returns the number that identifies the data directory."""
        return self._ledger.identity

    def handle(self, frames: list[Frame]) -> None:
        requests = [f for f in frames if isinstance(f, UpdateRequest)]
        with self._lock:
            if requests:
                self.machine.note_time(wall_clock_ms())
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

    def run_actors(self, role: Role, running: int) -> int:
        """Returns how many actors of a role are wanted; see SequencerMachine.run_actors."""
        with self._lock:
            return self.machine.run_actors(role, running)

    def stop(self) -> None:
        """Stops the thread and closes the ledger, if it has been opened."""
        if self._refusal is not None:
            return
        super().stop()
        self._ledger.close()

    def status(self) -> dict[str, Any]:
        with self._lock:
            of_ledger = log_figures(self._ledger.find_problem())
        kept = disk(self._place.folder) | self._promises | of_ledger
        return super().status() | kept | counters_of(self.machine)


class ControllerShell(ActorShell):
    """The shell of the controller, which keeps nothing."""

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
