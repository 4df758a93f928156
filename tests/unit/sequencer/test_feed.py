"""Whoever lost messages of the stream, began late or fell behind ends with what is true."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from random import Random

import numpy as np
import pytest

from ps2stream.protocol.addresses import ROLES, Address, Send
from ps2stream.protocol.follower import LedgerFollower
from ps2stream.protocol.messages.updates import AppliedReport, LedgerBatch, LedgerFetch, LedgerTip
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer import feed
from ps2stream.sequencer.feed import IDLE_TICKS
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.store.compaction import compact_log
from ps2stream.store.memory import MemoryStore
from tests.support.compaction import compact_often
from tests.support.updates import Row, delete, ids_of, insert, replace, update

DISPATCHERS = [Address("dispatcher", 0), Address("dispatcher", 1)]
WORKER = Address("worker", 0)
NEVER = 1 << 62

Life = dict[int, tuple[str, int]]  # handle: id, LSN of its delete


def learn(life: Life, rows: QueryRows, above: int) -> None:
    columns = rows.lsn.tolist(), rows.kind.tolist(), rows.handle.tolist(), ids_of(rows)
    for lsn, kind, handle, id in zip(*columns, strict=True):
        if lsn <= above:
            continue
        if kind == UpdateKind.INSERT:
            assert handle not in life
            life[handle] = (id, NEVER)
        else:
            assert life[handle] == (id, NEVER)  # no delete of what is not known, none twice
            life[handle] = (id, lsn)


def seen_by(at: Address, life: Life) -> Life:
    """What a reader knows: dispatchers are told no ids."""
    named = at.role != "dispatcher"
    return {handle: (id if named else "", end) for handle, (id, end) in life.items()}


def as_of(life: Life, lsn: int) -> set[tuple[int, str]]:
    return {(handle, id) for handle, (id, end) in life.items() if handle <= lsn < end}


def between(life: Life, low: int, high: int) -> Life:
    """Two are equal when they are as of every LSN from low to high."""
    return {
        handle: (id, end if end <= high else NEVER)
        for handle, (id, end) in life.items()
        if end > low and handle <= high
    }


class Reader:
    """One incarnation of who follows the stream: applies by LSN, forgets when told. It goes on
    from a snapshot: the LSN that was applied, and what was known then."""

    def __init__(self, at: Address, applied: int = 0, life: Life | None = None) -> None:
        self.stream: LedgerFollower[LedgerBatch] = LedgerFollower(at.role, at.index, applied)
        self.at = at
        self.life: Life = dict(life or {})
        self.rows = 0  # of the state that is read

    def on(self, frame: LedgerBatch | LedgerTip) -> list[Send]:
        if isinstance(frame, LedgerTip):
            return self.stream.hear(frame.lsn)
        if frame.owner >= 0:
            self.stream.add(frame.lsn_from, frame.lsn_to, frame)
        elif self.stream.fetched(frame):
            self.life.clear()
        while (ready := self.stream.next()) is not None:
            rows = QueryRows.decode(ready.rows.data)
            if self.at.role == "dispatcher":
                if ready.state:  # a third of its bytes
                    assert not len(rows.id)
                    assert not len(rows.source)
                none = np.zeros(0, np.uint8)
                rows = rows.replace(id_off=np.zeros_like(rows.id_off), id=none)
            learn(self.life, rows, self.stream.before)
            self.rows = len(rows) + (self.rows if ready.lsn_from > 1 else 0)
            if ready.state and ready.lsn_to == ready.until:
                assert ready.total == self.rows
            assert bool(ready.total) == bool(ready.state and self.rows)
        return self.stream.ask() if frame.owner < 0 else []


class Compacting(MemoryStore):
    """Drops what an embedded ledger drops at a start, and more often."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = np.zeros(0, np.int64)  # sorted handles

    def replay(self, after: int = 0) -> Iterator[LedgerBatch]:
        batches = super().replay(after)
        return compact_log(batches, self.gone) if len(self.gone) else batches

    def compact(self) -> None:
        for batch in self.replay():
            rows = QueryRows.decode(batch.rows.data)
            dead = (rows.kind == UpdateKind.DELETE) & (rows.lsn <= self.watermark)
            self.gone = np.union1d(self.gone, rows.handle[dead])


