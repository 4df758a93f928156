"""Recovery of a merger's sessions and batches from its match log.

Numbers, acknowledgements and gaps only rise, and what is done stays done. So the order of the
records does not matter, and records from before a checkpoint, which a log may still have, do no
harm. Only where a session has left for another merger, what comes before does not count any more.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ps2stream.errors import DataDirectoryError
from ps2stream.merger.arriving import TakenSessions
from ps2stream.merger.backlog import BacklogPlace
from ps2stream.merger.dedup import DedupWindow
from ps2stream.merger.forgotten import ForgottenNames
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.places import FOLD, FoundPlaces
from ps2stream.merger.records import (
    ArrivedRecord,
    CheckpointRecord,
    CursorsRecord,
    DeadNamesRecord,
    LeftRecord,
    MatchedRecord,
    MissingRecord,
    PlacesRecord,
    TakenOverRecord,
)
from ps2stream.merger.retention import LogChapter
from ps2stream.merger.sessions import MergerSession
from ps2stream.protocol.frame import I64, decode
from ps2stream.protocol.ports import Log


@dataclasses.dataclass
class RecoveredState:
    """The sessions by number, the windows by dispatcher, the log's chapters, and the highest LSN
    as of which a kept pair was matched; and the sessions that were taken over from other mergers,
    and those of them of which all records have arrived."""

    sessions: dict[int, MergerSession]
    windows: dict[int, DedupWindow]
    forgotten: ForgottenNames
    chapters: list[LogChapter]
    lsn: int
    taken: TakenSessions = dataclasses.field(default_factory=dict)
    arrived: set[tuple[int, int]] = dataclasses.field(default_factory=set)


def recover(log: Log, journal: MatchJournal) -> RecoveredState:
    """Reads the log. Raises DataDirectoryError when it is damaged or lacks pairs."""
    table, places = _CursorTable(), FoundPlaces()
    windows: dict[int, DedupWindow] = defaultdict(DedupWindow)
    found = RecoveredState({}, windows, ForgottenNames(journal), [LogChapter(log.first, 0)], 0)
    for position, data in log.scan():
        match record := decode(data):
            case MatchedRecord():
                table.add(record.session, record.first + np.diff(record.cut), 0, 0)
                places.add_matched(position, record)
                window = windows[record.dispatcher]
                if record.end > record.batch:
                    window.finish(record.batch, record.end)
                elif record.end == record.batch:
                    window.tell(record.offset[record.index], record.handle)
                found.lsn = max(found.lsn, record.lsn)
                if not found.chapters[-1].began:
                    found.chapters[-1] = LogChapter(found.chapters[-1].position, record.written)
            case CursorsRecord():
                table.add(record.session, 1, record.acked, record.lost)
            case CheckpointRecord():
                table.add(record.session, record.next, record.acked, record.lost)
                ranges = (record.dispatcher, record.start, record.stop)
                for dispatcher, start, stop in zip(*(c.tolist() for c in ranges), strict=True):
                    windows[dispatcher].done.add(start, stop)
                found.lsn = max(found.lsn, record.lsn)
                if found.chapters[-1].position == position:
                    del found.chapters[-1]
                found.chapters.append(LogChapter(position, record.written))
            case MissingRecord():
                table.add(record.session, record.last + 1, 0, 0)
                places.add_missing(position, record)
                windows[record.dispatcher].finish(record.start, record.stop)
            case PlacesRecord():
                places.add_block(position, record)
            case TakenOverRecord():
                table.add(record.session, record.next, record.acked, record.lost)
                found.taken[record.lsn, record.source] = record
            case ArrivedRecord():
                found.arrived.add((record.lsn, record.source))
            case LeftRecord():
                places.drop_sessions(record.session)
                table.drop(record.session)
            case DeadNamesRecord():
                found.forgotten.add_recovered(position, record)
        if places.is_large:
            places.drop(*table.floors())
    arriving = [r.session for key, r in found.taken.items() if key not in found.arrived]
    found.sessions = _build_sessions(table, places, journal, arriving)
    return found


class _CursorTable:
    """The highest (next, acked, lost) of each session."""

    def __init__(self) -> None:
        self._parts: list[I64] = []
        self._size = 0

    def add(self, session: I64, following: I64 | int, acked: I64 | int, lost: I64 | int) -> None:
        columns = np.broadcast_arrays(session, following, acked, lost)
        self._parts.append(np.stack(columns, 1))
        self._size += len(session)
        if self._size > FOLD:
            rows = self.rows()
            self._size = min(len(rows), FOLD // 2)

    def drop(self, sessions: I64) -> None:
        """Forgets these sessions."""
        rows = self.rows()
        self._parts = [rows[~np.isin(rows[:, 0], sessions)]]

    def floors(self) -> tuple[I64, I64]:
        """Returns the sessions, rising, and for each the number up to which no pair is needed."""
        rows = self.rows()
        return rows[:, 0], np.maximum(rows[:, 2], rows[:, 3])

    def rows(self) -> I64:
        """Returns int64[n, 4]: session, next, acked and lost, sessions rising."""
        rows = np.concatenate([np.zeros((0, 4), np.int64), *self._parts])
        numbers, which = np.unique(rows[:, 0], return_inverse=True)
        out = np.zeros((len(numbers), 4), np.int64)
        np.maximum.at(out, which, rows)
        self._parts = [out]
        return out


def _build_sessions(
    table: _CursorTable, places: FoundPlaces, journal: MatchJournal, arriving: Sequence[I64]
) -> dict[int, MergerSession]:
    """Builds the sessions with their backlogs; of those that are arriving not all pairs are here.
    Raises DataDirectoryError if a pair of another one is missing."""
    partial = set(np.concatenate([np.zeros(0, np.int64), *arriving]).tolist())
    rows = places.drop(*table.floors())
    sessions = table.rows()
    start = np.searchsorted(rows[:, 0], sessions[:, 0]).tolist()
    stop = np.searchsorted(rows[:, 0], sessions[:, 0], "right").tolist()
    out: dict[int, MergerSession] = {}
    for (number, following, acked, lost), a, b in zip(sessions.tolist(), start, stop, strict=True):
        session = out[number] = MergerSession(number, journal)
        session.next = max(following, acked + 1, lost + 1)
        session.acked = session.taken = acked
        session.lost = session.noted = lost
        mine = rows[a:b, 1:]
        if number in partial:
            session.arriving = [BacklogPlace(*row) for row in mine.tolist()]
            continue
        first = np.append(mine[:, 1], session.next)
        reached = np.append(session.floor, mine[:, 2]) + 1
        missing = np.flatnonzero(first > reached)
        if len(missing):
            pair = int(reached[missing[0]])
            raise DataDirectoryError(f"the match log has lost pair {pair} of session {number}")
        session.backlog.restore(places.fold_blocks(number, mine))
    return out
