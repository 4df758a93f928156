"""The ledger of the simulator: the twin in memory, with owners, failures and a memory of all
that it was ever told."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ps2stream.errors import StoreFailed
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange, LogNote
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.store.compaction import compact_log
from ps2stream.store.memory import MemoryStore


class Ledger(MemoryStore):
    """What is on the disk. A process works on it through `open`, until the next does.

    failing: commits fail, and nobody knows whether they count. history: every batch that was
    ever committed. broken: what no ledger may be asked to do.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.failing = False
        self.history: list[QueryRows] = []
        self.times: list[int] = []  # of each, by the clock of the sequencer
        self.now_ms: Callable[[], int] = lambda: 0
        self.broken: list[str] = []
        self.plan = ""  # JSON of the one that objects are routed by, once a move changed it
        self.mergers = 0  # how many there are, once a change was recorded
        self.dispatchers = ""  # what a change noted of the number of dispatchers
        self._rng = rng
        self._answered: set[tuple[int, int, int]] = set()
        self._requests_done: set[tuple[str, str]] = set()
        self.requests_at: dict[int, tuple[str, str]] = {}  # by LSN: id and request id
        self._owner: object = None

    def open(self, compact: bool) -> Held:
        """Take it over; the drive works again."""
        self.failing = False
        if compact:
            self._compact()
        self._owner = held = Held(self)
        return held

    def check(self, owner: object) -> None:
        if owner is not self._owner:
            raise StoreFailed("the ledger takes nothing: it failed, or another has taken it over")

    def commit(self, change: LedgerChange) -> None:
        with self._write():
            self._watch(change)
            super().commit(change)

    def replace(self, batch: LedgerBatch) -> None:
        with self._write():
            super().replace(batch)

    @contextlib.contextmanager
    def _write(self) -> Iterator[None]:
        if self.failing:
            self._owner = None
            if self._rng.random() < 0.5:
                raise StoreFailed("an I/O error, before anything was written")
        yield
        if self.failing:
            raise StoreFailed("an I/O error, after all was written")

    def _watch(self, change: LedgerChange) -> None:
        self._check_writable()
        if change.batch is not None:
            self.history.append(QueryRows.decode(change.batch.rows.data))
            self.times.append(self.now_ms())
        self.plan = change.plan or self.plan
        self.dispatchers = change.dispatchers or self.dispatchers
        self.mergers = change.mergers or self.mergers
        for answer in change.answers:
            if answer[:3] in self._answered:
                self.broken.append(f"the update request {answer[:3]} was done twice")
            self._answered.add(answer[:3])
        for number, name in change.sessions:
            if self._sessions.get(number, name) != name:
                self.broken.append(f"session number {number} was given twice")
        if (seen := change.requests) is not None:
            ids = column_to_strings(seen.id_off, seen.id)
            asked = column_to_strings(seen.request_off, seen.request)
            for key, lsn in zip(zip(ids, asked, strict=True), seen.lsn.tolist(), strict=True):
                if key in self._requests_done:
                    self.broken.append(f"the update {key} was done twice")
                self._requests_done.add(key)
                self.requests_at[lsn] = key

    def _compact(self) -> None:
        """As the embedded ledger does when nobody follows it."""
        gone = [np.zeros(0, np.int64)]
        for batch in self.replay():
            rows = QueryRows.decode(batch.rows.data)
            gone.append(
                rows.handle[(rows.kind == UpdateKind.DELETE) & (rows.lsn <= self.watermark)]
            )
        handles = np.sort(np.concatenate(gone))
        if len(handles):
            log = map(LedgerBatch.decode, self._log)
            self._log = [batch.encode() for batch in compact_log(log, handles)]


class Held:
    """A Store: the ledger in the hands of one process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def epoch(self, role: str, index: int) -> int:
        self._ledger.check(self)
        return self._ledger.epoch(role, index)

    def note_logs(self, notes: Mapping[str, LogNote]) -> None:
        self._ledger.check(self)
        self._ledger.note_logs(notes)

    def commit(self, change: LedgerChange) -> None:
        self._ledger.check(self)
        self._ledger.commit(change)

    def replace(self, batch: LedgerBatch) -> None:
        self._ledger.check(self)
        self._ledger.replace(batch)
