"""The service of the simulator: its processes, their disks, and who replaces the dead.

`replace` follows cluster/ray_service.py step by step; what may go wrong in between does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ps2stream.cluster.actor_shells import (
    ControllerShell,
    MergerShell,
    SequencerShell,
    WorkerShell,
)
from ps2stream.cluster.dispatcher_shell import DispatcherShell
from ps2stream.cluster.logs import name_of
from ps2stream.cluster.shell import ActorIncarnation, ActorShell
from ps2stream.cluster.snapshots import SnapshotPolicy
from ps2stream.cluster.topology import Topology
from ps2stream.controller.machine import ControllerMachine
from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.merger.machine import MergerMachine
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import F64, I64, U8, U32, U64
from ps2stream.protocol.ports import Log
from ps2stream.space.grid import Grid
from ps2stream.store.identity import LogIdentity, read_identity, write_identity
from ps2stream.store.segments import SegmentLog
from ps2stream.store.snapshots import SnapshotStore
from ps2stream.workers.index import ALL_TERMS, NO_ROWS, NO_VALUES, Index, Mask, MatchColumns, Parts
from tests.sim.clock import Clock, Task
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.ledger import Held, Ledger
from tests.sim.network import Cut, Network
from tests.sim.process import Poison, Process

SEQUENCER = Address("sequencer", 0)
LEASE_MS = 2_000
RETRY_MS = 500
POISON = "poison"


@dataclass(frozen=True)
class SimTopology(Topology):
    """With small logs and with workers that poison kills."""

    segment_bytes: int = 1 << 16
    chapter_bytes: int = 1 << 14
    poison: int = 0  # the hash of the term
    snapshot_s: float = 0.0
    controlled: bool = True  # whether there is a controller
    most_workers: int = 0  # of all plans that come; those that a plan does not name wait
    most_mergers: int = 0  # that are ever requested; those that have no sessions wait
    most_dispatchers: int = 0  # likewise; those that do not count accept nothing

    def addresses(self) -> list[Address]:
        more = range(self.plan.workers, self.most_workers)
        found = [a for a in super().addresses() if self.controlled or a.role != "controller"]
        mergers = range(self.mergers, self.most_mergers)
        others = [Address("merger", i) for i in mergers]
        joining = [Address("dispatcher", i) for i in range(self.dispatchers, self.most_dispatchers)]
        return [*others, *(Address("worker", i) for i in more), *found, *joining]

    @property
    def clock_us(self) -> Callable[[], int]:
        return lambda: 0

    @property
    def cpu_us(self) -> Callable[[], int]:
        return lambda: 0

    def new_index(self, grid: Grid, parts: Parts | None = None) -> Index:
        return cast("Index", Poisonable(super().new_index(grid, parts), self.poison))

    def merger(self, index: int, log: Log) -> MergerMachine:
        return MergerMachine(
            index=index,
            dispatchers=self.dispatchers,
            mergers=self.mergers,
            log=log,
            session_quota_bytes=self.session_quota,
            chapter_bytes=self.chapter_bytes,
            link_bytes=2_000,
        )


class Poisonable:
    """An index that an object with one word kills."""

    def __init__(self, inner: Index, poison: int) -> None:
        self.inner = inner
        self._poison = np.uint64(poison)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def delete(self, handles: I64, lsns: I64) -> None:
        self.inner.delete(handles, lsns)

    def drop(self, keep: Callable[[U32, U64], Mask]) -> None:
        self.inner.drop(keep)

    def drop_shards(self, keep: Callable[[U32, U64, U64], Mask]) -> None:
        self.inner.drop_shards(keep)

    def match(
        self,
        lsn: int,
        lon: F64,
        lat: F64,
        term_off: I64,
        term: U64,
        chosen: U8 = ALL_TERMS,
        value_off: I64 = NO_ROWS,
        value: U64 = NO_VALUES,
    ) -> MatchColumns:
        if (term == self._poison).any():
            raise Poison
        return self.inner.match(lsn, lon, lat, term_off, term, chosen, value_off, value)


class Cluster:
    """All processes, by endpoint; `current` of each address. `story` is what happened."""

    def __init__(self, seed: str, topology: SimTopology) -> None:
        self.seed = seed
        self.topology = topology
        self.clock = Clock()
        self.network = Network(self.clock, seed, self._deliver)
        self.ledger = Ledger(random.Random(f"{seed} ledger"))
        self.ledger.now_ms = partial(self.clock.wall_ms, "actors")
        self.disks: dict[Address, SimDisk] = {}
        self.current: dict[Address, Process] = {}
        self.processes: dict[str, Process] = {}
        self.violations: list[str] = []
        self.story: list[tuple[int, str]] = []
        self.controllers: list[ControllerMachine] = []
        self.refused: list[str] = []  # why the service did not start
        self.accept_loss = False  # from then on
        self.resumed = 0  # workers that went on from a snapshot
        self._peers: dict[Address, ActorIncarnation] = {}
        self._generation = 0
        self._noticed: dict[Address, int] = {}  # when a death is seen, and not before
        self._burials: set[Address] = set()
        self._ends = random.Random(f"{seed} ends")

    # --- for everyone ------------------------------------------------------------------

    def tell(self, what: str) -> None:
        self.story.append((self.clock.now, what))

    def wrong(self, what: str) -> None:
        self.tell(f"VIOLATION: {what}")
        self.violations.append(what)

    def ended(self, process: Process, why: str) -> None:
        """A process is no more."""
        if process.over:
            return
        self.tell(f"{process.name} ended: {why}")
        process.over = True
        process.serves = False
        broken, process.broken = process.broken, []
        for call in broken:
            call(f"{process.name} has ended")
        for other in self.of("dispatcher"):
            if other.started and self._ends.random() < 0.5:  # the link's end is noticed at once
                gone = partial(other.run, partial(other.shell.lost, process.address))
                self.clock.after(self._ends.randrange(50), other.do, gone)
        if self.current.get(process.address) is process:
            delay = process.rng.randint(200, 900)
            self._noticed[process.address] = self.clock.now + delay

    def disk(self, address: Address) -> SimDisk:
        if address not in self.disks:
            self.disks[address] = SimDisk(random.Random(f"{self.seed} {address}"))
        return self.disks[address]

    def of(self, role: str) -> list[Process]:
        """The present ones."""
        return [p for a, p in self.current.items() if a.role == role]

    # --- faults ------------------------------------------------------------------------

    def crash(self, address: Address, power: bool) -> None:
        """End the present incarnation; with its machine, or the process alone."""
        process = self.current[address]
        disk = self.disk(address)
        disk.crash() if power else disk.kill()
        disk.fail_sync = False
        self.ended(process, "the power was cut" if power else "killed")

    def pause(self, address: Address, ms: int, killable: bool) -> None:
        """It stops for a while; its lease runs out meanwhile, or it does not."""
        process = self.current[address]
        if process.over or process.paused:
            return
        process.paused, process.killable = True, killable
        process.shell.lease = self.clock.monotonic() + process.rng.uniform(0.2, 1) * LEASE_MS / 1000
        self.clock.after(ms, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.over:
            return
        self.tell(f"{process.name} wakes up")
        if not process.given_up:
            process.shell.lease = float("inf")
        process.wake()

    def isolate(self, address: Address, ms: int, lost: bool) -> None:
        """Nobody reaches it, and nobody can kill it; clients may."""
        process = self.current[address]
        if process.over or process.paused:
            return
        process.killable = False
        process.shell.lease = self.clock.monotonic() + process.rng.uniform(0.2, 1) * LEASE_MS / 1000
        self.network.cuts.append(Cut(address, None, self.clock.now + ms, lost))
        self.clock.after(ms, self._reached, process)

    def _reached(self, process: Process) -> None:
        process.killable = True
        if not process.given_up:
            process.shell.lease = float("inf")
        else:
            self.clock.after(process.rng.randint(0, 1500), self.ended, process, "found and killed")

    def _power_cut(self, address: Address) -> None:
        """In the middle of a write: also of one that a zombie makes."""
        for process in self.processes.values():
            if process.address == address:
                self.ended(process, "the power was cut")
        self.crash(address, power=True)

    # --- starting ------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the whole service, and watch over it."""
        self.clock.spawn(self._run(self._generation))

    def end(self, power: bool, ms: int) -> None:
        """Everything goes down, for so long."""
        self._generation += 1
        for process in list(self.processes.values()):
            self.ended(process, "the power was cut" if power else "everything stops")
        for disk in self.disks.values():
            disk.crash() if power else disk.kill()
            disk.fail_sync = False
        self.clock.after(ms, self._again, self._generation)

    def _again(self, generation: int) -> None:
        if generation == self._generation:
            self.begin()

    def _run(self, generation: int) -> Task:
        self.current.clear()
        self._peers.clear()
        self._burials.clear()
        while not self._start():
            yield RETRY_MS
            if generation != self._generation:
                return
        while True:
            yield 50
            if generation != self._generation:
                return
            for address in self._dead():
                self._burials.add(address)
                self.clock.spawn(self._bury(address, generation))

    def _bury(self, address: Address, generation: int) -> Task:
        for step in self._replace(address):
            yield step
            if generation != self._generation:
                return
        self._burials.discard(address)

    def _start(self) -> bool:
        made: list[Process] = []
        try:
            made.append(self._make(SEQUENCER, 0, first=True))
            others = [a for a in self.topology.addresses() if a != SEQUENCER]
            sequencer = made[0].shell
            assert isinstance(sequencer, SequencerShell)
            epochs = sequencer.admit(others)
            made += [self._make(a, e) for a, e in zip(others, epochs, strict=True)]
        except (Unavailable, PowerCut) as error:
            self.tell(f"the service does not start: {error}")
            for disk in self.disks.values():
                disk.kill()
            return False
        except DataDirectoryError as error:
            self.tell(f"the service refuses to start: {error}")
            self.refused.append(str(error))
            self.accept_loss = True
            for disk in self.disks.values():
                disk.kill()
            return False
        for process in made:
            self.current[process.address] = process
            self._bind(process)
        for process in made:
            process.shell.connect(self._peers)
        for process in made:
            process.start()
        return True

    def _dead(self) -> list[Address]:
        found = []
        for address, process in self.current.items():
            if address in self._burials:
                continue
            if process.over:
                if self.clock.now >= self._noticed[address]:
                    found.append(address)
            elif process.shell.lapsed:
                found.append(address)
        return found

    def _replace(self, address: Address) -> Task:
        """See RayService._replace_actor: on any failure it is tried again later."""
        old = self.current[address]
        old.given_up = True
        if old.killable:
            self.ended(old, "its lease has run out, it is killed")
        epoch = 0
        if address != SEQUENCER:
            sequencer = self.current[SEQUENCER]
            shell = sequencer.shell
            assert isinstance(shell, SequencerShell)
            if sequencer.over or sequencer.paused or not sequencer.killable:
                return
            try:
                if address.role == "dispatcher":
                    if not sequencer.run(lambda: shell.fence(address.index)):
                        return
                    yield 5
                    if sequencer.over or sequencer.paused:
                        return  # type: ignore[unreachable]
                [epoch] = shell.admit([address])
            except Unavailable:
                return
            yield 5
        disk = self.disk(address)
        disk.kill()
        disk.fail_sync = False
        try:
            process = self._make(address, epoch)
        except (Unavailable, PowerCut) as error:
            self.tell(f"{address.role}-{address.index} does not start: {error}")
            disk.kill()
            self._noticed[address] = self.clock.now + RETRY_MS
            return
        self.tell(f"{process.name} starts")
        self.current[address] = process
        yield 5
        if process.over:
            return
        self._bind(process)
        process.shell.connect(self._peers)
        incarnation = self._peers[address]
        for other in self.current.values():
            if other is not process:
                delay = other.rng.randrange(30)
                self.clock.after(delay, other.tell, {address: incarnation})
        yield 40
        if not process.over:
            process.start()

    def _bind(self, process: Process) -> None:
        incarnation = process.shell.bind(Path())
        self._peers[process.address] = incarnation
        self.processes[incarnation.endpoint] = process

    def _make(self, address: Address, epoch: int, first: bool = False) -> Process:
        shell: ActorShell
        logs = _Logs(self)
        place: Any = _Place(self)
        match address.role:
            case "sequencer":
                shell = SequencerShell(address, place, self.topology, first)
                if first:
                    shell.pair_logs(logs, self.accept_loss)  # type: ignore[arg-type]
                shell.run_actors("worker", self.topology.most_workers)
                dispatchers = max(self.topology.most_dispatchers, self.topology.dispatchers)
                shell.run_actors("dispatcher", dispatchers)
                shell.run_actors("merger", max(self.topology.most_mergers, self.topology.mergers))
            case "worker":
                policy = SnapshotPolicy(_Place(self), 1, self.topology.snapshot_s)  # type: ignore[arg-type]
                shell = WorkerShell(address, epoch, self.topology, policy)
                if (lsn := shell.machine.applied) > 0:
                    self.tell(f"{shell.name}.{epoch} goes on from a snapshot at {lsn}")
                    self.resumed += 1
            case "merger":
                shell = MergerShell(address, epoch, self.topology, logs)  # type: ignore[arg-type]
            case "controller":
                shell = ControllerShell(address, epoch, self.topology)
                self.controllers.append(shell.machine)
            case _:
                shell = DispatcherShell(address, epoch, self.topology, logs, 1)  # type: ignore[arg-type]
        process = Process(self, shell, self.seed, lambda: self._power_cut(address))
        self.made(process)
        return process

    def made(self, process: Process) -> None:
        """A process was made; for those who watch."""

    def _deliver(self, endpoint: str, message: list[bytes]) -> None:
        if (process := self.processes.get(endpoint)) is not None:
            process.take(message)


