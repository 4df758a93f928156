"""The sessions that a merger takes over from others, by a new table of sessions.

First it fetches their numbers, so that it can number their pairs from then on, then their records,
and then it has the other merger drop them. What it has done is in its match log, so that another
incarnation goes on; requests are repeated until they are answered (docs/decisions/0036).
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum

from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import (
    ArrivedRecord,
    DeadNamesRecord,
    MatchedRecord,
    MissingRecord,
    TakenOverRecord,
)
from ps2stream.merger.subscribers import MergerSessions
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.frame import column_to_bytes, decode
from ps2stream.protocol.messages.handover import (
    HandoverDropped,
    HandoverNumbers,
    HandoverRecords,
    HandoverRequest,
    HandoverStep,
    SessionsHeld,
)
from ps2stream.protocol.rows import NEVER
from ps2stream.protocol.session_map import SessionMaps

REPEAT = 10
"""Ticks after which a request that was not answered is sent again."""

TakenSessions = dict[tuple[int, int], TakenOverRecord]
"""The numbers of sessions, by the LSN of the table and the merger that they come from."""


class _Stage(IntEnum):
    """What is fetched next from a merger; see HandoverStep."""

    NUMBERS = 0
    RECORDS = 1
    DROP = 2
    DONE = 3


@dataclasses.dataclass(eq=False)
class _Source:
    """A merger that sessions come from. position: the records before it in its log are here.
    waited: ticks since the last request; it is sent at once if that is 0."""

    stage: _Stage
    position: int = 0
    waited: int = 0


class ArrivingSessions:
    """The sessions that come to merger `index`. `taken` and `arrived` are what its log says: whose
    numbers it has, and of which of them it has all records."""

    def __init__(
        self,
        index: int,
        sessions: MergerSessions,
        journal: MatchJournal,
        taken: TakenSessions,
        arrived: set[tuple[int, int]],
    ) -> None:
        self._index = index
        self._sessions = sessions
        self._journal = journal
        self._taken = taken
        self._arrived = arrived
        self._maps: SessionMaps | None = None
        self._sources: dict[int, _Source] = {}
        self._reported = 0  # ticks since the sequencer was sent the report

    @property
    def is_active(self) -> bool:
        """True while a handover is under way, so that the log must keep what it has of it."""
        return self._maps is not None or any(key not in self._arrived for key in self._taken)

    @property
    def hold_from(self) -> int:
        """The LSN from which on batches must wait: numbers of sessions are not known yet. NEVER if
        they all are."""
        lacks = any(source.stage is _Stage.NUMBERS for source in self._sources.values())
        return self._maps.now.lsn if lacks and self._maps is not None else NEVER

    def has(self, session: int) -> bool:
        """Returns whether all records of a session that the table gives this merger are here."""
        maps = self._maps
        if maps is None or maps.before is None:
            return True
        source = self._sources.get(maps.before.merger_of(session))
        return source is None or source.stage >= _Stage.DROP

    def follow(self, maps: SessionMaps) -> None:
        """Follows a change of the tables."""
        sources = maps.sources_of(self._index)
        self._maps = maps if sources else None
        self._sources = {source: _Source(self._find_stage(maps, source)) for source in sources}
        self._reported = 0
        if maps.before is None:
            for key in [key for key in self._taken if key[0] <= maps.now.lsn]:
                del self._taken[key]
                self._arrived.discard(key)

    def take_numbers(self, frame: HandoverNumbers) -> bool:
        """Takes the numbers of the sessions of one merger over; returns whether they were new."""
        source = self._find_source(frame.merger, frame.lsn, _Stage.NUMBERS)
        if source is None:
            return False
        columns = frame.session, frame.next, frame.acked, frame.lost
        record = TakenOverRecord(frame.lsn, frame.merger, *columns)
        if self._journal.append(record) is None:
            return False  # the log took nothing; it is requested again
        self._sessions.take_over(record)
        self._taken[frame.lsn, frame.merger] = record
        source.stage, source.waited = _Stage.RECORDS, 0
        return True

    def take_records(self, frame: HandoverRecords) -> bool:
        """Takes records over; returns whether those were the last of a merger."""
        source = self._find_source(frame.merger, frame.lsn, _Stage.RECORDS)
        if source is None or frame.position != source.position:
            return False
        for data in column_to_bytes(frame.record_off, frame.record):
            record = decode(data)
            assert isinstance(record, MatchedRecord | MissingRecord | DeadNamesRecord)
            position = self._journal.append(record)
            if position is None:
                return False  # a record that comes again replaces itself
            self._sessions.add_arrived(position, record)
        source.waited = 0
        if not frame.last:
            source.position = frame.end
            return False
        key = frame.lsn, frame.merger
        taken = self._taken[key]
        if not self._sessions.rewrite(taken) or self._journal.append(ArrivedRecord(*key)) is None:
            return False
        self._sessions.settle(taken.session)
        self._arrived.add(key)
        source.stage = _Stage.DROP
        return True

    def take_dropped(self, frame: HandoverDropped) -> None:
        """Notes that a merger has dropped the sessions that came from it."""
        if (source := self._find_source(frame.merger, frame.lsn, _Stage.DROP)) is not None:
            source.stage = _Stage.DONE

    def make_requests(self, knows_names: bool, tick: bool = False) -> list[Send]:
        """Returns what is to be requested or reported now. knows_names: the names of the queries of
        all sessions are known, before which no record is requested: the other merger writes those
        names to its log that the sequencer drops meanwhile."""
        if self._maps is None:
            return []
        out: list[Send] = []
        for merger, source in self._sources.items():
            if source.stage is _Stage.DONE or (source.stage and not knows_names):
                continue
            if source.waited % REPEAT == 0:
                step = HandoverStep(int(source.stage))
                lsn, position = self._maps.now.lsn, source.position
                request = HandoverRequest(self._index, lsn, step, position)
                out.append(Send(Address("merger", merger), request))
                source.waited = 1
            else:
                source.waited += tick
        if all(source.stage is _Stage.DONE for source in self._sources.values()):
            if self._reported % REPEAT == 0:
                out.append(Send(SEQUENCER, SessionsHeld(self._index, self._maps.now.lsn)))
                self._reported = 1
            else:
                self._reported += tick
        return out

    def joined(self, merger: int) -> None:
        """Handles a new incarnation of a merger, which may not have received the request."""
        if (source := self._sources.get(merger)) is not None:
            source.waited = 0

    def _find_stage(self, maps: SessionMaps, source: int) -> _Stage:
        key = maps.now.lsn, source
        if key in self._arrived:
            return _Stage.DROP
        return _Stage.RECORDS if key in self._taken else _Stage.NUMBERS

    def _find_source(self, merger: int, lsn: int, stage: _Stage) -> _Source | None:
        if self._maps is None or lsn != self._maps.now.lsn:
            return None
        source = self._sources.get(merger)
        return None if source is None or source.stage is not stage else source