class World:
    """A sequencer, two dispatchers and a worker; links that are first in, first out, with holes."""

    def __init__(self) -> None:
        self.store = Compacting()
        self.links: dict[Address, deque[LedgerBatch | LedgerTip]] = {
            at: deque() for at in (*DISPATCHERS, WORKER)
        }
        self.readers = {at: Reader(at) for at in self.links}
        self.truth: Life = {}
        self.watermark = 0
        self.seq = itertools.count(1)
        self.names = itertools.count(1)
        self.acks = [(0, 0), (0, 0)]
        self.snapshot: tuple[int, Life] = (0, {})
        self.restart()

    def restart(self) -> None:
        self.store.compact()
        epoch = self.store.epoch("sequencer", 0)
        self.machine = SequencerMachine(list(self.links), self.store, epoch)
        self.asked: deque[LedgerFetch] = deque()

    def send(self, sends: Iterable[Send]) -> None:
        for to, frame in sends:
            if isinstance(frame, LedgerFetch):
                self.asked.append(frame)
            elif isinstance(frame, LedgerBatch | LedgerTip):
                self.links[to].append(frame)
                if isinstance(frame, LedgerBatch) and frame.owner >= 0 and to == DISPATCHERS[0]:
                    self.links[WORKER].append(frame)  # as the batch's owner would

    def update(self, deletes: list[str], inserts: int, replaced: Sequence[str] = ()) -> None:
        rows: list[Row] = [insert(str(next(self.names))) for _ in range(inserts)]
        rows += [replace(id, str(next(self.names))) for id in replaced]
        rows += [delete(id) for id in deletes]
        sends = self.machine.append([update(rows, next(self.seq))])
        for applied in {
            id(s.frame): s.frame for s in sends if isinstance(s.frame, LedgerBatch)
        }.values():
            learn(self.truth, QueryRows.decode(applied.rows.data), 0)
        self.send(sends)

    def deliver(self, to: Address, lost: bool) -> None:
        frame = self.links[to].popleft()
        if not lost:
            self.send(self.readers[to].on(frame))
            self.check(to)

    def answer(self, lost: bool) -> None:
        ask = self.asked.popleft()
        if not lost:
            self.send(self.machine.on(ask))

    def acknowledge(self, index: int, lag: int) -> None:
        """A dispatcher's stamps never fall below its watermark, whatever it lost since."""
        stream = self.readers[DISPATCHERS[index]].stream
        applied = 0 if stream.amid else stream.applied
        _, before = self.acks[index]
        self.acks[index] = (applied, max(before, applied - lag))
        self.send(self.machine.on(AppliedReport(index, *self.acks[index])))

    def check(self, at: Address) -> None:
        """What it knows is right as of every LSN that anything is still matched as of."""
        reader = self.readers[at]
        low, high = min(mark for _, mark in self.acks), reader.stream.applied
        if reader.stream.amid or high < low:
            return
        truth = seen_by(at, self.truth)
        assert between(reader.life, low, high) == between(truth, low, high), (at, low, high)

    def settle(self) -> None:
        """Nothing gets lost any more."""
        for _ in range(1000):
            self.send(self.machine.tick())
            for reader in self.readers.values():
                self.send(reader.stream.tick())
            while self.asked or any(self.links.values()):
                while self.asked:
                    self.answer(lost=False)
                for at, link in self.links.items():
                    while link:
                        self.deliver(at, lost=False)
            if all(r.stream.applied == self.machine.lsn for r in self.readers.values()):
                break
        for at, reader in self.readers.items():
            assert not reader.stream.amid
            assert reader.stream.applied == self.machine.lsn
            assert as_of(reader.life, NEVER - 1) == as_of(seen_by(at, self.truth), NEVER - 1)
            self.check(at)


@pytest.fixture
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "FEED_ROWS", 3)
        compact_often(patch)
        yield


OPS = ["update"] * 4 + ["deliver"] * 16 + ["ack"] * 9 + ["answer"] * 6 + ["tick"] * 4
OPS += ["lose", "lose", "lose ask", "reader", "joined", "restart", "restart"]
OPS += ["save", "save", "resume"]


