"""What a dispatcher's object log holds of validity: the objects that are still valid, how far new
queries were matched against them, and the matches of that which may not be kept yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps2stream.dispatcher.valid_objects import ValidChunk, ValidObjects
from ps2stream.language.analyzer import Analyzer
from ps2stream.protocol.frame import column_to_bytes
from ps2stream.protocol.id_sets import IdSet
from ps2stream.protocol.log_records import (
    ObjectRecord,
    RetroRecord,
    ValidityRecord,
    ValidObjectsRecord,
    WithdrawalRecord,
)
from ps2stream.protocol.ports import Log
from ps2stream.protocol.rows import ObjectRows

REWRITE_BYTES = 8 << 20
"""Growth of the log after which the valid objects are written again, so that what is before may be
trimmed; four times their size, if that is more."""
PIECE_BYTES = 1 << 20
"""About how much of that is written in one step."""


class ValidityLog:
    """The part of an object log that concerns validity. `done` is the LSN up to which inserts with
    retro were matched, `horizon` that of ValidObjects, `left_out` the latest end of the objects of
    dispatchers that the service was started without, and of those that were given up."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.done = self.horizon = self.left_out = 0
        self.objects: ValidObjects | None = None
        # The log is not trimmed beyond here, where the first object is that may be valid.
        self.begins_at: int | None = None
        self._rewriting: Iterator[ValidChunk] | None = None
        self._rewrite_at = 0
        self._read: list[ValidChunk] = []
        # By stored id of what is withdrawn: how many chunks were read before.
        self._withdrawn: dict[bytes, int] = {}
        self._withdrawn_amid: list[IdSet] = []  # since objects began to be written again
        self._found: list[RetroRecord] = []  # whose last part is in the log
        self._parts: list[RetroRecord] = []  # of those whose last part is yet to come

    def read_objects(self, position: int, record: ObjectRecord) -> None:
        """Takes what was accepted, as the log is read."""
        rows = ObjectRows.decode(record.rows.data)
        if len(rows.until):
            n = len(rows)
            offset = np.arange(record.batch, record.batch + n)
            self._add_read(position, ValidChunk(rows, offset, np.full(n, record.lsn)))

    def read(
        self,
        position: int,
        record: ValidObjectsRecord | RetroRecord | ValidityRecord | WithdrawalRecord,
    ) -> None:
        """Takes a record of validity, as the log is read."""
        match record:
            case ValidObjectsRecord():
                rows = ObjectRows.decode(record.rows.data)
                self._add_read(position, ValidChunk(rows, record.offset, record.lsn))
            case RetroRecord():
                if record.part == 0:
                    self._parts = []
                self._parts.append(record)
            case WithdrawalRecord():
                for id in column_to_bytes(record.id_off, record.id):
                    self._withdrawn[id] = len(self._read)
            case ValidityRecord():
                if record.parts:
                    self._found += self._parts[-record.parts :]
                    self._parts = []
                self.done = max(self.done, record.done)
                self.horizon = max(self.horizon, record.horizon)
                self.left_out = max(self.left_out, record.left_out)
                if record.given_up:
                    self._read, self._withdrawn, self.begins_at = [], {}, None

    @property
    def latest_end(self) -> int:
        """The latest end of the objects that were read, and of those that were dropped."""
        ends = (int(chunk.rows.until.max()) for chunk in self._read)
        return max(self.horizon, self.left_out, *ends)

    def recover_found(self, oldest: int) -> list[RetroRecord]:
        """Returns the matches that may not be kept, which are those with an offset from `oldest`
        on."""
        found, self._found = self._found, []
        return [record for record in found if record.batch >= oldest]

    def recover_objects(self, limit: int, analyzer: Analyzer, dead: set[int]) -> ValidObjects:
        """Returns the objects that may be valid, as those of this log, without the quarantined."""
        objects = self.objects = ValidObjects(limit, self.horizon)
        self._drop_withdrawn()
        read, self._read = sorted(self._read, key=lambda chunk: int(chunk.offset[0])), []
        offsets = np.concatenate([np.zeros(0, np.int64), *(chunk.offset for chunk in read)])
        is_kept = np.zeros(len(offsets), np.bool_)
        is_kept[np.unique(offsets, return_index=True)[1]] = True  # some were written again
        is_kept &= ~np.isin(offsets, sorted(dead))
        ends = np.cumsum([0, *(len(chunk.rows) for chunk in read)]).tolist()
        for chunk, first, end in zip(read, ends[:-1], ends[1:], strict=True):
            at = np.flatnonzero(is_kept[first:end] & (chunk.rows.until > objects.horizon))
            if len(at):
                rows, offset, lsn = chunk.take(at)
                term_off, term = analyzer.analyse(rows.text_off, rows.text)
                objects.add(rows.with_terms(term_off, term, 0), offset, lsn)
        if not len(objects):
            self.begins_at = None
        return objects

    def note_withdrawn(self, ids: IdSet) -> None:
        """Notes that the objects with these stored ids are withdrawn, while valid objects are
        perhaps written again: none of them may be written behind the record of that."""
        if self._rewriting is not None:
            self._withdrawn_amid.append(ids)

    def keep_from(self, position: int) -> None:
        """Notes that a record at this position has an object that may be valid."""
        if self.begins_at is None:
            self.begins_at = position

    def note(self, done: int, horizon: int, parts: int = 0) -> int:
        """Notes that all inserts with retro up to `done` were matched, with their matches in the
        last `parts` RetroRecords; returns the end of the log from which on that is durable. Raises
        Unavailable."""
        record = ValidityRecord(done, horizon, parts, self.left_out)
        position = self._log.append(record.encode())
        self.done, self.horizon = max(self.done, done), max(self.horizon, horizon)
        return position + 1

    def give_up(self) -> int:
        """Gives all valid objects up: nothing is matched against them any more, and `left_out` says
        up to when they would have been valid. Returns the end of the log from which on that is
        durable. Raises Unavailable."""
        objects, ends = self.objects, [self.left_out]
        if objects is not None:
            ends += [objects.horizon, *(int(each.rows.until.max()) for each in objects.chunks)]
        horizon = self.horizon if objects is None else objects.horizon
        record = ValidityRecord(self.done, horizon, 0, max(ends), given_up=1)
        position = self._log.append(record.encode())
        self.left_out = max(ends)
        self.begins_at = self._rewriting = None
        if objects is not None:
            objects.clear()
        return position + 1

    def advance(self) -> int | None:
        """Does what lets the log be trimmed: writes some of the objects again if it has grown, and
        the note that must not be lost. Returns the position from which on the log is needed, None
        if nothing is. Raises Unavailable."""
        if self.objects is None:
            return None
        if not (self.done or self.left_out or self.objects.horizon or len(self.objects)):
            return None
        position = self.note(self.done, self.objects.horizon) - 1
        if not len(self.objects):
            self._rewriting, self.begins_at = None, None
        elif self._rewriting is not None or self._has_grown():
            self._write_piece()
        return position if self.begins_at is None else min(position, self.begins_at)

    def _add_read(self, position: int, chunk: ValidChunk) -> None:
        self.keep_from(position)
        at = np.flatnonzero(chunk.rows.until)
        if len(at):
            self._read.append(chunk.take(at))

    def _drop_withdrawn(self) -> None:
        """Drops the objects that were read before their withdrawal."""
        withdrawn, self._withdrawn = self._withdrawn, {}
        if not withdrawn:
            return
        ids, read = IdSet(withdrawn), []
        for number, chunk in enumerate(self._read):
            off, data = chunk.rows.id_off, chunk.rows.id
            gone = [
                row
                for row in ids.find_rows(off, data).tolist()
                if withdrawn[data[off[row] : off[row + 1]].tobytes()] > number
            ]
            kept = np.setdiff1d(np.arange(len(chunk.rows)), gone)
            if len(kept):
                read.append(chunk.take(kept) if gone else chunk)
        self._read = read

    def _has_grown(self) -> bool:
        assert self.objects is not None
        start = self._log.end if self.begins_at is None else self.begins_at
        return self._log.end - start >= max(REWRITE_BYTES, 4 * self.objects.size)

    def _write_piece(self) -> None:
        assert self.objects is not None
        if self._rewriting is None:
            self._rewriting, self._rewrite_at = self.objects.split(PIECE_BYTES), self._log.end
            self._withdrawn_amid = []
        chunk = next(self._rewriting, None)
        if chunk is None:
            self.begins_at, self._rewriting = self._rewrite_at, None
            return
        for ids in self._withdrawn_amid:
            if (left := chunk.without(ids)) is None:
                return
            chunk = left
        rows = np.frombuffer(chunk.rows.without_terms().encode(), np.uint8)
        try:
            self._log.append(ValidObjectsRecord(rows, chunk.offset, chunk.lsn).encode())
        except BaseException:
            self._rewriting = None  # it begins anew
            raise
