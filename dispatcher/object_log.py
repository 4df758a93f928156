"""The object log of a dispatcher: what was accepted, and how far it is complete."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from ps2stream.batch import decode
from ps2stream.ports import Log
from ps2stream.records import ObjectRecord, Progress, Quarantined, Split
from ps2stream.rows import ObjectRows

LEAP = 1 << 30
"""More objects than are accepted between two notes of progress."""


class ObjectLog:
    """Batches with offset and LSN in a `Log`. Nothing is durable before `log.sync()`.

    `offset` is above every one that was ever used, also of objects that were not logged.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._at: deque[tuple[int, int]] = deque()  # offset, position of each batch
        self._oldest = self._noted = 0
        self._read: list[ObjectRecord] = []
        self._splits: list[int] = []
        self._dead: set[int] = set()
        for position, data in log.scan():
            match decode(data):
                case ObjectRecord() as record:
                    self._at.append((record.batch, position))
                    self._read.append(record)
                    self._noted = max(self._noted, record.batch)
                case Progress(batch=batch, offset=offset):
                    self._oldest = max(self._oldest, batch)
                    self._noted = max(self._noted, offset)
                case Split(at=at):
                    self._splits.append(at)
                case Quarantined(offset=offset):
                    self._dead.add(offset)
        self.offset = self._noted + LEAP if self._at or self._noted else 0

    def recover(self) -> list[ObjectRecord]:
        """What may not be complete, in the order of the offsets, in the batches that were
        sent last; without what is quarantined."""
        out: list[ObjectRecord] = []
        for record in self._read:
            rows = ObjectRows.decode(record.rows.data)
            end = record.batch + len(rows)
            if end <= self._oldest:
                continue
            cuts = {record.batch, end, *(at for at in self._splits if record.batch < at < end)}
            for dead in self._dead:
                if record.batch <= dead < end:
                    cuts |= {dead, dead + 1}
            for start, stop in pairwise(sorted(cuts)):
                if start not in self._dead and start >= self._oldest:
                    part = rows.take(np.arange(start - record.batch, stop - record.batch))
                    out.append(ObjectRecord(start, record.lsn, column(part)))
        self._read.clear()
        return out

    def append(self, batch: int, lsn: int, rows: ObjectRows) -> int:
        """The position behind the record. Raises Unavailable, with nothing taken, on a full
        disk."""
        position = self.log.append(ObjectRecord(batch, lsn, column(rows)).encode())
        self._at.append((batch, position))
        return self.log.end

    def note(self, what: Split | Quarantined) -> None:
        """Must be durable before anything that follows from it is sent."""
        self.log.append(what.encode())
        self.log.sync()

    def progress(self, oldest: int, offset: int) -> bool:
        """Every batch below `oldest` is complete, `offset` is the next; whether that is new.
        To be synced soon."""
        if (oldest, offset) <= (self._oldest, self._noted):
            return False
        self._oldest, self._noted = oldest, offset
        while len(self._at) > 1 and self._at[1][0] <= oldest:
            self._at.popleft()
        if len(self._at) == 1 and oldest > self._at[0][0]:
            self._at.popleft()
        position = self.log.append(Progress(oldest, offset).encode())
        self.log.trim(self._at[0][1] if self._at else position)
        return True


def column(rows: ObjectRows) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The rows as a column of a record."""
    return np.frombuffer(rows.encode(), np.uint8)