def step(world: World, random: Random) -> None:
    at = random.choice([*DISPATCHERS, *DISPATCHERS, WORKER])  # the worker falls behind
    match random.choice(OPS):
        case "update":
            live = sorted(id for _, id in as_of(world.truth, NEVER - 1))
            gone = random.sample(live, random.randint(0, len(live)))
            replaced = [id for id in live if random.random() < 0.3]
            world.update(gone, random.randint(0 if gone else 1, 5), replaced)
        case "deliver":
            for _ in range(min(random.randint(1, 4), len(world.links[at]))):
                world.deliver(at, lost=False)
        case "lose":
            if world.links[at]:
                world.deliver(at, lost=True)
        case "answer":
            if world.asked:
                world.answer(lost=False)
        case "lose ask":
            if world.asked:
                world.answer(lost=True)
        case "ack":
            world.acknowledge(random.randint(0, 1), random.choice([0, 0, 0, 5]))
        case "tick":
            world.send(world.machine.tick())
            for reader in world.readers.values():
                world.send(reader.stream.tick())
        case "reader":
            world.readers[at] = Reader(at)
            if random.random() < 0.5:
                world.links[at].clear()
        case "save":
            reader = world.readers[WORKER]
            if not reader.stream.amid:
                world.snapshot = reader.stream.applied, dict(reader.life)
        case "resume":
            world.readers[WORKER] = Reader(WORKER, *world.snapshot)
            if random.random() < 0.5:
                world.links[WORKER].clear()
        case "joined":
            world.send(world.machine.joined(at))
        case "restart":
            world.restart()


@pytest.mark.takes_turns
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seeds", [range(i, i + 25) for i in range(0, 100, 25)], ids=str)
def test_every_reader_ends_with_what_is_true(seeds: range) -> None:
    for seed in seeds:
        world, random = World(), Random(seed)
        for _ in range(200):
            step(world, random)
        world.settle()


def fetched(machine: SequencerMachine, after: int, state: int = 0) -> list[LedgerBatch]:
    sends = machine.on(LedgerFetch(ROLES.index("worker"), 0, after, state))
    assert isinstance(sends[-1].frame, LedgerTip)
    assert {send.to for send in sends} == {WORKER}
    return [send.frame for send in sends if isinstance(send.frame, LedgerBatch)]


def encoded(pieces: list[LedgerBatch]) -> list[bytes]:
    return [piece.encode() for piece in pieces]


def ready(rows: int) -> SequencerMachine:
    machine = SequencerMachine([*DISPATCHERS[:1], WORKER], MemoryStore(), epoch=7)
    machine.append([update([insert(str(i)) for i in range(rows)])])
    return machine


@pytest.mark.usefixtures("small")
def test_a_state_comes_whole_while_updates_go_on() -> None:
    machine = ready(10)
    machine.append([update([delete("1"), delete("9")], 2)])
    machine.on(AppliedReport(0, 12, 11))  # the delete of "1" is passed, that of "9" is not
    pieces = fetched(machine, 0)
    assert (pieces[0].lsn_from, pieces[0].until, pieces[0].owner) == (1, 12, -1)
    assert pieces[0].state == (7 << 32) + 1
    assert encoded(fetched(machine, 0)) == encoded(pieces)  # a repeat: no second state
    for seq in itertools.count(3):
        machine.append([update([insert(f"new {seq}"), delete("2")], seq)])
        machine.on(AppliedReport(0, machine.lsn, machine.lsn))
        if pieces[-1].lsn_to == 12:
            break
        before = pieces[-2].lsn_to  # the last piece is on its way already
        pieces += fetched(machine, before, pieces[0].state)
        assert encoded(fetched(machine, before, pieces[0].state)) == encoded(pieces[-2:])
    assert len(pieces) > 2
    assert {(p.state, p.until) for p in pieces} == {(pieces[0].state, 12)}
    rows = QueryRows.concat([QueryRows.decode(p.rows.data) for p in pieces])
    assert ids_of(rows) == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "1", "9"]
    [log] = fetched(machine, 12)
    assert (log.lsn_from, log.state, log.until, log.owner) == (13, 0, 0, -1)
    assert fetched(machine, machine.lsn) == []


def test_the_log_is_not_read_from_below_what_was_compacted_away() -> None:
    store = Compacting()
    machine = SequencerMachine([*DISPATCHERS[:1], WORKER], store)
    machine.append([update([insert(str(i)) for i in range(5)])])
    machine.append([update([delete("3")], 2)])
    machine.on(AppliedReport(0, 6, 6))
    machine.append([update([insert("6")], 3)])
    [log] = fetched(machine, 5)
    assert log.state == 0
    assert store.watermark == 6
    machine = SequencerMachine([*DISPATCHERS[:1], WORKER], store, epoch=2)
    [log] = fetched(machine, 2)
    assert (log.state, log.lsn_from) == (0, 1)  # nothing is missing
    store.compact()
    machine = SequencerMachine([*DISPATCHERS[:1], WORKER], store, epoch=3)
    [state] = fetched(machine, 5)
    assert (state.lsn_from, state.until) == (1, 7)
    [log] = fetched(machine, 6)
    assert (log.state, log.lsn_from) == (0, 7)


