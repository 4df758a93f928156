"""A seeded world around one merger: dispatchers, a sequencer and subscribers that do what
docs/decisions/0006 lets them do, over links that lose messages, with crashes at will. A dispatcher
sends what its workers have found in a batch whole, or in parts as they answer.

What is under test is the merger on a real SegmentLog on the simulated disk; the others are
naive. `Batch.pairs` is the truth; `World.finish` compares.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.merger.machine import MergerMachine
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame, decode, strings_to_column
from ps2stream.protocol.messages.objects import MatchRelease, ReleasesKept, WatermarkNotice
from ps2stream.protocol.messages.sessions import (
    DeliveryArrivals,
    StreamAttach,
    StreamAttached,
    StreamCredit,
    StreamDelivery,
    StreamDetach,
)
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerFetch, LedgerTip, NamesKept
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.store.segments import SegmentLog
from tests.sim.disk import SimDisk
from tests.support.merging import Client, named, release

PATH = Path("/matches")
SESSIONS, WORKERS, DISPATCHERS = 4, 3, 2
Pair = tuple[int, int, int]  # row, handle, session


@dataclasses.dataclass
class Batch:
    """An open batch: its pairs, the shares of them that workers have found and no merger has been
    sent, and the releases that are not kept."""

    dispatcher: int
    offset: int
    size: int
    lsn: int
    pairs: list[Pair]
    shares: list[list[Pair]] = dataclasses.field(default_factory=list)
    released: bool = False
    releases: dict[int, MatchRelease] = dataclasses.field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.shares and not self.releases


@dataclasses.dataclass
class Subscriber:
    """A client and the stream that its dispatcher holds for it."""

    session: int
    client: Client = dataclasses.field(default_factory=Client)
    epoch: int = 0
    dispatcher: int = 0
    number: int = 0  # of the last delivery of this stream
    batches: int = 0
    bytes: int = 0
    acked: int = 0
    since: int = 0  # what the stream was attached behind
    lossy: bool = False  # a delivery of this stream went missing


class World:
    def __init__(self, rng: random.Random, **limits: int) -> None:
        self.rng = rng
        self.limits = limits
        self.disk = SimDisk(rng)
        self.links: dict[Address, deque[bytes]] = defaultdict(deque)
        self.history: list[
            tuple[UpdateKind, int, int]
        ] = []  # kind, handle, session; LSN - 1 the index
        self.dead: dict[int, int] = {}  # handle: LSN of its delete
        self.kept = 0
        self.transfers: dict[int, list[LedgerBatch]] = {}
        self.epochs = [1] * DISPATCHERS
        self.offsets = [1 << 40] * DISPATCHERS
        self.open: dict[tuple[int, int], Batch] = {}
        self.completed: list[Batch] = []
        self.given_up: list[MatchRelease] = []  # which their dispatchers may send again
        self.releases = 0
        self.must: dict[int, set[tuple[str, str, int, int]]] = defaultdict(set)
        self.may: dict[int, set[tuple[str, str, int, int]]] = defaultdict(set)
        self.subscribers = [Subscriber(s) for s in range(SESSIONS)]
        self.streams = 0
        self.now = 1_000_000
        self.loss = 0.05
        self.crashes = 0
        self.start()

    def start(self) -> None:
        self.log = SegmentLog.open(PATH, self.disk, self.limits.pop("segment", 4_096))
        self.machine = MergerMachine(0, DISPATCHERS, 1, self.log, link_bytes=2_000, **self.limits)
        self.arrived = [0] * DISPATCHERS

    # --- links -------------------------------------------------------------------

    def post(self, sender: Address, frame: Frame) -> None:
        if self.rng.random() >= self.loss:
            self.links[sender].append(frame.encode())

    def step(self) -> None:
        """The merger takes a group of messages, each the head of some link."""
        frames = []
        for _ in range(self.rng.randint(1, 5)):
            filled = [sender for sender, link in self.links.items() if link]
            if filled:
                frames.append(decode(self.links[self.rng.choice(filled)].popleft()))
        out = self.machine.on_many(frames)
        self.leave(out)

    def tick(self) -> None:
        for _ in range(self.rng.choice([1, 10])):
            self.now += self.rng.choice([100, 100, 1_000])
            self.leave(self.machine.tick(self.now))

    def fill(self) -> None:
        """The disk is full, or is no longer."""
        self.disk.full = not self.disk.full

    def leave(self, out: list[Send]) -> None:
        """What the machine returned leaves once it is durable."""
        if self.machine.unsynced:
            self.machine.sync()
        for to, frame in out:
            if to.role == "sequencer":
                self.sequencer(frame)
            elif self.rng.random() >= self.loss:
                self.dispatcher(to.index, frame)
            elif isinstance(frame, StreamDelivery):
                self.subscribers[frame.session].lossy |= (
                    frame.epoch == self.subscribers[frame.session].epoch
                )

    # --- crashes -------------------------------------------------------------------

    def crash(self) -> None:
        """The merger dies, with the machine or alone, amid a group of messages."""
        self.crashes += 1
        frames = [decode(d) for link in self.links.values() for d in list(link)[:2]]
        out = self.machine.on_many(frames)
        if self.rng.random() < 0.5:
            self.machine.sync()  # and what it said may or may not have left
            if self.rng.random() < 0.5:
                self.leave(out)
        self.links.clear()
        if self.rng.random() < 0.5:
            self.disk.crash()
        else:
            self.disk.kill()
        self.disk.full = False
        self.start()
        for batch in list(self.open.values()):
            self.resend(batch)
        for subscriber in self.subscribers:
            if subscriber.epoch:
                self.attach(subscriber)

    def restart_dispatcher(self) -> None:
        """It finds what was open, and perhaps some of what was completed lately."""
        at = self.rng.randrange(DISPATCHERS)
        self.links[Address("dispatcher", at)].clear()
        self.given_up = [frame for frame in self.given_up if frame.dispatcher != at]
        self.epochs[at] += 1
        self.arrived[at] = 0
        self.offsets[at] = max(self.offsets[at], self.epochs[at] << 40)
        for _, frame in self.machine.joined(Address("dispatcher", at)):
            self.dispatcher(at, frame)
        again = [b for b in self.completed[-3:] if b.dispatcher == at]
        self.completed = [b for b in self.completed if b not in again]
        self.open |= {(at, batch.offset): batch for batch in again}
        for batch in sorted(self.open.values(), key=lambda b: b.offset):
            if batch.dispatcher == at:
                batch.releases.clear()
                self.share(batch)
        for subscriber in self.subscribers:
            if subscriber.dispatcher == at:
                subscriber.epoch = 0

    # --- queries -------------------------------------------------------------------

    def watermark(self, dispatcher: int) -> int:
        mine = [b.lsn for b in self.open.values() if b.dispatcher == dispatcher]
        return min(mine, default=len(self.history))

    def update(self) -> None:
        lsn = len(self.history) + 1
        live = [(h, s) for k, h, s in self.history if k == UpdateKind.INSERT and h not in self.dead]
        if live and self.rng.random() < 0.4:
            handle, session = self.rng.choice(live)
            self.dead[handle] = lsn
            self.history.append((UpdateKind.DELETE, handle, session))
        else:
            self.history.append((UpdateKind.INSERT, lsn, self.rng.randrange(SESSIONS)))
        kind, handle, session = self.history[-1]
        owner = self.rng.randrange(DISPATCHERS)
        frame = named(lsn, [(kind, handle, session, f"q{handle}")], self.watermark(owner), owner)
        self.post(Address("dispatcher", owner), frame)

    def idle(self) -> None:
        at = self.rng.randrange(DISPATCHERS)
        notice = WatermarkNotice(at, self.watermark(at), self.oldest(at))
        self.post(Address("dispatcher", at), notice)
        self.tip()

    def tip(self) -> None:
        self.post(Address("sequencer", 0), LedgerTip(len(self.history), 0))

    def sequencer(self, frame: Frame) -> None:
        match frame:
            case NamesKept():
                self.kept = max(self.kept, frame.lsn)
            case LedgerFetch():
                self.post(Address("sequencer", 0), self.fed(frame))
                self.tip()

    def fed(self, ask: LedgerFetch) -> LedgerBatch:
        """The log, or the next part of a state of two parts."""
        if ask.after and not ask.state and self.rng.random() < 0.8:
            return self.rows(range(ask.after + 1, len(self.history) + 1), 0, 0)
        for part in self.transfers.get(ask.state, []):
            if part.lsn_from == ask.after + 1:
                return part
        forgotten = min(self.kept, *(self.watermark(d) for d in range(DISPATCHERS)))
        lsns = [
            lsn
            for lsn, (_, handle, _) in enumerate(self.history, start=1)
            if self.dead.get(handle, 1 << 60) > forgotten
        ]
        number, until = len(self.transfers) + 1, len(self.history)
        half = until // 2
        first = self.rows([x for x in lsns if x <= half], number, until)
        second = self.rows([x for x in lsns if x > half], number, until)
        parts = [
            dataclasses.replace(first, lsn_from=1, lsn_to=half),
            dataclasses.replace(second, lsn_from=half + 1, lsn_to=until),
        ]
        self.transfers[number] = [p for p in parts if p.lsn_from <= p.lsn_to]
        return self.transfers[number][0]

    def rows(self, lsns: range | list[int], state: int, until: int) -> LedgerBatch:
        rows = [(*self.history[lsn - 1], lsn) for lsn in lsns]
        kind, handle, session, lsn = (
            np.array([row[i] for row in rows], np.int64) for i in range(4)
        )
        n = len(rows)
        off = np.zeros(n + 1, np.int64)
        flat: dict[str, Any] = {f: np.zeros(n, np.int64) for f in ("form", "post", "shape")}
        ragged: dict[str, Any] = {f: np.zeros(0) for f in ("term", "prog", "box", "geom", "source")}
        ids = strings_to_column(f"q{h}" for h in handle.tolist())
        offs: dict[str, Any] = {f + "_off": off for f in ragged}
        table = QueryRows(
            kind=kind.astype(np.uint8), lsn=lsn, handle=handle, session=session,
            id_off=ids[0], id=ids[1], **flat, **ragged, **offs,
        )  # fmt: skip
        data = np.frombuffer(table.encode(), np.uint8)
        span = (lsns[0], lsns[-1]) if rows else (1, 0)
        return LedgerBatch(*span, -1, state, until, data)

    # --- batches -------------------------------------------------------------------

    def publish(self) -> None:
        at, lsn = self.rng.randrange(DISPATCHERS), len(self.history)
        offset, size = self.offsets[at], self.rng.randint(1, 6)
        live = [
            (h, s)
            for k, h, s in self.history
            if k == UpdateKind.INSERT and self.dead.get(h, 1 << 60) > lsn
        ]
        pairs = [(row, *q) for row in range(size) for q in live if self.rng.random() < 0.3]
        for row, handle, session in pairs:
            pair = (f"q{handle}", f"o{offset + row}", at, offset + row)
            self.must[session].add(pair)
        if not pairs and self.rng.random() < 0.5:
            self.offsets[at] += size  # nobody wants it: a hole
        else:
            self.batch(at, pairs, size)

    def batch(self, at: int, pairs: list[Pair], size: int = 1) -> Batch:
        """A new one, open."""
        batch = Batch(at, self.offsets[at], size, len(self.history), pairs)
        self.offsets[at] += size
        self.open[at, batch.offset] = batch
        self.share(batch)
        return batch

    def oldest(self, at: int) -> int:
        return min((o for d, o in self.open if d == at), default=self.offsets[at])

    def share(self, batch: Batch) -> None:
        """Some workers get some rows each, and some or all have answered. Two may find the same
        pair."""
        batch.shares = [[] for _ in range(self.rng.randint(1, WORKERS))]
        for pair in batch.pairs:
            for _ in range(self.rng.choice([1, 1, 1, 2])):
                self.rng.choice(batch.shares).append(pair)
        batch.released = False
        self.release(batch, self.rng.choice([len(batch.shares), *range(len(batch.shares))]))

    def answer(self) -> None:
        """A worker, or some, answer late."""
        owing = [batch for batch in self.open.values() if batch.shares]
        if owing:
            batch = self.rng.choice(owing)
            self.release(batch, self.rng.randint(1, len(batch.shares)))

    def release(self, batch: Batch, answers: int) -> None:
        """Sends what so many workers have found, unless it is nothing."""
        found, batch.shares = batch.shares[:answers], batch.shares[answers:]
        pairs = [pair for share in found for pair in share]
        if pairs:
            at, self.releases = batch.dispatcher, self.releases + 1
            frame = release(
                batch.offset, batch.size, batch.lsn, pairs, at, self.watermark(at),
                whole=not batch.shares and not batch.released,
                number=self.epochs[at] << 40 | self.releases,
                oldest=self.rng.choice([0, self.oldest(at)]),
            )  # fmt: skip
            batch.releases[frame.release] = frame
            self.post(Address("dispatcher", at), frame)
        batch.released |= bool(pairs)
        self.close_if_complete(batch)

    def close_if_complete(self, batch: Batch) -> None:
        place = batch.dispatcher, batch.offset
        if batch.is_complete and place in self.open:
            del self.open[place]
            self.completed.append(batch)

    def resend(self, batch: Batch) -> None:
        for frame in batch.releases.values():
            self.post(Address("dispatcher", batch.dispatcher), frame)

    def again(self) -> None:
        if self.open:
            self.resend(self.rng.choice(list(self.open.values())))
        if self.given_up:
            frame = self.rng.choice(self.given_up)
            self.post(Address("dispatcher", frame.dispatcher), frame)

    def give_up(self) -> None:
        """A batch that killed workers is sent again as two halves, or its object is
        quarantined."""
        owing = [place for place, batch in self.open.items() if batch.shares]
        if not owing:
            return
        whole = self.open.pop(self.rng.choice(owing))
        self.given_up += whole.releases.values()
        half = whole.size // 2
        parts = []
        for start, stop in ((0, half), (half, whole.size)) if half else ():
            pairs = [(row - start, h, s) for row, h, s in whole.pairs if start <= row < stop]
            part = Batch(whole.dispatcher, whole.offset + start, stop - start, whole.lsn, pairs)
            self.open[part.dispatcher, part.offset] = part
            parts.append(part)
        for part in parts:
            self.share(part)
        if not half:  # quarantined
            for row, handle, session in whole.pairs:
                offset = whole.offset + row
                pair = (f"q{handle}", f"o{offset}", whole.dispatcher, offset)
                self.must[session].discard(pair)
                self.may[session].add(pair)

    # --- subscribers ---------------------------------------------------------------

    def dispatcher(self, at: int, frame: Frame) -> None:
        match frame:
            case ReleasesKept():
                for batch in list(self.open.values()):
                    for number in frame.release.tolist() if batch.dispatcher == at else ():
                        batch.releases.pop(number, None)
                    self.close_if_complete(batch)
                kept = {*frame.release.tolist()}
                self.given_up = [each for each in self.given_up if each.release not in kept]
            case StreamDelivery():
                self.arrived[at] += len(frame.data)
                self.post(Address("dispatcher", at), DeliveryArrivals(at, self.arrived[at]))
                self.delivered(self.subscribers[frame.session], frame)
            case StreamAttached():
                subscriber = self.subscribers[frame.session]
                if frame.epoch == subscriber.epoch:
                    assert not frame.refused
                    if frame.sent == 1 << 62:  # the stream is not known there
                        subscriber.lossy = True
                    else:
                        assert frame.acked >= subscriber.since
                        assert subscriber.lossy or frame.sent == subscriber.number

    def delivered(self, subscriber: Subscriber, frame: StreamDelivery) -> None:
        if frame.epoch != subscriber.epoch:
            return
        if frame.closed:
            subscriber.epoch = 0
        elif frame.number == subscriber.number + 1:
            subscriber.number += 1
            subscriber.batches += 1
            subscriber.bytes += len(frame.data)
            before = len(subscriber.client.batches)
            subscriber.client.take(frame)
            for batch in subscriber.client.batches[before:]:
                first = getattr(batch.gap, "from") if batch.HasField("gap") else batch.session_seq
                assert first > subscriber.since, "what is acknowledged came again"
        else:
            assert frame.number > subscriber.number
            assert subscriber.lossy, "a delivery is missing"

    def attach(self, subscriber: Subscriber, much: bool = False) -> None:
        self.streams += 1
        subscriber.epoch = self.streams
        subscriber.dispatcher = self.rng.randrange(DISPATCHERS)
        subscriber.number = subscriber.batches = subscriber.bytes = 0
        subscriber.since, subscriber.lossy = subscriber.acked, False
        subscriber.client.names.clear()
        window = (
            (1 << 20, 1 << 30) if much else (self.rng.randint(0, 4), self.rng.choice([1, 9999]))
        )
        frame = StreamAttach(
            subscriber.session,
            subscriber.epoch,
            subscriber.dispatcher,
            0,
            *window,
            subscriber.acked,
        )
        self.post(Address("dispatcher", subscriber.dispatcher), frame)

    def take(self) -> None:
        """A client attaches, acknowledges, grants or goes."""
        subscriber = self.rng.choice(self.subscribers)
        if not subscriber.epoch or subscriber.lossy or self.rng.random() < 0.1:
            self.attach(subscriber)
        elif self.rng.random() < 0.1:
            self.post(
                Address("dispatcher", subscriber.dispatcher),
                StreamDetach(subscriber.session, subscriber.epoch),
            )
            subscriber.epoch = 0
        else:
            if self.rng.random() < 0.5:
                seen = [*subscriber.client.pairs, *(b for _, b, _ in subscriber.client.gaps)]
                reached = max(seen, default=0)
                subscriber.acked = self.rng.randint(
                    subscriber.acked, max(subscriber.acked, reached)
                )
            self.post(
                Address("dispatcher", subscriber.dispatcher),
                StreamCredit(
                    subscriber.session, subscriber.epoch, subscriber.dispatcher,
                    subscriber.batches, subscriber.bytes, subscriber.acked,
                ),
            )  # fmt: skip

    # --- the end ---------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing is lost any more, all is sent until it is done."""
        self.loss, self.disk.full = 0.0, False
        for _ in range(40):
            for batch in list(self.open.values()):
                self.release(batch, len(batch.shares))
                self.resend(batch)
            for frame in self.given_up:
                self.post(Address("dispatcher", frame.dispatcher), frame)
            self.tip()
            while any(self.links.values()) or self.machine.busy:
                self.step()
            for _ in range(10):
                self.tick()
            if not self.open and not self.given_up and self.machine.applied == len(self.history):
                return
        raise AssertionError(f"{len(self.open)} batches do not complete")

    def finish(self) -> None:
        self.settle()
        for at in range(DISPATCHERS):  # says that all before is done
            notice = WatermarkNotice(at, self.watermark(at), self.oldest(at))
            self.post(Address("dispatcher", at), notice)
        for subscriber in self.subscribers:
            self.attach(subscriber, much=True)
        self.settle()
        for subscriber in self.subscribers:
            client, session = subscriber.client, subscriber.session
            assert client.gapless()
            got = Counter(client.pairs.values())
            assert not got or max(got.values()) == 1
            must, may = self.must[session], self.may[session]
            assert got.keys() <= must | may
            numbers = len(client.pairs) + len(client.lost)
            assert len(must) <= numbers <= len(must | may)
            if not client.lost:
                assert got.keys() >= must
        for at in range(DISPATCHERS):
            window = self.machine._windows[at]
            assert (len(window), window.in_part) == (0, False)


def run(seed: int, steps: int) -> World:
    rng = random.Random(seed)
    limits = {
        "session_quota_bytes": rng.choice([300, 2_000, 1 << 30, 1 << 30]),
        "retention_bytes": rng.choice([8_000, 40_000, 1 << 30, 1 << 30]),
        "retention_ms": rng.choice([10_000, 1 << 40, 1 << 40]),
        "chapter_bytes": rng.choice([500, 5_000, 1 << 20]),
    }
    world = World(rng, **limits)
    actions = [
        (world.step, 10), (world.tick, 4), (world.update, 3), (world.publish, 4),
        (world.take, 5), (world.again, 1), (world.idle, 1), (world.answer, 2), (world.give_up, 0.4),
        (world.crash, 0.3), (world.restart_dispatcher, 0.2), (world.fill, 0.3),
    ]  # fmt: skip
    for _ in range(steps):
        rng.choices([a for a, _ in actions], [w for _, w in actions])[0]()
    world.finish()
    return world
