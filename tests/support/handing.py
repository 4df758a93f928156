"""Two mergers between which sessions move, for tests: what they send each other, the ledger that
they fetch, and the clients of the sessions."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable

import numpy as np

from ps2stream.merger.machine import MergerMachine
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.messages.handover import SessionsHeld
from ps2stream.protocol.messages.objects import ReleasesKept, WatermarkNotice
from ps2stream.protocol.messages.sessions import StreamAttached, StreamDelivery
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerFetch, MergerQueries
from ps2stream.protocol.rows import UpdateKind, no_queries
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from tests.support.memory_log import MemoryLog
from tests.support.merging import Client, attach, release

SESSIONS = range(1, 7)
"""Query s is of session s; its insert has the LSN s."""
SWITCH = 10
"""The LSN of the new table."""


class Handing:
    """Mergers 0 and 1, of which the first has all sessions until `switch`. `lose`: which of the
    messages between mergers get lost."""

    def __init__(self) -> None:
        self.maps = SessionMaps(SessionMap.first(1))
        self.logs = [MemoryLog(), MemoryLog()]
        self.machines = [self._make(i) for i in range(2)]
        self.clients: dict[int, Client] = {}
        self.kept: set[tuple[int, int]] = set()  # merger and release
        self.held: set[int] = set()
        self.lose: Callable[[Frame], bool] = lambda _: False
        self.watermark = self.ends = 0
        self.epoch = self.now = 1
        self.offset = 0
        self.send(0, self._named(1, list(SESSIONS)))

    def _make(self, index: int) -> MergerMachine:
        return MergerMachine(index, 1, 1, self.logs[index], chapter_bytes=1 << 10)

    def _named(self, lsn: int, sessions: list[int], record: bytes = b"") -> MergerQueries:
        n = len(sessions)
        lsns = np.arange(lsn, lsn + n)
        ids = strings_to_column(f"q{s}" for s in sessions)
        return MergerQueries(
            lsn, max(lsn + n - 1, lsn), 0, self.watermark, np.full(n, UpdateKind.INSERT, np.uint8),
            lsns, lsns, np.array(sessions, np.int64), *ids, np.frombuffer(record, np.uint8),
        )  # fmt: skip

    def _state(self) -> LedgerBatch:
        n = len(SESSIONS)
        lsn = np.array(SESSIONS)
        flat = {f: np.zeros(n, np.int64) for f in ("form", "post", "shape")}
        ragged = ("term", "prog", "box", "geom", "source")
        rows = no_queries().replace(
            **flat,
            kind=np.full(n, UpdateKind.INSERT, np.uint8),
            lsn=lsn,
            handle=lsn,
            session=lsn,
            **dict(
                zip(("id_off", "id"), strings_to_column(f"q{s}" for s in SESSIONS), strict=True)
            ),
            **{f + "_off": np.zeros(n + 1, np.int64) for f in ragged},
        )
        data = np.frombuffer(rows.encode(), np.uint8)
        record = self.maps.record() if self.ends >= SWITCH else np.zeros(0, np.uint8)
        return LedgerBatch(1, self.ends, -1, 1, self.ends, data, sessions=record)

    def send(self, index: int, *frames: Frame) -> None:
        """Sends these, and carries all that follows."""
        self._carry(index, self.machines[index].on_many(frames))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 100
            for index, machine in enumerate(self.machines):
                self._carry(index, machine.tick(self.now))

    def _carry(self, index: int, sends: list[Send]) -> None:
        way = deque((index, send) for send in sends)
        while way:
            source, (to, frame) = way.popleft()
            machine = self.machines[source]
            if machine.unsynced:
                machine.sync()
            match frame:
                case StreamDelivery():
                    self.clients.setdefault(frame.session, Client()).take(frame)
                case StreamAttached():
                    self.clients.setdefault(frame.session, Client()).attached.append(frame)
                case ReleasesKept():
                    self.kept |= {(source, number) for number in frame.release.tolist()}
                case SessionsHeld():
                    self.held.add(frame.merger)
                case LedgerFetch():
                    target = self.machines[source]
                    way += ((source, each) for each in target.on(self._state()))
                case _ if to.role == "merger" and not self.lose(frame):
                    target = self.machines[to.index]
                    way += ((to.index, each) for each in target.on_many([frame]))
            while machine.busy:
                way += ((source, each) for each in machine.on_many([]))

    def publish(self, lsn: int, pairs: int = 2) -> None:
        """A batch of this LSN, with so many pairs for every session."""
        table = self.maps.at(lsn)
        for merger in range(table.mergers):
            mine = [s for s in SESSIONS if table.merger_of(s) == merger]
            found = [(i, s, s) for i in range(pairs) for s in mine]
            if found:
                frame = release(self.offset, 4, lsn, found, number=self.offset + merger)
                self.send(merger, frame)
        self.offset += 4

    def switch(self, mergers: int, lsn: int = SWITCH) -> None:
        """The ledger has another table, which all apply."""
        self.maps = SessionMaps(self.maps.now.spread(mergers, lsn), self.maps.now)
        self._announce(lsn)

    def finish(self, lsn: int) -> None:
        """The ledger says that all sessions have moved."""
        self.maps = self.maps.finished()
        self._announce(lsn)

    def _announce(self, lsn: int) -> None:
        self.ends = lsn
        for index in range(2):
            begin = self.machines[index].applied + 1
            frame = self._named(begin, [], self.maps.record().tobytes())
            self.send(index, dataclasses.replace(frame, lsn_to=lsn))

    def pass_watermark(self, lsn: int) -> None:
        """All batches of lower LSNs are complete."""
        self.watermark = lsn
        for index in range(2):
            self.send(index, WatermarkNotice(0, lsn, 0, lsn, lsn))

    def attach_all(self) -> None:
        """Every session has a stream, at its merger."""
        self.epoch += 1
        for session in SESSIONS:
            frame = attach(session, epoch=self.epoch)
            merger = self.maps.now.merger_of(session)
            self.send(merger, dataclasses.replace(frame, since=self.maps.now.lsn))

    def kill(self, index: int) -> None:
        """A merger dies, and another goes on with its log, the ledger and the streams."""
        self.logs[index] = self.logs[index].crashed(0)
        self.machines[index] = self._make(index)
        if self.ends:
            self.send(index, self._state())
        else:
            self.send(index, self._named(1, list(SESSIONS)))
        self.send(index, WatermarkNotice(0, self.watermark, 0, self.watermark, self.watermark))
        other = 1 - index
        self._carry(other, self.machines[other].joined(Address("merger", index)))

    def check(self, pairs: int) -> None:
        """Every client has exactly so many pairs, with numbers from 1 on."""
        for session in SESSIONS:
            client = self.clients[session]
            assert client.pairs.keys() == set(range(1, pairs + 1)), session
            assert len(set(client.pairs.values())) == pairs
            assert {pair[0] for pair in client.pairs.values()} == {f"q{session}"}
            assert not client.gaps
