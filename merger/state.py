"""The merger machine: from workers' matches to each session's numbered deliveries.

It holds a batch until payload, all answers and all query names to the batch's LSN are
there, collapses equal pairs, numbers them by session and hands them to the sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from ps2stream.batch import I64, Frame
from ps2stream.merger.dedup import WINDOW, Pending, Window
from ps2stream.merger.fanout import by_session, entries, take
from ps2stream.merger.names import Names
from ps2stream.merger.sessions import Session
from ps2stream.messages import (
    Address,
    Attach,
    Completed,
    Credit,
    Detach,
    MatchBatch,
    MergerQueries,
    Payload,
    Send,
    Watermark,
)
from ps2stream.rows import Kind


class MergerMachine:
    """Merger `index` of `mergers`: the sessions with number % mergers == index.

    `session_quota_bytes` bounds what is held for a session, `total_bytes` for all of them;
    `window` the completed batches that are remembered a dispatcher.
    """

    def __init__(
        self,
        index: int,
        dispatchers: int,
        workers: int,
        mergers: int,
        session_quota_bytes: int = 4 << 20,
        total_bytes: int = 1 << 30,
        window: int = WINDOW,
    ) -> None:
        self._index = index
        self._workers = workers
        self._mergers = mergers
        self._quota = session_quota_bytes
        self._total = total_bytes
        self._windows = [Window(window) for _ in range(dispatchers)]
        self._watermark = 0
        self._applied = 0
        self._early: dict[int, MergerQueries] = {}  # by lsn_from: waiting for earlier ones
        self._names = Names()
        self._deleted: deque[tuple[I64, I64]] = deque()  # (lsn, handle), lsn rising
        self._sessions: dict[int, Session] = {}
        self._held = 0

    @property
    def applied(self) -> int:
        """All queries up to this LSN are known."""
        return self._applied

    @property
    def held_bytes(self) -> int:
        """Bytes kept for all sessions."""
        return self._held

    @property
    def pending(self) -> int:
        """Batches that are not complete."""
        return sum(map(len, self._windows))

    @property
    def names(self) -> int:
        """Query names kept."""
        return len(self._names)

    def on(self, frame: Frame) -> list[Send]:
        """Any message to a merger."""
        return self.on_many([frame])

    def on_many(self, frames: Iterable[Frame]) -> list[Send]:
        """Several messages in order; Completed goes out once a dispatcher, at the end."""
        out: list[Send] = []
        done: dict[int, list[int]] = {}
        for frame in frames:
            match frame:
                case MatchBatch():
                    window = self._windows[frame.dispatcher]
                    window.answer(frame)
                    out += self._process(window.ready(self._applied, frame.batch), done)
                case Payload():
                    window = self._windows[frame.dispatcher]
                    window.payload(frame)
                    out += self._process(window.ready(self._applied, frame.batch), done)
                    self._advance(frame.dispatcher, frame.watermark)
                case MergerQueries():
                    if self._learn(frame):
                        for window in self._windows:
                            out += self._process(window.ready(self._applied), done)
                    self._advance(frame.dispatcher, frame.watermark)
                case Watermark():
                    self._advance(frame.dispatcher, frame.watermark)
                case Attach() | Credit() | Detach():
                    out += self._consume(frame)
                case _:
                    raise TypeError(f"a merger takes no {type(frame).__name__}")
        for dispatcher, batches in done.items():
            completed = Completed(self._index, np.array(batches, np.int64))
            out.append(Send(Address("dispatcher", dispatcher), completed))
        return out

    def _learn(self, queries: MergerQueries) -> bool:
        """Take query names in LSN order; whether `applied` has risen."""
        if queries.lsn_from > self._applied:
            self._early[queries.lsn_from] = queries
        before = self._applied
        while (now := self._early.pop(self._applied + 1, None)) is not None:
            mine = now.session % self._mergers == self._index
            inserts = np.flatnonzero(mine & (now.kind == Kind.INSERT))
            deletes = np.flatnonzero(mine & (now.kind == Kind.DELETE))
            self._names.add(now.handle[inserts], *take((now.id_off, now.id), inserts))
            if len(deletes):
                self._deleted.append((now.lsn[deletes], now.handle[deletes]))
            self._applied = now.lsn_to
        return self._applied > before

    def _advance(self, dispatcher: int, watermark: int) -> None:
        """Forget what no later batch can need: done batches, and the names of queries whose
        delete every dispatcher's watermark has reached."""
        self._windows[dispatcher].advance(watermark)
        lowest = min(window.watermark for window in self._windows)
        while self._deleted and self._deleted[0][0][0] <= lowest:
            lsn, handle = self._deleted.popleft()
            cut = int(np.searchsorted(lsn, lowest, "right"))
            self._names.forget(handle[:cut])
            if cut < len(lsn):
                self._deleted.appendleft((lsn[cut:], handle[cut:]))

    def _process(self, ready: list[Pending], done: dict[int, list[int]]) -> list[Send]:
        out: list[Send] = []
        for pending in ready:
            payload = pending.payload
            if payload is None:
                continue
            names = self._names.snapshot()
            for number, row, handle in by_session(*pending.pairs()):
                session = self._session(number)
                before = session.held
                new = entries(payload, row, handle, session.next_seq, names)
                out += session.add(new, self._quota)
                self._account(session.held - before)
            done.setdefault(payload.dispatcher, []).append(payload.batch)
        return out

    def _consume(self, frame: Attach | Credit | Detach) -> list[Send]:
        session = self._session(frame.session)
        before = session.held
        match frame:
            case Attach():
                out = session.attach(frame)
            case Credit():
                out = session.credit(frame)
            case Detach():
                out = session.detach(frame)
        session.shrink(self._quota)
        self._account(session.held - before)
        return out

    def _session(self, number: int) -> Session:
        session = self._sessions.get(number)
        if session is None:
            session = self._sessions[number] = Session(number)
        return session

    def _account(self, change: int) -> None:
        """Keep the total bound: halve every session that holds a good share of it."""
        self._held += change
        if self._held <= self._total:
            return
        share = self._held // (2 * len(self._sessions))
        for session in self._sessions.values():
            if session.held > share:
                before = session.held
                session.shrink(before // 2)
                self._held += session.held - before
