"""Messages to a merger, and what a subscriber makes of its deliveries, for its tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ps2stream.merger.machine import MergerMachine
from ps2stream.protocol.addresses import Send, nothing
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.messages.objects import MatchRelease, ReleasesKept
from ps2stream.protocol.messages.sessions import (
    StreamAttach,
    StreamAttached,
    StreamCredit,
    StreamDelivery,
)
from ps2stream.protocol.messages.updates import (
    MergerQueries,
)
from ps2stream.protocol.rows import UpdateKind, no_offsets
from ps2stream.v1 import delivery_pb2
from tests.support.memory_log import MemoryLog

MANY = 1 << 40
Update = tuple[UpdateKind, int, int, str]  # kind, handle, session, id


def named(lsn: int, rows: Sequence[Update], watermark: int = 0, dispatcher: int = 0) -> Frame:
    kind, handle, session, ids = zip(*rows, strict=True)
    return MergerQueries(
        lsn,
        lsn + len(rows) - 1,
        dispatcher,
        watermark,
        np.array(kind, np.uint8),
        np.arange(lsn, lsn + len(rows)),
        np.array(handle, np.int64),
        np.array(session, np.int64),
        *strings_to_column(ids),
    )


def inserts(lsn: int, sessions: Sequence[int]) -> Frame:
    return named(
        lsn, [(UpdateKind.INSERT, lsn + i, s, f"q{lsn + i}") for i, s in enumerate(sessions)]
    )


def release(
    batch: int,
    size: int,
    lsn: int,
    pairs: Sequence[tuple[int, int, int]],
    dispatcher: int = 0,
    watermark: int = 0,
    whole: bool = True,
    number: int | None = None,
    text: str = "té",
    oldest: int = 0,
    answers: int = 2,
    needs: int | None = None,
    opaque: Sequence[str | bytes] = (),
) -> MatchRelease:
    """Pairs (row, handle, session) of a batch, with the objects that they name. A batch that is
    released once has the same number as its release. The last update concerns the merger unless
    `needs` is given; one of several answers may hold its pairs in any order."""
    row, handle, session = np.array(pairs, np.int64).reshape(-1, 3).T
    named = np.unique(row)
    offsets = [batch + int(r) for r in named]
    return MatchRelease(
        dispatcher,
        batch,
        size,
        int(whole),
        answers,
        batch if number is None else number,
        lsn,
        lsn if needs is None else needs,
        watermark,
        oldest,
        named.astype(np.uint32),
        *strings_to_column(f"o{i}" for i in offsets),
        np.array(offsets, np.int64) * 10,
        np.array(offsets, np.float64) / 8,
        np.array(offsets, np.float64) / 16,
        *strings_to_column(f"{text}{i}" for i in offsets),
        *(strings_to_column(opaque) if opaque else (no_offsets(), nothing())),
        row.astype(np.uint32),
        handle,
        session,
    )


def attach(
    session: int,
    epoch: int = 1,
    fields: int = 0,
    batches: int = 1000,
    size: int = MANY,
    ack: int = 0,
    dispatcher: int = 0,
) -> StreamAttach:
    return StreamAttach(session, epoch, dispatcher, fields, batches, size, ack)


def credit(session: int, epoch: int, batches: int, size: int, ack: int) -> StreamCredit:
    return StreamCredit(session, epoch, 0, batches, size, ack)


@dataclasses.dataclass
class Client:
    """What a subscriber makes of its stream."""

    names: dict[int, str] = dataclasses.field(default_factory=dict)
    pairs: dict[int, tuple[str, str, int, int]] = dataclasses.field(default_factory=dict)
    batches: list[delivery_pb2.DeliverBatch] = dataclasses.field(default_factory=list)
    gaps: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    attached: list[StreamAttached] = dataclasses.field(default_factory=list)
    size: int = 0
    repeats: int = 0
    epoch: int = 0
    number: int = 0
    closed: list[int] = dataclasses.field(default_factory=list)

    def take(self, delivery: StreamDelivery) -> None:
        if delivery.closed:
            self.closed.append(delivery.epoch)
            return
        if delivery.epoch != self.epoch:  # a stream of its own names
            self.names, self.epoch, self.number = {}, delivery.epoch, 0
        self.number += 1
        assert delivery.number == self.number
        data = delivery.data.tobytes()
        self.size += len(data)
        batch = delivery_pb2.DeliverResponse.FromString(data).batch
        self.batches.append(batch)
        assert not set(batch.new_handles) & self.names.keys()
        self.names |= dict(zip(batch.new_handles, batch.new_query_ids, strict=True))
        if batch.HasField("gap"):
            assert not batch.pair_handles
            self.gaps.append((getattr(batch.gap, "from"), batch.gap.to, batch.gap.count))
            assert batch.session_seq == batch.gap.to + 1
        both = zip(batch.pair_handles, batch.pair_objects, strict=True)
        for seq, (handle, i) in enumerate(both, start=batch.session_seq):
            pair = self.names[handle], batch.object_ids[i], batch.partition, batch.object_offsets[i]
            if seq in self.pairs:
                assert self.pairs[seq] == pair
                self.repeats += 1
            assert seq in self.pairs or seq not in self.lost, "a gap that was none"
            self.pairs[seq] = pair

    @property
    def lost(self) -> set[int]:
        """Numbers in gaps that were not delivered."""
        return {n for a, b, _ in self.gaps for n in range(a, b + 1)} - self.pairs.keys()

    def gapless(self) -> bool:
        """Every number is a pair or lies in a gap, and gaps count right."""
        assert all(count == b - a + 1 for a, b, count in self.gaps)
        seen = self.lost | self.pairs.keys()
        return seen == set(range(1, len(seen) + 1))


class Rig:
    """A merger with the clients of its sessions."""

    def __init__(self, **options: int) -> None:
        self.log = MemoryLog()
        self.options = {"index": 0, "dispatchers": 1, "mergers": 1} | options
        self.machine = MergerMachine(log=self.log, **self.options)
        self.clients: dict[int, Client] = {}
        self.kept: list[tuple[int, int]] = []  # dispatcher and release
        self.others: list[Frame] = []
        self.now = 1_000_000

    def send(self, *frames: Frame) -> list[Send]:
        """These messages and what follows, after a sync."""
        return self.take(self.machine.on_many(frames))

    def tick(self, times: int = 1, ms: int = 100) -> list[Send]:
        out = []
        for _ in range(times):
            self.now += ms
            out += self.take(self.machine.tick(self.now))
        return out

    def take(self, out: list[Send]) -> list[Send]:
        while self.machine.busy:
            out += self.machine.on_many([])
        if self.machine.unsynced:
            self.machine.sync()
        for to, frame in out:
            match frame:
                case StreamDelivery():
                    self.clients.setdefault(frame.session, Client()).take(frame)
                case StreamAttached():
                    self.clients.setdefault(frame.session, Client()).attached.append(frame)
                case ReleasesKept():
                    self.kept += [(to.index, number) for number in frame.release.tolist()]
                case _:
                    self.others.append(frame)
        return out

    def restart(self, torn: int = 0) -> None:
        """The merger dies; a new one starts on what its log holds."""
        self.log = self.log.crashed(torn)
        self.machine = MergerMachine(log=self.log, **self.options)


def rig(**options: int) -> Rig:
    return Rig(**options)


def deliveries(out: list[Send]) -> list[StreamDelivery]:
    return [frame for _, frame in out if isinstance(frame, StreamDelivery)]


def fill(r: Rig, start: int, batches: int, *sessions: int, pairs: int = 2) -> None:
    """Batches from this one on, each with so many pairs for the sessions; query s is of
    session s."""
    for b in range(4 * start, 4 * (start + batches), 4):
        r.send(release(b, 4, 2, [(i, s, s) for s in sessions for i in range(pairs)]))


def three_batches(**options: int) -> Rig:
    r = rig(**options)
    r.send(inserts(1, [1, 2]), attach(1))
    for b in (0, 4, 8):
        r.send(release(b, 4, 2, [(0, 1, 1), (1, 1, 1), (1, 2, 2)]))
    return r
