"""The object log of a dispatcher: the accepted objects, how far they are complete, and the
publications of producers that repeat (docs/decisions/0015)."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ps2stream.dispatcher.gateway import PublicationIdentity
from ps2stream.dispatcher.producers import ProducerWindows
from ps2stream.dispatcher.valid_log import ValidityLog
from ps2stream.dispatcher.valid_objects import ValidObjects
from ps2stream.language.analyzer import Analyzer
from ps2stream.protocol.frame import decode, strings_to_column
from ps2stream.protocol.id_sets import IdSet
from ps2stream.protocol.log_records import (
    ForgottenRecord,
    IdentifiedRecord,
    ObjectRecord,
    ProducerRecord,
    ProgressRecord,
    QuarantineRecord,
    RetroRecord,
    SplitRecord,
    ValidityRecord,
    ValidObjectsRecord,
    WithdrawalRecord,
)
from ps2stream.protocol.ports import Log
from ps2stream.protocol.rows import ObjectRows

LEAP = 1 << 30
"""The number of offsets that are reserved at a time."""
WINDOWS_BYTES = 8 << 20
"""Growth of the log after which the windows of producers are written again, so that what is before
may be trimmed; four times their size, if that is more."""


class ObjectLog:
    """Batches with offset and LSN in a `Log`. Nothing is durable before `log.sync()`.

    `offset` is above every offset that was ever used, also by objects that were not logged:
    offsets are reserved before use. `windows` are those of `partition`, this dispatcher. `settle`
    has the archive take in soon what is before a position; returns whether it has, or cannot now.
    """

    def __init__(
        self, log: Log, partition: int = 0, settle: Callable[[int], bool] = lambda _: True
    ) -> None:
        self.log = log
        self.settle = settle
        self.windows = ProducerWindows()
        self.validity = ValidityLog(log)
        self.joined_at = 0  # the LSN at which the dispatcher joined last, if it had left before
        self._partition = partition
        # The log is not trimmed beyond here, where the records begin that the windows come from.
        self._windows_at: int | None = None
        self._windows_bytes = 0
        self._at: deque[tuple[int, int]] = deque()  # offset and position of each batch
        self._oldest = self._reserved = 0
        self._spare: tuple[int, int] | None = None  # once synced to this end, trim to here
        self._read: list[ObjectRecord] = []
        self._splits: list[int] = []
        self._dead: set[int] = set()
        for position, data in log.scan():
            match decode(data):
                case ObjectRecord() as record:
                    self._at.append((record.batch, position))
                    self._read.append(record)
                    self.validity.read_objects(position, record)
                case IdentifiedRecord() as found:
                    self._at.append((found.batch, position))
                    self._read.append(ObjectRecord(found.batch, found.lsn, found.rows))
                    self.validity.read_objects(position, self._read[-1])
                    self._keep_windows_from(position)
                    self.windows.add_batch(found, partition)
                case ProducerRecord() as window:
                    self._keep_windows_from(position)
                    self.windows.merge(window)
                case ForgottenRecord(lsn=joined):
                    if joined > self.joined_at:  # else it was written again, with the windows
                        self._forget_windows(joined, position)
                case ProgressRecord(batch=batch, below=below):
                    self._oldest = max(self._oldest, batch)
                    self._reserved = max(self._reserved, below)
                case SplitRecord(at=at):
                    self._splits.append(at)
                case QuarantineRecord(offset=offset):
                    self._dead.add(offset)
                case RetroRecord() as matches:
                    self._at.append((matches.batch, position))
                    self.validity.read(position, matches)
                case (ValidObjectsRecord() | ValidityRecord() | WithdrawalRecord()) as noted:
                    self.validity.read(position, noted)
        self.offset = self._reserved

    def recover(self) -> list[ObjectRecord]:
        """Returns the batches that may not be complete, in the order of their offsets, split as
        they were last sent and without quarantined objects. They have no terms: see
        `analyse_again`."""
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

    def recover_found(self) -> list[RetroRecord]:
        """Returns the matches of new queries with valid objects that may not be kept."""
        return self.validity.recover_found(self._oldest)

    def recover_objects(self, limit: int, analyzer: Analyzer) -> ValidObjects:
        """Returns the objects that may still be valid, at most about `limit` bytes."""
        return self.validity.recover_objects(limit, analyzer, self._dead)

    def append(self, batch: int, lsn: int, rows: ObjectRows) -> int:
        """Appends a batch. It is durable once the log is synced up to the returned position. Raises
        Unavailable, with nothing appended, if the disk is full."""
        position = self.log.append(ObjectRecord(batch, lsn, column(rows.without_terms())).encode())
        self._note_position(batch, position, rows)
        return position + 1  # any end beyond the record's first byte is behind all of it

    def append_identified(
        self,
        batch: int,
        lsn: int,
        rows: ObjectRows,
        parts: Sequence[tuple[PublicationIdentity, int]],
        now: float,
    ) -> int:
        """Appends a batch of publications with these identities and numbers of rows, like `append`,
        and remembers them, `now` in monotonic seconds."""
        record = IdentifiedRecord(
            batch,
            lsn,
            column(rows.without_terms()),
            np.array([count for _, count in parts], np.int64),
            np.array([identity.seq for identity, _ in parts], np.uint64),
            *strings_to_column([identity.producer for identity, _ in parts]),
            np.frombuffer(b"".join(identity.digest for identity, _ in parts), np.uint64),
        )
        position = self.log.append(record.encode())
        self._note_position(batch, position, rows)
        self._keep_windows_from(position)
        self.windows.add_batch(record, self._partition, now)
        return position + 1

    def append_window(self, record: ProducerRecord, now: float) -> None:
        """Appends a window that another dispatcher had, and remembers it, `now` in monotonic
        seconds. Raises Unavailable."""
        self._keep_windows_from(self.log.append(record.encode()))
        self.windows.merge(record, now)

    def forget_windows(self, lsn: int) -> None:
        """Forgets all windows, as the dispatcher joins at this LSN: they are of the time before it
        left, if it did. Raises Unavailable."""
        self._forget_windows(lsn, self.log.append(ForgottenRecord(lsn).encode()))

    def note_departure(self, oldest: int) -> int:
        """Notes that every batch is complete, all of which are below `oldest`, and gives the valid
        objects up. Returns the end of the log from which on that is durable. Raises Unavailable."""
        self.progress(oldest)
        return self.validity.give_up()

    def append_withdrawal(self, ids: IdSet, counted: int = 0, lsn: int = 0) -> int:
        """Appends that the objects with these stored ids are withdrawn, with `counted` also those
        of dispatchers that are not there, see WithdrawalRecord. That is durable once the log is
        synced up to the returned position. Raises Unavailable."""
        column = strings_to_column(sorted(ids.ids))
        position = self.log.append(WithdrawalRecord(*column, counted, lsn).encode())
        self.validity.note_withdrawn(ids)
        return position + 1

    def append_found(self, record: RetroRecord) -> None:
        """Appends a part of the matches of new queries with valid objects. Raises Unavailable."""
        self._at.append((record.batch, self.log.append(record.encode())))

    def note(self, what: SplitRecord | QuarantineRecord) -> None:
        """Appends a record of a split or a quarantine and syncs it: it must be durable before any
        message that follows from it is sent."""
        self.log.append(what.encode())
        self.log.sync()

    def reserve(self, below: int) -> None:
        """Reserves the offsets up to `below`, durably, before any of them is used. Raises
        Unavailable."""
        if below > self._reserved:
            self.log.append(ProgressRecord(self._oldest, below + LEAP).encode())
            self.log.sync()
            self._reserved = below + LEAP

    def skip_offsets(self, below: int) -> None:
        """Skips the offsets up to `below`, durably, so that none of them is used any more. Raises
        Unavailable."""
        below = max(below, self._reserved)
        self.log.append(ProgressRecord(self._oldest, below).encode())
        self.log.sync()
        self.offset = self._reserved = below

    def progress(self, oldest: int) -> bool:
        """Notes that every batch below `oldest` is complete. Returns whether that is new and
        should be synced soon."""
        if oldest <= self._oldest:
            return False
        while len(self._at) > 1 and self._at[1][0] <= oldest:
            self._at.popleft()
        if len(self._at) == 1 and oldest > self._at[0][0]:
            self._at.popleft()
        self._write_windows()
        kept = self.validity.advance()
        position = self.log.append(ProgressRecord(oldest, self._reserved).encode())
        self._oldest = oldest
        needed = self._at[0][1] if self._at else position
        if kept is not None:
            needed = min(needed, kept)
        if self._windows_at is not None:
            needed = min(needed, self._windows_at)
        self._spare = self.log.end, needed
        return True

    def find_spare(self, end: int) -> int | None:
        """Returns the position before which nothing is needed, after the log became durable up to
        `end`, if it may be trimmed now."""
        spare = self._spare
        if spare is None or spare[0] > end:
            return None
        self._spare = None
        return spare[1]

    def _note_position(self, batch: int, position: int, rows: ObjectRows) -> None:
        self._at.append((batch, position))
        if len(rows.until):
            self.validity.keep_from(position)

    def _forget_windows(self, lsn: int, position: int) -> None:
        """Forgets all windows; the record at this position says so, and stays in the log with what
        comes behind it: another incarnation must not forget that."""
        self.joined_at = lsn
        self._windows_at = position
        self.windows.clear()

    def _keep_windows_from(self, position: int) -> None:
        if self._windows_at is None:
            self._windows_at = position

    def _write_windows(self) -> None:
        """Writes the windows again, if the log has grown enough since they were written."""
        start = self._windows_at
        if start is None:
            return
        if self.log.end - start < max(WINDOWS_BYTES, 4 * self._windows_bytes):
            return
        begin = self.log.end
        if self.joined_at:
            self.log.append(ForgottenRecord(self.joined_at).encode())
        for record in self.windows.make_records():
            self.log.append(record.encode())
        self._windows_at, self._windows_bytes = begin, self.log.end - begin


def analyse_again(record: ObjectRecord, analyzer: Analyzer) -> ObjectRecord:
    """Returns a recovered batch with the terms of its texts, which would be half of the log."""
    rows = ObjectRows.decode(record.rows.data)
    term_off, term = analyzer.analyse(rows.text_off, rows.text)
    whole = dataclasses.replace(rows, term_off=term_off, term=term)
    return dataclasses.replace(record, rows=column(whole))


def column(rows: ObjectRows) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Returns the rows as a column of a record."""
    return np.frombuffer(rows.encode(), np.uint8)
