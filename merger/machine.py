"""The merger machine: from workers' matches to each session's numbered deliveries.

It holds a batch until payload, all answers and all query names to the batch's LSN are
there, collapses equal pairs, numbers them by session and writes them to the match log;
sessions send from there. What it returns may leave once the log is synced: `unsynced`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ps2stream.merger import fanout
from ps2stream.merger.ages import Ages
from ps2stream.merger.dedup import Window
from ps2stream.merger.journal import Journal
from ps2stream.merger.records import Checkpoint, Matched
from ps2stream.merger.recovery import recover
from ps2stream.merger.retention import Retention
from ps2stream.merger.subscribers import Subscribers
from ps2stream.merger.updates import Updates
from ps2stream.merger.watching import Watched
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import (
    Completed,
    MatchBatch,
    Partial,
    Payload,
    Watermark,
    Withdraw,
)
from ps2stream.protocol.messages.sessions import Arrived, Attach, Credit, Detach
from ps2stream.protocol.messages.updates import Applied, MergerQueries, NamesKept, Tip
from ps2stream.protocol.messages.watch import Watching
from ps2stream.protocol.ports import Log

DAY_MS = 24 * 3600 * 1000
SECOND = 10  # ticks

Done = dict[int, list[int]]  # dispatcher: batches


class MergerMachine:
    """Merger `index` of `mergers`: the sessions with number % mergers == index.

    It goes on from what `log` holds. A session loses its oldest pairs beyond
    `session_quota_bytes` in the log, all sessions theirs beyond `retention_bytes` or
    `retention_ms`; they go by chapters of about `chapter_bytes`. Of deliveries
    `link_bytes` are on their way to a dispatcher. Raises DataDirectoryError
    when the log is damaged.
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
        self._journal = Journal(log)
        found = recover(log, self._journal)
        self._windows = [found.windows[i] for i in range(dispatchers)]
        self._forgotten = found.forgotten
        self._updates = Updates(index, mergers, self._forgotten)
        self._sessions = Subscribers(
            found.sessions, self._journal, self._updates.of, session_quota_bytes, link_bytes
        )
        self._watched = Watched(lambda: self._updates.names)
        self._retention = Retention(found.chapters, retention_bytes, retention_ms, chapter_bytes)
        self._ages = Ages(chapter for chapter in found.chapters if chapter.began)
        self._lag_ms = 0
        self._lsn = found.lsn  # the highest of a batch with pairs
        self._refused = False  # the log took no batch
        self._now = 0
        self._ticks = 0

    @property
    def applied(self) -> int:
        """All queries up to this LSN are known."""
        return self._updates.applied

    @property
    def unsynced(self) -> bool:
        """Whether `sync` must come before what was returned may leave."""
        return self._journal.unsynced

    def sync(self) -> None:
        """Make durable what was returned so far. Raises Unavailable, for good."""
        self._journal.sync()

    def hand_over(self) -> bool:
        """Whether a sync must come before what was returned since the last call may leave,
        which is then the caller's to see to."""
        return self._journal.hand_over()

    @property
    def busy(self) -> bool:
        """Whether `on_many` without frames sends more: the log was read for long enough."""
        return self._named and self._sessions.busy

    @property
    def pending(self) -> int:
        """Batches that are not complete."""
        return sum(map(len, self._windows))

    @property
    def names(self) -> int:
        """Query names kept."""
        return len(self._updates.names)

    @property
    def held_bytes(self) -> int:
        """Memory that the sessions take."""
        return sum(session.held_bytes for session in self._sessions)

    @property
    def highest(self) -> int:
        """The highest number that a pair of any session was given."""
        return max((session.next - 1 for session in self._sessions), default=0)

    @property
    def backlog_bytes(self) -> int:
        """Bytes of the log that sessions have not acknowledged."""
        return sum(session.backlog.size for session in self._sessions)

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the start, and sizes of the moment. From any thread."""
        sizes = {"pending": self.pending, "names": self.names, "applied": self.applied}
        return sizes | self._sessions.counters | {"lag_ms": self._lag_ms}

    def on(self, frame: Frame) -> list[Send]:
        """Any message to a merger."""
        return self.on_many([frame])

    def on_many(self, frames: Iterable[Frame]) -> list[Send]:
        """Several messages in order; Completed goes out once a dispatcher, at the end."""
        out: list[Send] = []
        done: Done = {}
        for frame in frames:
            match frame:
                case MatchBatch():
                    window = self._windows[frame.dispatcher]
                    window.answer(frame)
                    out += self._process(window, done, frame.batch)
                case Payload():
                    out += self._payload(frame, done)
                    oldest = min(frame.oldest, frame.batch)
                    self._windows[frame.dispatcher].advance(frame.watermark, oldest)
                case MergerQueries() | Applied() | Tip():
                    named = self._named
                    if self._updates.on(frame):
                        out += self._process_all(done)
                    if self._named and not named:
                        self._sessions.wake()
                    out += self._updates.asks()
                    if isinstance(frame, MergerQueries):
                        self._windows[frame.dispatcher].advance(frame.watermark)
                case Watermark():
                    self._windows[frame.dispatcher].advance(frame.watermark)
                case Withdraw():
                    self._windows[frame.dispatcher].withdraw(frame.batch, frame.attempt)
                case Attach() | Credit() | Detach():
                    out += self._sessions.on(frame)
                case Arrived():
                    self._sessions.arrived(frame)
                case Watching():
                    self._watched.on(frame)
                case _:
                    raise TypeError(f"a merger takes no {type(frame).__name__}")
        return out + self._end(done)

    def joined(self, address: Address) -> list[Send]:
        """This peer is a new one: streams that stood at a dispatcher are gone."""
        if address.role == "dispatcher":
            self._sessions.left(address.index)
        return []

    def lost(self, address: Address) -> list[Send]:
        """This peer has died, as it seems; a mistake does no harm."""
        out: list[Send] = []
        if address.role == "worker":
            for window in self._windows:
                window.lose(address.index)
                out += self._process_part(window)
        return out

    def tick(self, now: int) -> list[Send]:
        """Periodic work, ten times a second; now in Unix ms. Raises Unavailable, for good."""
        self._now = max(self._now, now)
        self._ticks += 1
        out = self._updates.tick() + self._watched.tick()
        self._sessions.tick()
        done: Done = {}
        for window in self._windows:
            window.tick()
            out += self._process_part(window)
        if self._ticks % SECOND == 0:
            if self._refused:
                out += self._process_all(done)
            self._retain()
            self._lag_ms = self._ages.of(self._sessions.oldest, self._journal.end, self._now)
            out += self._forget()
            self._sessions.rest()
        return out + self._end(done)

    # --- batches -------------------------------------------------------------

    @property
    def _named(self) -> bool:
        """Whether the names of all that the log holds are known: not so after a start, nor
        while a state of the sequencer is received."""
        return self.applied >= self._lsn

    def _payload(self, payload: Payload, done: Done) -> list[Send]:
        window = self._windows[payload.dispatcher]
        if window.payload(payload):
            return self._process(window, done, payload.batch)
        done.setdefault(payload.dispatcher, []).append(payload.batch)
        return []

    def _process_all(self, done: Done) -> list[Send]:
        self._refused = False
        out: list[Send] = []
        for window in self._windows:
            out += self._process(window, done)
        return out

    def _process(self, window: Window, done: Done, batch: int | None = None) -> list[Send]:
        """What has become ready: of all batches, or of one."""
        out: list[Send] = []
        for payload in window.ready(self.applied, batch):
            sends, _ = self._record(window, payload)
            if sends is None:
                return out
            out += sends
            window.finish(payload.batch, payload.batch + len(payload.time))
            done.setdefault(payload.dispatcher, []).append(payload.batch)
        return out + self._process_part(window, batch)

    def _process_part(self, window: Window, batch: int | None = None) -> list[Send]:
        """What silent workers need not hold up."""
        out: list[Send] = []
        for payload in window.partial(self.applied, batch):
            sends, record = self._record(window, payload, whole=False)
            if sends is None:
                return out
            if record is not None:
                window.tell(record.offset[record.index], record.handle)
            window.wait(payload.batch)
            partial = Partial(self._index, np.array([payload.batch], np.int64))
            out += [*sends, Send(Address("dispatcher", payload.dispatcher), partial)]
        return out

    def _record(
        self, window: Window, payload: Payload, whole: bool = True
    ) -> tuple[list[Send] | None, Matched | None]:
        """Write the pairs of a batch that are new, if there are; what is to be sent then.
        None: the log took nothing."""
        row, handle, session = window.pairs(payload)
        if not len(row):
            return [], None
        record = fanout.matched(payload, row, handle, session, self._now, whole)
        sends = self._sessions.add(record, self._named)
        if sends is None:
            self._refused = True  # a later tick tries again
            return None, None
        self._lsn = max(self._lsn, payload.lsn)
        self._watched.add(record)
        return sends, record

    def _end(self, done: Done) -> list[Send]:
        """What follows on all messages of a call."""
        out = self._sessions.serve() if self._named else []
        for dispatcher, batches in done.items():
            twice = self._windows[dispatcher].collapsed
            completed = Completed(self._index, np.array(batches, np.int64), twice)
            out.append(Send(Address("dispatcher", dispatcher), completed))
        return out

    # --- what is kept ----------------------------------------------------------

    def _forget(self) -> list[Send]:
        """Names that no batch can need go, and the sequencer may let go of them too. That
        cursors say which pairs need none has to be durable before."""
        if not self._sessions.note(lasting=True):
            return []
        lowest = min(window.watermark for window in self._windows)
        kept = self._updates.forget(lowest, self._sessions.last)
        self._forgotten.tidy(self._sessions.floor)
        return [Send(Address("sequencer", 0), NamesKept(self._index, kept))]

    def _retain(self) -> None:
        """Begin a chapter of the log, let go of old ones."""
        end = self._journal.end
        # A checkpoint says nothing of batches that are told in part.
        if self._retention.due(end, self._now) and not any(w.in_part for w in self._windows):
            position = self._journal.append(self._checkpoint())
            if position is not None:
                self._retention.begin(position, self._now)
        if not self._retention.several:
            return
        overdue = self._retention.overdue(end, self._now)
        if overdue is not None:
            self._sessions.lose_before(overdue)
        oldest = self._sessions.oldest
        before = self._retention.spare(end if oldest is None else oldest)
        if before is None or not self._sessions.note():
            return
        self._journal.trim(before)
        self._retention.forget(before)
        self._forgotten.trimmed(before)

    def _checkpoint(self) -> Checkpoint:
        done = [(i, *r) for i, window in enumerate(self._windows) for r in window.done.items()]
        ranges = np.array(done, np.int64).reshape(-1, 3).T
        return Checkpoint(self._lsn, self._now, *self._sessions.table(), *ranges)
