"""The merger machine: from workers' matches to each session's numbered deliveries.

The machine holds a batch until it has the payload, all answers and all query names up to the
batch's LSN. Then it collapses equal pairs, numbers them by session and writes them to the match
log, from which sessions send. The messages that it returns may be sent once the log is synced:
see `unsynced`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps2stream.merger import fanout
from ps2stream.merger.ages import LogAges
from ps2stream.merger.dedup import DedupWindow
from ps2stream.merger.followed_names import FollowedNames
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.moving import MovingSessions
from ps2stream.merger.records import CheckpointRecord
from ps2stream.merger.recovery import recover
from ps2stream.merger.retention import LogRetention
from ps2stream.merger.subscribers import MergerSessions
from ps2stream.merger.watching import WatchedMatches
from ps2stream.merger.windows import DispatcherWindows
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.handover import (
    HandoverDropped,
    HandoverNumbers,
    HandoverRecords,
    HandoverRequest,
)
from ps2stream.protocol.messages.objects import (
    MatchRelease,
    ReleasesKept,
    WatermarkNotice,
)
from ps2stream.protocol.messages.sessions import (
    DeliveryArrivals,
    StreamAttach,
    StreamCredit,
    StreamDetach,
)
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerTip, MergerQueries, NamesKept
from ps2stream.protocol.messages.watch import WatchNotice
from ps2stream.protocol.ports import Log
from ps2stream.protocol.session_map import SessionMap, SessionMaps

DAY_MS = 24 * 3600 * 1000
SECOND = 10  # ticks

KeptReleases = dict[int, list[int]]  # dispatcher: numbers


class MergerTurn(NamedTuple):
    """The outcome of a turn: the messages to send, whether the log must be synced before, and
    whether a turn without messages sends more."""

    sends: list[Send]
    must_sync: bool
    is_busy: bool


class MergerMachine:
    """Merger `index` of `mergers`: the sessions with number % mergers == index, until the ledger
    has another table of sessions.

    The machine continues from what `log` holds. A session loses its oldest pairs beyond
    `session_quota_bytes` in the log, and every session those beyond `retention_bytes` or
    `retention_ms`, which are dropped by chapters of about `chapter_bytes`. At most about
    `link_bytes` of deliveries are on their way to one dispatcher. Raises DataDirectoryError when
    the log is damaged.
    """

    def __init__(
        self,
        index: int,
        dispatchers: int,
        mergers: int,
        log: Log,
        session_quota_bytes: int = 64 << 20,
        retention_bytes: int = 4 << 30,
        retention_ms: int = DAY_MS,
        chapter_bytes: int = 32 << 20,
        link_bytes: int = 8 << 20,
    ) -> None:
        self._index = index
        self._journal = MatchJournal(log)
        found = recover(log, self._journal)
        self._windows = DispatcherWindows(dispatchers, found.windows)
        self._forgotten = found.forgotten
        maps = SessionMaps(SessionMap.first(mergers))
        self._names = FollowedNames(index, maps, self._forgotten)
        self._sessions = MergerSessions(
            found.sessions, self._journal, self._names.of, session_quota_bytes, link_bytes,
            self._forgotten.add_recovered,
        )  # fmt: skip
        self._moving = MovingSessions(index, maps, self._sessions, self._journal, found)
        self._watched = WatchedMatches(lambda: self._names.updates.names)
        self._retention = LogRetention(found.chapters, retention_bytes, retention_ms, chapter_bytes)
        self._ages = LogAges(chapter for chapter in found.chapters if chapter.began)
        self._lag_ms = 0
        self._lsn = found.lsn  # up to which the names of the log's pairs go
        self._was_refused = False  # the log refused a batch
        self._now = 0
        self._ticks = 0

    @property
    def applied(self) -> int:
        """The LSN up to which all queries are known."""
        return self._names.applied

    @property
    def unsynced(self) -> bool:
        """True if `sync` must be called before the returned messages may be sent."""
        return self._journal.unsynced

    def sync(self) -> None:
        """Makes durable what was returned so far. Raises Unavailable if the log failed for good."""
        self._journal.sync()

    def hand_over(self) -> bool:
        """Returns whether a sync must come before the messages since the last call may be sent;
        the caller then has to sync."""
        return self._journal.hand_over()

    def end(self) -> None:
        """Writes what the sessions acknowledged since the last second, before the log is closed:
        a restart delivers none of it again."""
        self._sessions.write_cursors(lasting=True)

    @property
    def busy(self) -> bool:
        """True if `on_many` without frames sends more, as it stopped after reading a turn."""
        return self._knows_names and self._sessions.busy

    @property
    def pending(self) -> int:
        """The number of releases that wait for names, or for room in the log."""
        return self._windows.pending

    @property
    def _watermark(self) -> int:
        return self._windows.watermark

    @property
    def names(self) -> int:
        """The number of query names that are kept."""
        return len(self._names.updates.names)

    @property
    def held_bytes(self) -> int:
        """The memory that the sessions take."""
        return sum(session.held_bytes for session in self._sessions)

    @property
    def highest(self) -> int:
        """The highest number of a pair in any session."""
        return max((session.next - 1 for session in self._sessions), default=0)

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the start, and present sizes. Any thread may read them."""
        sizes = {"pending": self.pending, "names": self.names, "applied": self.applied}
        return sizes | self._sessions.counters | {"lag_ms": self._lag_ms}

    def on(self, frame: Frame) -> list[Send]:
        """Handles any message to a merger; returns what is to be sent."""
        return self.on_many([frame])

    def on_many(self, frames: Iterable[Frame]) -> list[Send]:
        """Handles several messages in order. Each dispatcher is sent one ReleasesKept, at the
        end."""
        out: list[Send] = []
        kept: KeptReleases = {}
        for frame in frames:
            match frame:
                case MatchRelease():
                    if (window := self._windows.find_sender(frame)) is not None:
                        out += self._take_release(window, frame, kept)
                        window.advance(frame.watermark, min(frame.oldest, frame.batch))
                case MergerQueries() | LedgerBatch() | LedgerTip():
                    out += self._follow_ledger(frame, kept)
                    if isinstance(frame, MergerQueries):
                        self._windows.note(frame)
                case WatermarkNotice():
                    if self._names.skip(frame.after, frame.lsn):
                        out += self._go_on(kept)
                    self._windows.note(frame, frame.oldest)
                case StreamAttach() | StreamCredit() | StreamDetach():
                    out += self._moving.on_stream(frame, self._has_all_names)
                case HandoverRequest() | HandoverNumbers() | HandoverRecords() | HandoverDropped():
                    turn = self._moving.on(frame, self._watermark, self._has_all_names)
                    out += turn.sends
                    if turn.may_process:
                        out += self._process_all(kept)
                case DeliveryArrivals():
                    self._sessions.note_arrived(frame)
                case WatchNotice():
                    self._watched.on(frame)
                case _:
                    raise TypeError(f"a merger does not accept {type(frame).__name__}")
        return out + self._finish_call(kept)

    def take_turn(self, frames: Iterable[Frame]) -> MergerTurn:
        """Handles several messages in order, and says what there is to do besides sending."""
        sends = self.on_many(frames)
        return MergerTurn(sends, self.hand_over(), self.busy)

    def joined(self, address: Address) -> list[Send]:
        """Handles a new incarnation of a peer: the streams of a former dispatcher are gone."""
        if address.role == "dispatcher":
            self._sessions.drop_streams(address.index)
        return self._moving.joined(address, self._has_all_names)

    def tick(self, now: int) -> list[Send]:
        """Does periodic work, ten times a second; now in Unix ms. Raises Unavailable if the log has
        failed for good."""
        self._now = max(self._now, now)
        self._ticks += 1
        out = self._names.tick() + self._watched.tick()
        out += self._moving.tick(self._has_all_names)
        self._sessions.tick()
        kept: KeptReleases = {}
        if self._ticks % SECOND == 0:
            if self._was_refused:
                out += self._process_all(kept)
            self._retain_chapters()
            self._lag_ms = self._ages.of(self._sessions.oldest, self._journal.end, self._now)
            out += self._forget_names()
            self._sessions.free_memory()
        return out + self._finish_call(kept)

    # --- the ledger, and sessions that move ----------------------------------

    def _follow_ledger(
        self, frame: MergerQueries | LedgerBatch | LedgerTip, kept: KeptReleases
    ) -> list[Send]:
        """Applies what the ledger says."""
        knew_names = self._knows_names
        is_more, out = self._names.on(frame)
        if is_more:
            out += self._go_on(kept)
        if self._knows_names and not knew_names:
            self._sessions.resume_waiting()
        return out

    def _go_on(self, kept: KeptReleases) -> list[Send]:
        """Does what has waited for the ledger, of which more is known."""
        out: list[Send] = []
        if self._names.maps.step != self._moving.maps.step:
            self._moving.follow(self._names.maps)
            out += self._names.follow(self._names.maps)
        out += self._process_all(kept)
        out += self._moving.open_early(self._has_all_names)
        return out + self._moving.make_requests(self._has_all_names)

    @property
    def _has_all_names(self) -> bool:
        """True if the names of the queries of all sessions are known that the tables give this
        merger."""
        return not self._names.is_fetching

    # --- batches -------------------------------------------------------------

    @property
    def _knows_names(self) -> bool:
        """True if the names of all queries in the log are known. They are not after a start, nor
        while a state of the sequencer is received."""
        return self.applied >= self._lsn

    def _take_release(
        self, window: DedupWindow, release: MatchRelease, kept: KeptReleases
    ) -> list[Send]:
        """Processes a release if that is possible now. One of a batch that is done is reported as
        kept again, as the dispatcher may not know."""
        if window.add(release):
            return self._process_ready(window, kept, release.release)
        kept.setdefault(release.dispatcher, []).append(release.release)
        return []

    def _process_all(self, kept: KeptReleases) -> list[Send]:
        self._was_refused = False
        out: list[Send] = []
        for window in self._windows:
            out += self._process_ready(window, kept)
        return out

    def _process_ready(
        self, window: DedupWindow, kept: KeptReleases, number: int | None = None
    ) -> list[Send]:
        """Records the pairs of the releases that are ready, or of one if it is."""
        out: list[Send] = []
        hold_from = self._moving.hold_from
        for release in window.ready(self.applied, number):
            if release.lsn >= hold_from or (len(release.shed) and not self._has_all_names):
                continue
            sends = self._record_pairs(window, release)
            if sends is None:
                self._was_refused = True  # a later tick tries again
                return out
            out += sends
            window.drop(release)
            kept.setdefault(release.dispatcher, []).append(release.release)
        return out

    def _record_pairs(self, window: DedupWindow, release: MatchRelease) -> list[Send] | None:
        """Writes the new pairs of a release, if there are any; returns what is to be sent, or None
        if the log took nothing."""
        if len(release.missed):
            if not self._sessions.miss(release):
                return None
            window.finish(release.batch, release.end)
            return []
        if len(release.shed):
            owned = self._moving.maps.at(release.lsn).owned_by(self._index)
            if not self._sessions.announce_shed(release, self._names.updates.owners.find(), owned):
                return None
            window.finish(release.batch, release.end)
            return []
        row, handle, session = window.find_new(release)
        sends: list[Send] = []
        if len(row):
            record = fanout.matched(release, row, handle, session, self._now)
            added = self._sessions.add(record, self._knows_names)
            if added is None:
                return None
            sends = added
            self._lsn = max(self._lsn, release.needs)
            self._watched.add(record)
            if not release.whole:
                window.tell(record.offset[record.index], record.handle)
        if release.whole:
            window.finish(release.batch, release.end)
        return sends

    def _finish_call(self, kept: KeptReleases) -> list[Send]:
        """Serves waiting sessions and reports the kept releases, at the end of a call."""
        out = self._sessions.serve() if self._knows_names else []
        out += self._moving.continue_answers(self._watermark)
        for dispatcher, releases in kept.items():
            twice = self._windows[dispatcher].collapsed
            report = ReleasesKept(self._index, np.array(releases, np.int64), twice)
            out.append(Send(Address("dispatcher", dispatcher), report))
        return out

    # --- what is kept ----------------------------------------------------------

    def _forget_names(self) -> list[Send]:
        """Drops the names that no batch can need, and reports to the sequencer that it may drop
        them too. The cursors that show which pairs need no name must be durable before."""
        if self._names.is_fetching or self._moving.is_arriving:
            return []  # names that are about to be known may be dropped by nobody
        if not self._sessions.write_cursors(lasting=True):
            return []
        kept = self._names.updates.forget(self._watermark, self._sessions.last_kept_number)
        self._forgotten.join_many(self._sessions.floor)
        return [Send(SEQUENCER, NamesKept(self._index, kept, self._names.maps.now.lsn))]

    def _retain_chapters(self) -> None:
        """Begins a chapter of the log when it is time, and drops old ones; not while sessions move,
        of which the log has more than a checkpoint says."""
        if self._moving.is_active:
            return
        end = self._journal.end
        if self._retention.is_chapter_due(end, self._now) and self._windows.can_be_described:
            position = self._journal.append(self._make_checkpoint())
            if position is not None:
                self._retention.begin_chapter(position, self._now)
        if not self._retention.has_old_chapters:
            return
        overdue = self._retention.find_expired_position(end, self._now)
        if overdue is not None:
            self._sessions.lose_before(overdue)
        oldest = self._sessions.oldest
        before = self._retention.find_trim_position(end if oldest is None else oldest)
        if before is None or not self._sessions.write_cursors():
            return
        self._journal.trim(before)
        self._retention.drop_chapters(before)
        self._forgotten.drop_before(before)

    def _make_checkpoint(self) -> CheckpointRecord:
        """Returns a record of the sessions and of the offsets that are done."""
        ranges = np.array(self._windows.done(), np.int64).reshape(-1, 3).T
        found = CheckpointRecord(self._lsn, self._now, *self._sessions.cursor_table(), *ranges)
        return dataclasses.replace(found, table=self._moving.maps.now.lsn)
