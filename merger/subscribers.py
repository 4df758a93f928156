"""The sessions of a merger: when each is sent its pairs, and what the log must record of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ps2stream.merger import fanout
from ps2stream.merger.backlog import BacklogPlace
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.moved_records import take_matched, take_missing
from ps2stream.merger.records import (
    CursorsRecord,
    DeadNamesRecord,
    MatchedRecord,
    MissingRecord,
    TakenOverRecord,
)
from ps2stream.merger.sessions import MergerSession
from ps2stream.merger.under_way import DeliveryAllowance
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.messages.objects import MatchRelease
from ps2stream.protocol.messages.sessions import (
    DeliveryArrivals,
    StreamAttach,
    StreamCredit,
    StreamDelivery,
    StreamDetach,
)
from ps2stream.protocol.rows import NEVER
from ps2stream.protocol.session_numbers import LEAP, count_pairs
from ps2stream.protocol.wire import StringColumn

TURN = 8 << 20  # bytes that are read from the log and sent before other messages are handled
DELIVERY = 16 << 10  # the fixed cost of a delivery, as bytes that take as long to read or send
IDLE_NAMES = 8 << 10  # bytes of names' handles that a stream without credits may hold


class MergerSessions:
    """The sessions by number, whose pairs are in `journal`. `names` returns the ids of handles;
    `names_arrived` notes names that another merger has written, which are in the log now."""

    def __init__(
        self,
        sessions: dict[int, MergerSession],
        journal: MatchJournal,
        names: Callable[[I64], StringColumn],
        quota: int,
        link_bytes: int,
        names_arrived: Callable[[int, DeadNamesRecord], None],
    ) -> None:
        self._sessions = sessions
        self._journal = journal
        self._quota = quota
        self.names_of = names
        self.names_arrived = names_arrived
        self._acked: set[int] = set()  # sessions whose cursors are to be written
        self._lost: set[int] = set()  # sessions whose gaps are to be written
        self._sendable: dict[int, None] = {}  # sessions that may be sent what waits
        self._held_up: dict[int, dict[int, None]] = {}  # by dispatcher: sessions that wait for room
        self._stalled: set[int] = set()  # sessions whose streams had no credits
        self._under_way = DeliveryAllowance(link_bytes)
        self.sent = self.sent_bytes = 0  # pairs and bytes that streams were sent
        self.lost = 0  # pairs

    def __iter__(self) -> Iterator[MergerSession]:
        return iter(self._sessions.values())

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the start, and present sizes. Any thread may read them."""
        sessions = list(self._sessions.values())
        lags = [count_pairs(session.floor + 1, session.next - 1) for session in sessions]
        return {
            "sessions": len(sessions),
            "lag": sum(lags),
            "lag_most": max(lags, default=0),
            "backlog_bytes": sum(session.backlog.size for session in sessions),
            "sent": self.sent,
            "sent_bytes": self.sent_bytes,
            "lost": self.lost,
        }

    def count(self, pairs: int) -> None:
        """Adds to the number of pairs that were sent."""
        self.sent += pairs

    @property
    def busy(self) -> bool:
        """True if `serve` has more to send."""
        return bool(self._sendable)

    def record(self, position: int) -> MatchedRecord | MissingRecord:
        """Reads the record at this position, the place of a backlog."""
        found = self._journal.read(position, MatchedRecord, MissingRecord)
        assert isinstance(found, MatchedRecord | MissingRecord)
        return found

    def on(self, frame: StreamAttach | StreamCredit | StreamDetach) -> list[Send]:
        """Handles a message of the dispatcher that has a session's stream."""
        session = self._ensure_session(frame.session)
        out: list[Send] = []
        acked = session.acked
        match frame:
            case StreamAttach():
                out = session.attach(frame)
            case StreamCredit():
                out = session.credit(frame)
            case StreamDetach():
                session.detach(frame)
        if session.acked > acked:
            self._acked.add(session.number)
        if session.waiting:
            self._sendable[session.number] = None
        return out

    def drop_streams(self, dispatcher: int) -> None:
        """Removes the streams of a dispatcher that has gone."""
        for session in self:
            if session.stream is not None and session.stream.dispatcher == dispatcher:
                session.stream = None
        self._under_way.left(dispatcher)
        self._release_held_up(dispatcher)

    def drop_stream(self, number: int) -> None:
        """Removes the stream of a session that another merger delivers from now on."""
        self._sessions[number].stream = None
        for waiting in (self._sendable, *self._held_up.values()):
            waiting.pop(number, None)

    def note_arrived(self, frame: DeliveryArrivals) -> None:
        """Takes a dispatcher's report of the bytes that have arrived there."""
        self._under_way.arrived(frame.dispatcher, frame.bytes)
        self._release_held_up(frame.dispatcher)

    def tick(self) -> None:
        """Does periodic work, ten times a second."""
        for dispatcher in self._under_way.tick():
            self._release_held_up(dispatcher)

    def add(self, record: MatchedRecord, send: bool) -> list[Send] | None:
        """Numbers the pairs of a record (this sets `first`) and writes it; with `send`, sends the
        pairs of sessions for which nothing else waits. None: the log took nothing, and nothing
        was changed."""
        sessions = [self._ensure_session(number) for number in record.session.tolist()]
        record.first[:] = [session.next for session in sessions]
        position = self._journal.append(record)
        if position is None:
            return None
        out: list[Send] = []
        cut = record.cut.tolist()
        sizes = fanout.bytes_of(record)
        for session, a, b, size in zip(sessions, cut[:-1], cut[1:], sizes, strict=True):
            first = session.add(position, b - a, size)
            if session.stream is not None:
                if send and session.taken + 1 == first:
                    if self._under_way.room(session.stream.dispatcher):
                        out += self._count_sent(session.send(self, record, a, b))
                    else:
                        self._hold_up_session(session)
                if session.waiting:
                    self._stalled.add(session.number)
            if session.backlog.size > self._quota:
                # An eighth more than necessary, so that gaps are few.
                floor = session.floor
                session.lose_bytes(self._quota - self._quota // 8)
                self.lost += count_pairs(floor + 1, session.floor)
                self._lost.add(session.number)
        return out

    def miss(self, release: MatchRelease) -> bool:
        """Writes a gap of an unknown number of pairs for each session that a release names, and
        that its batch is done; returns whether the log took it. `serve` sends it."""
        sessions = [self._ensure_session(number) for number in release.missed.tolist()]
        first = np.array([session.next for session in sessions], np.int64)
        range_ = release.dispatcher, release.batch, release.end
        record = MissingRecord(release.missed, first, first + LEAP - 1, *range_)
        return self._add_missing(record, sessions, LEAP)

    def announce_shed(self, release: MatchRelease, owners: I64, owned: U8) -> bool:
        """Writes the notice of a release, that load was shed, for every session in a slot that is
        `owned`, uint8[slots]: those of `owners`, and all that are known; returns whether the log
        took it. `serve` sends it."""
        numbers = np.union1d(owners, self.numbers)
        numbers = numbers[owned[numbers % len(owned)] != 0]
        if not len(numbers):
            return True
        sessions = [self._ensure_session(number) for number in numbers.tolist()]
        first = np.array([session.next for session in sessions], np.int64)
        at = np.searchsorted(release.shed_session, numbers)
        at[at == len(release.shed_session)] = 0
        share = release.shed_share[np.where(release.shed_session[at] == numbers, at, 0)]
        range_ = release.dispatcher, release.batch, release.end
        record = MissingRecord(numbers, first, first, *range_, release.shed, share)
        return self._add_missing(record, sessions, 1)

    def _add_missing(
        self, record: MissingRecord, sessions: list[MergerSession], width: int
    ) -> bool:
        """Writes a record that takes `width` numbers of each session."""
        position = self._journal.append(record)
        if position is None:
            return False
        for session in sessions:
            session.add(position, width, 0)
            if session.waiting:
                self._sendable[session.number] = None
        return True

    def serve(self) -> list[Send]:
        """Sends what waits in the log, one session after the other, for about TURN bytes."""
        if self._lost:
            self.write_cursors()
        out: list[Send] = []
        before, sent = self._journal.fetched, 0
        while self._sendable and self._journal.fetched - before + sent < TURN:
            number = next(iter(self._sendable))
            del self._sendable[number]
            session = self._sessions[number]
            if session.stream and not self._under_way.room(session.stream.dispatcher):
                self._hold_up_session(session)
            elif sends := self._count_sent(session.pump(self)):
                out += sends
                sent += sum(
                    DELIVERY + len(f.data) for _, f in sends if isinstance(f, StreamDelivery)
                )
                if session.waiting:
                    self._sendable[number] = None
            elif session.waiting:
                self._stalled.add(number)
        return out

    def resume_waiting(self) -> None:
        """Lets the sessions go on that waited for names."""
        self._sendable |= {session.number: None for session in self if session.waiting}

    def free_memory(self) -> None:
        """Frees memory of sessions whose streams had no credits."""
        for number in self._stalled:
            self._sessions[number].free_known_handles(IDLE_NAMES)
        self._stalled.clear()

    def write_cursors(self, lasting: bool = False) -> bool:
        """Writes acknowledgements and gaps; returns whether the log took them. Gaps are announced
        only after that. Cursors alone may be lost in a crash, unless `lasting`."""
        sessions = [self._sessions[n] for n in sorted(self._acked | self._lost)]
        if not sessions:
            return True
        columns = np.array([(s.number, s.acked, s.lost) for s in sessions], np.int64).T
        if self._journal.append(CursorsRecord(*columns), lasting or bool(self._lost)) is None:
            return False
        for number in self._lost:
            session = self._sessions[number]
            session.noted = session.lost
            if session.waiting:
                self._sendable[number] = None
        self._acked.clear()
        self._lost.clear()
        return True

    def lose_before(self, position: int) -> None:
        """Counts the pairs before this position of the log as lost to sessions that need them."""
        for session in self:
            floor = session.floor
            if session.lose_before(position):
                self.lost += count_pairs(floor + 1, session.floor)
                self._lost.add(session.number)

    @property
    def oldest(self) -> int | None:
        """The first position of the log that a session needs; None without any."""
        places = (session.backlog.oldest for session in self)
        return min((place.position for place in places if place is not None), default=None)

    def last_kept_number(self, number: int) -> int:
        """Returns the number of the session's last pair if pairs of it are kept, else 0."""
        session = self._sessions.get(number)
        if session is None:
            return 0
        return session.next - 1 if session.backlog.oldest is not None or session.arriving else 0

    def floor(self, number: int) -> int:
        """Returns the number up to which no pairs of the session are kept; no pair of one that has
        left for another merger is."""
        session = self._sessions.get(number)
        return NEVER if session is None else session.floor

    def cursor_table(self, numbers: I64 | None = None) -> I64:
        """Returns int64[4, n]: number, next, acked and lost of each session, or of these."""
        chosen = self if numbers is None else map(self._sessions.__getitem__, numbers.tolist())
        rows = [(s.number, s.next, s.acked, s.lost) for s in chosen]
        return np.array(rows, np.int64).reshape(-1, 4).T

    # --- sessions that move between mergers -----------------------------------------

    @property
    def numbers(self) -> I64:
        """The numbers of the sessions, rising."""
        return np.sort(np.fromiter(self._sessions, np.int64, len(self._sessions)))

    def floors(self, numbers: I64) -> I64:
        """Returns for each session, which may be unknown, the number up to which no pair is
        needed; of an unknown one, no pair is."""
        known = self._sessions
        found = [known[n].floor if n in known else NEVER for n in numbers.tolist()]
        return np.array(found, np.int64)

    def find_oldest(self, numbers: I64) -> int | None:
        """Returns the first position of the log that one of these sessions needs."""
        places = (self._sessions[number].backlog.oldest for number in numbers.tolist())
        return min((place.position for place in places if place is not None), default=None)

    def drop(self, numbers: I64) -> None:
        """Drops these sessions, which are another merger's."""
        for number in numbers.tolist():
            self.drop_stream(number)
            del self._sessions[number]
            self._acked.discard(number)
            self._lost.discard(number)
            self._stalled.discard(number)

    def take_over(self, record: TakenOverRecord) -> None:
        """Goes on with the numbers of sessions whose records are still to come."""
        columns = record.session, record.next, record.acked, record.lost
        for number, following, acked, lost in zip(*(c.tolist() for c in columns), strict=True):
            session = self._ensure_session(number)
            session.next = max(session.next, following)
            session.acked = session.taken = max(session.acked, acked)
            session.lost = session.noted = max(session.lost, lost)
            session.arriving = session.arriving or []

    def add_arrived(
        self, position: int, record: MatchedRecord | MissingRecord | DeadNamesRecord
    ) -> None:
        """Notes a record of another merger that is in the log at this position now."""
        if isinstance(record, DeadNamesRecord):
            return self.names_arrived(position, record)
        if isinstance(record, MatchedRecord):
            last, sizes = record.first + np.diff(record.cut) - 1, fanout.bytes_of(record)
        else:
            last, sizes = record.last, [0] * len(record.last)
        spans = record.session.tolist(), record.first.tolist(), last.tolist(), sizes
        for number, first, end, size in zip(*spans, strict=True):
            arriving = self._sessions[number].arriving
            assert arriving is not None
            arriving.append(BacklogPlace(position, first, end, size))
        return None

    def rewrite(self, taken: TakenOverRecord) -> bool:
        """Writes again what the sessions of a record, of which all records have come, were numbered
        here meanwhile: the places of a backlog rise. Returns whether the log took that."""
        sessions = [self._sessions[number] for number in taken.session.tolist()]
        positions: set[int] = set()
        for session, following in zip(sessions, taken.next.tolist(), strict=True):
            last = {place.first: place for place in session.arriving or ()}
            positions.update(p.position for p in last.values() if p.first >= following)
        for position in sorted(positions):
            record = self.record(position)
            chosen = np.isin(record.session, taken.session)
            is_matched = isinstance(record, MatchedRecord)
            part = take_matched(record, chosen) if is_matched else take_missing(record, chosen)  # type: ignore[arg-type]
            assert part is not None
            if (again := self._journal.append(part)) is None:
                return False
            self.add_arrived(again, part)
        return True

    def settle(self, numbers: I64) -> None:
        """Builds the backlogs of sessions of which all records have come. Raises
        DataDirectoryError if a pair is missing."""
        for number in numbers.tolist():
            self._sessions[number].settle()

    def _hold_up_session(self, session: MergerSession) -> None:
        if session.stream is not None:
            self._held_up.setdefault(session.stream.dispatcher, {})[session.number] = None

    def _release_held_up(self, dispatcher: int) -> None:
        if self._under_way.room(dispatcher):
            self._sendable |= self._held_up.pop(dispatcher, {})

    def _count_sent(self, sends: list[Send]) -> list[Send]:
        for to, frame in sends:
            if isinstance(frame, StreamDelivery):
                self._under_way.sent(to.index, len(frame.data))
                self.sent_bytes += len(frame.data)
        return sends

    def _ensure_session(self, number: int) -> MergerSession:
        session = self._sessions.get(number)
        if session is None:
            session = self._sessions[number] = MergerSession(number, self._journal)
        return session