class _Place:
    """Stands for a data directory."""

    caveat = ""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find_single_copy(self) -> str:
        return "queries, objects and matches: a disk of the simulator"

    def open_ledger(self, _analysis: str, *, again: bool) -> Held:
        return self._cluster.ledger.open(compact=not again)

    def open_snapshots(self, name: str) -> SnapshotStore:
        role, _, index = name.rpartition("-")
        return SnapshotStore(Path(name), self._cluster.disk(Address(role, int(index))))  # type: ignore[arg-type]


class _Logs:
    """Stands for cluster.logs.Logs: each log lies on the disk of its actor."""

    place = "the simulated directory"
    identified, restored = True, False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        actors = [a for a in cluster.topology.addresses() if a.role in ("dispatcher", "merger")]
        self._of = {name_of(address): address for address in actors}

    def open(self, address: Address, again: bool = True) -> Log:
        disk = self._cluster.disk(address)
        return SegmentLog.open(_folder(address), disk, self._cluster.topology.segment_bytes)

    def names(self) -> list[str]:
        return [n for n, a in self._of.items() if self._cluster.disk(a).holds(_folder(a))]

    def identity(self, name: str) -> LogIdentity | None:
        address = self._of[name]
        return read_identity(_folder(address), self._cluster.disk(address))

    def identify(self, name: str, identity: LogIdentity, _log: Log) -> None:
        address = self._of[name]
        write_identity(_folder(address), identity, self._cluster.disk(address))

    def check(self, _topology: Topology, _notes: object) -> None:
        """The shape never changes."""

    def recorded_dispatchers(self) -> str | None:
        return self._cluster.ledger.dispatchers or None

    def forget_restored(self) -> None:
        """It never is."""


def _folder(address: Address) -> Path:
    return Path(f"{address.role}-{address.index}")
