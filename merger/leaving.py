"""The sessions that a merger gives to others, from the LSN of a new table of sessions on.

The merger goes on to number the pairs of batches before that LSN. Once no such batch can come, its
numbers are final, and the mergers that gain the sessions fetch numbers and records. A session is
dropped only when the other merger has said that it holds all of it (docs/decisions/0036).
"""

from __future__ import annotations

import numpy as np

from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.moved_records import MovingRecord, take_matched, take_missing, take_names
from ps2stream.merger.records import (
    DeadNamesRecord,
    LeftRecord,
    MatchedRecord,
    MissingRecord,
)
from ps2stream.merger.subscribers import MergerSessions
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64, Array, Frame, decode, strings_to_column
from ps2stream.protocol.messages.handover import (
    HandoverDropped,
    HandoverNumbers,
    HandoverRecords,
    HandoverRequest,
    HandoverStep,
)
from ps2stream.protocol.session_map import SessionMaps

SENT_BYTES = 1 << 20
"""Bytes of records in one answer, about."""
READ_BYTES = 8 << 20
"""Bytes of the log that are read for one answer, about."""


class LeavingSessions:
    """The sessions that leave merger `index`."""

    def __init__(self, index: int, sessions: MergerSessions, journal: MatchJournal) -> None:
        self._index = index
        self._sessions = sessions
        self._journal = journal
        self._maps: SessionMaps | None = None
        self._lsn = 0  # of the table
        self._unanswered: dict[int, HandoverRequest] = {}  # by merger

    @property
    def is_active(self) -> bool:
        """True while sessions may leave, so that the log must keep their records."""
        return self._maps is not None

    def follow(self, maps: SessionMaps) -> None:
        """Follows a change of the tables."""
        leaves = maps.before is not None and bool(
            ((maps.before.table == self._index) & (maps.now.table != self._index)).any()
        )
        self._maps = maps if leaves else None
        self._lsn = maps.now.lsn
        if leaves:
            for number in self._sessions.numbers.tolist():
                if maps.now.merger_of(number) != self._index:
                    self._sessions.drop_stream(number)

    def answer(self, request: HandoverRequest, watermark: int) -> list[Send]:
        """Answers a request of the present change, or of one that is not known yet: at once, or by
        `continue_answers` when that is known and every batch of a lower LSN is complete, by the
        lowest watermark of the dispatchers."""
        maps = self._maps
        if request.lsn > self._lsn or (request.lsn == self._lsn and watermark < request.lsn):
            self._unanswered[request.merger] = request
            return []
        if maps is None or request.lsn < self._lsn:
            return []
        moved = maps.moved(self._index, request.merger)
        numbers = self._sessions.numbers
        mine = numbers[moved[numbers % len(moved)] != 0]
        match HandoverStep(request.step):
            case HandoverStep.NUMBERS:
                table = self._sessions.cursor_table(mine)
                answer: Frame | None = HandoverNumbers(self._index, request.lsn, *table)
            case HandoverStep.RECORDS:
                answer = self._read_records(request, mine, moved)
            case HandoverStep.DROP:
                answer = self._drop_sessions(request, mine)
        return [] if answer is None else [Send(Address("merger", request.merger), answer)]

    def continue_answers(self, watermark: int) -> list[Send]:
        """Answers the requests that have waited for this watermark."""
        waiting, self._unanswered = self._unanswered, {}
        return [send for request in waiting.values() for send in self.answer(request, watermark)]

    @property
    def has_waiting(self) -> bool:
        """True if requests wait for the watermark."""
        return bool(self._unanswered)

    def _drop_sessions(self, request: HandoverRequest, mine: I64) -> HandoverDropped | None:
        """Drops the sessions that the other merger holds; None if the log took nothing."""
        if len(mine):
            if self._journal.append(LeftRecord(mine)) is None:
                return None
            self._sessions.drop(mine)
        return HandoverDropped(self._index, request.lsn)

    def _read_records(
        self, request: HandoverRequest, mine: I64, moved: Array
    ) -> HandoverRecords | None:
        """Returns the next records of the log as far as they are of these sessions."""
        oldest = self._sessions.find_oldest(mine)
        if oldest is None:
            off, none = strings_to_column([])
            return HandoverRecords(
                self._index, request.lsn, request.position, request.position, 1, off, none
            )
        found: list[bytes] = []
        end, size, read, is_last = max(request.position, oldest), 0, 0, True
        for position, data in self._journal.scan(end):
            end = position
            if size >= SENT_BYTES or read >= READ_BYTES:
                is_last = False
                break
            read += len(data)
            record = self._select_part(decode(data), moved)
            if record is not None:
                found.append(record.encode())
                size += len(found[-1])
        return HandoverRecords(
            self._index, request.lsn, request.position, end, int(is_last), *strings_to_column(found)
        )

    def _select_part(self, record: Frame, moved: Array) -> MovingRecord | None:
        """Returns what a record has of the sessions that move and is still needed."""
        if not isinstance(record, MatchedRecord | MissingRecord | DeadNamesRecord):
            return None
        chosen = moved[record.session % len(moved)] != 0
        if not chosen.any():
            return None
        if isinstance(record, DeadNamesRecord):
            return take_names(record, chosen)
        is_matched = isinstance(record, MatchedRecord)
        last = record.first + np.diff(record.cut) - 1 if is_matched else record.last  # type: ignore[union-attr]
        chosen &= last > self._sessions.floors(record.session)
        if isinstance(record, MatchedRecord):
            return take_matched(record, chosen)
        return take_missing(record, chosen)