def test_one_that_has_all_of_a_state_gets_another_if_the_log_has_lost_what_follows() -> None:
    machine = ready(3)
    first = fetched(machine, 0)[0]
    machine.append([update([insert("b"), delete("b")], 2)])
    machine._feeds.note_left_out(machine.lsn)  # as compaction does
    second = fetched(machine, first.until)
    assert (second[0].lsn_from, second[0].until) == (1, machine.lsn)
    assert second[0].state > first.state
    assert encoded(fetched(machine, first.until)) == encoded(second)  # a repeat: no third state
    assert fetched(machine, machine.lsn) == []


def test_half_a_replacement_in_the_log_is_no_log() -> None:
    """Compaction drops the delete of a replacement, whose insert lives on: who holds the old query
    must not go on from the log."""
    store = Compacting()
    machine = SequencerMachine([*DISPATCHERS[:1], WORKER], store)
    machine.append([update([insert("a"), insert("b"), insert("c")])])
    machine.append([update([replace("b", "other")], 2)])
    machine.on(AppliedReport(0, 4, 4))
    machine.append([update([insert("d")], 3)])
    for epoch in (2, 3):
        store.compact()
        left = [QueryRows.decode(batch.rows.data) for batch in store.replay()]
        assert [ids_of(rows) for rows in left] == [["a", "c"], ["b"], ["d"]]
        machine = SequencerMachine([*DISPATCHERS[:1], WORKER], store, epoch=epoch)
        [state] = fetched(machine, 3)
        assert (state.lsn_from, state.until) == (1, 5)
        assert ids_of(QueryRows.decode(state.rows.data)) == ["a", "c", "b", "d"]
        [log] = fetched(machine, 4)
        assert (log.state, log.lsn_from) == (0, 5)


@pytest.mark.usefixtures("small")
def test_a_state_has_both_halves_of_a_replacement_in_one_piece() -> None:
    machine = ready(10)
    machine.append([update([replace(str(i), "other") for i in range(10)], 2)])
    pieces = fetched(machine, 0)
    while pieces[-1].lsn_to < machine.lsn:
        pieces += fetched(machine, pieces[-2].lsn_to, pieces[0].state)
    assert len(pieces) > 3
    for piece in pieces:
        rows = QueryRows.decode(piece.rows.data)
        assert ((piece.lsn_from <= rows.lsn) & (rows.lsn <= piece.lsn_to)).all()
        gone = rows.lsn[rows.kind == UpdateKind.DELETE]
        assert set(gone.tolist()) <= set(rows.handle[rows.kind == UpdateKind.INSERT].tolist())


def test_an_empty_ledger_has_no_state_and_one_without_queries_has() -> None:
    machine = SequencerMachine([WORKER], MemoryStore())
    assert fetched(machine, 0) == []
    machine = ready(0)
    machine.append([update([insert("a"), delete("a")], 2)])
    machine.on(AppliedReport(0, 2, 2))
    [piece] = fetched(machine, 0)
    assert (piece.lsn_from, piece.lsn_to, len(QueryRows.decode(piece.rows.data))) == (1, 2, 0)


@pytest.mark.usefixtures("small")
def test_a_state_that_nobody_asks_for_is_not_kept() -> None:
    machine = ready(10)
    first, _ = fetched(machine, 0)
    for _ in range(IDLE_TICKS - 1):
        machine.tick()
    assert fetched(machine, first.lsn_to, first.state)[0].state == first.state
    for _ in range(IDLE_TICKS):
        machine.tick()
    assert not machine._feeds
    again, _ = fetched(machine, first.lsn_to, first.state)
    assert (again.lsn_from, again.state) == (1, first.state + 1)


@pytest.mark.usefixtures("small")
def test_the_next_piece_of_a_state_is_sent_while_one_is_applied() -> None:
    machine = ready(10)
    first, second = fetched(machine, 0)
    assert second.lsn_from == first.lsn_to + 1
    [third] = fetched(machine, first.lsn_to, first.state)
    assert third.lsn_from == second.lsn_to + 1
    [last] = fetched(machine, second.lsn_to, first.state)
    assert last.lsn_to == first.until
    assert fetched(machine, third.lsn_to, first.state) == []
    assert encoded(fetched(machine, third.lsn_to, first.state)) == encoded([last])  # it was lost
