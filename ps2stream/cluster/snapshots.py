"""The times at which a worker's snapshots are made, and the threads that make them.

Another thread makes the copy while the machine's goes on matching; updates wait for it. Writing
takes longer, and nothing waits for that.
"""

from __future__ import annotations

import logging
import mmap
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import U8, Array
from ps2stream.store.places import StoragePlace
from ps2stream.store.snapshots import SnapshotKey, SnapshotStore

if TYPE_CHECKING:  # actors without an index import this module, too
    from ps2stream.workers.index import SavedIndex
    from ps2stream.workers.machine import WorkerMachine

log = logging.getLogger("ps2stream.cluster")
WORTH = 10_000  # updates since the last snapshot, from which on one is worthwhile
WORTH_OF_LIVE = 0.1  # the same as a share of the stored queries
WORTH_AT_THE_END = 0.01
_MORE = 1 << 16  # bytes


class SnapshotPolicy(NamedTuple):
    """The policy of snapshots: those of the ledger `identity` are stored in `place`, one in
    `period_s` seconds at most; none if that is 0."""

    place: StoragePlace | None = None
    identity: int = 0
    period_s: float = 0.0

    def open(self, name: str) -> SnapshotStore | None:
        """Opens the snapshots of an actor; None if there are none to make."""
        if self.place is None or not self.period_s:
            return None
        try:
            return self.place.open_snapshots(name)
        except (DataDirectoryError, OSError) as error:
            log.warning("%s writes no snapshots: %s", name, error)
            return None


NO_SNAPSHOTS = SnapshotPolicy()


class SnapshotSaver:
    """Saves snapshots of the worker `index`, whose incarnation is `epoch`, in this `layout`.

    `prepare`, `copy` and `write` are for a thread of its own, the rest for the machine's. That
    sets `wanted` when it is time; the other then touches as much memory as is needed, which takes
    longer than the copy; then the machine is frozen, and thawed once there is a copy.
    """

    def __init__(
        self, policy: SnapshotPolicy, name: str, index: int, route: int, epoch: int, layout: int
    ) -> None:
        self.wanted = threading.Event()
        self.copied = threading.Event()
        self._policy = policy
        self._kept = policy.open(name)
        self._key = SnapshotKey(policy.identity, route, index, layout)
        self._stamp = f"{epoch}.{{}}"
        self._count = 0
        self._lsn = 0  # of the last snapshot
        self._due = 0.0
        # Bytes to prepare; not None while a snapshot is under way.
        self._sizes: dict[str, int] | None = None
        self._room: dict[str, U8] | None = None
        self._frozen: SavedIndex | None = None
        self._copy: SavedIndex | None = None
        self._figures: dict[str, Any] = {}

    def load(self) -> SavedIndex | None:
        """Reads the snapshot that the machine goes on from, if there is one."""
        from ps2stream.workers.index import SavedIndex

        begun = time.perf_counter()
        found = None if self._kept is None else self._kept.read(self._key)
        if found is None:
            return None
        self._lsn = found[0]
        self._figures |= {"loaded_lsn": found[0], "load_s": _seconds_since(begun)}
        return SavedIndex(*found)

    def status(self) -> dict[str, Any]:
        """Returns LSNs, seconds and bytes of the loaded snapshot and of the last written one."""
        return dict(self._figures)

    @property
    def frozen(self) -> bool:
        """True while the machine waits for `copied`."""
        return self._frozen is not None

    def look(self, machine: WorkerMachine, now: float) -> None:
        """Begins a snapshot if it is time to, or goes on with it. now: monotonic seconds."""
        if self._kept is None:
            return
        if self._sizes is None:
            self._due = self._due or now + self._policy.period_s
            if now < self._due or not self._is_worthwhile(machine, WORTH, WORTH_OF_LIVE):
                return
            if (saved := machine.freeze()) is not None:
                machine.thaw()
                self._sizes = {name: part.nbytes for name, part in saved.parts.items()}
                self.wanted.set()
        elif self._room is not None and self._frozen is None:
            self._frozen = machine.freeze()
            if self._frozen is not None:
                self.copied.clear()
                self.wanted.set()

    def thaw(self, machine: WorkerMachine, now: float) -> list[Send]:
        """Lets the machine go on once its state is copied; returns what it sends."""
        if self._frozen is None or not self.copied.is_set():
            return []
        self._frozen = None
        self._due = now + self._policy.period_s
        return machine.thaw()

    def prepare(self) -> None:
        """Allocates memory for the copy, and a little more since the machine goes on meanwhile."""
        self.wanted.clear()
        sizes = self._sizes or {}
        try:
            room = {
                name: np.empty(size + size // 16 + _MORE, np.uint8) for name, size in sizes.items()
            }
            for memory in room.values():
                memory[:: mmap.PAGESIZE] = 0
        except MemoryError:
            room = {}
        self._room = room

    def copy(self) -> None:
        """Copies the state that was frozen."""
        assert self._frozen is not None
        self.wanted.clear()
        begun = time.perf_counter()
        room, self._room = self._room or {}, None
        try:
            parts = {n: _copy_part(part, room.get(n)) for n, part in self._frozen.parts.items()}
            self._copy = self._frozen._replace(parts=parts)
        except MemoryError:
            log.warning("there is not enough memory for a snapshot")
        finally:
            self._figures["copy_s"] = _seconds_since(begun)
            self.copied.set()

    def write(self, still: Callable[[], bool]) -> None:
        """Writes the copy as a snapshot, which counts if `still` holds at the end."""
        if self._copy is not None:
            self._write_snapshot(self._copy, still)
        self._copy = self._sizes = None

    def end(self, machine: WorkerMachine, still: Callable[[], bool]) -> None:
        """Writes a last snapshot, when all threads have stopped, if it is worthwhile."""
        if self._kept is None:
            return
        if self._is_worthwhile(machine, 1, WORTH_AT_THE_END) and (saved := machine.freeze()):
            self._write_snapshot(saved, still)
        self._kept.close()

    def _is_worthwhile(self, machine: WorkerMachine, rows: int, part: float) -> bool:
        """Returns whether it would take long to fetch the updates since the last snapshot."""
        return machine.applied - self._lsn >= max(rows, part * machine.stats().live)

    def _write_snapshot(self, saved: SavedIndex, still: Callable[[], bool]) -> None:
        assert self._kept is not None
        begun = time.perf_counter()
        self._count += 1
        key, stamp = self._key._replace(serving=saved.route), self._stamp.format(self._count)
        try:
            size = self._kept.write(key, saved.lsn, saved.parts, stamp, still)
        except OSError as error:
            log.warning("a snapshot was not written: %s", error)
            return
        if size:
            self._lsn = saved.lsn
            self._figures |= {"lsn": saved.lsn, "bytes": size, "write_s": _seconds_since(begun)}


def _copy_part(part: Array, room: U8 | None) -> Array:
    if room is None or len(room) < part.nbytes:
        return np.array(part)
    out = room[: part.nbytes].view(part.dtype).reshape(part.shape)
    out[...] = part
    return out


def _seconds_since(begun: float) -> float:
    return round(time.perf_counter() - begun, 3)
