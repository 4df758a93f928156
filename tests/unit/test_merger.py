"""The merger: each pair once, numbered, under any order of messages; losses announced."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.batch import Frame, column_to_strings, strings_to_column
from ps2stream.merger import fanout, kernels
from ps2stream.merger.dedup import Window
from ps2stream.merger.names import Names
from ps2stream.merger.sessions import Known
from ps2stream.merger.state import MergerMachine
from ps2stream.messages import (
    Address,
    Attach,
    Completed,
    Credit,
    Delivery,
    Detach,
    Kind,
    MatchBatch,
    MergerQueries,
    Payload,
    Send,
    Watermark,
)
from ps2stream.v1 import delivery_pb2

MANY = 1 << 40
Update = tuple[Kind, int, int, str]  # kind, handle, session, id


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
    return named(lsn, [(Kind.INSERT, lsn + i, s, f"q{lsn + i}") for i, s in enumerate(sessions)])


def payload(
    batch: int,
    size: int,
    lsn: int,
    expected: int = 1,
    dispatcher: int = 0,
    watermark: int = 0,
    text: str = "té",
) -> Payload:
    offsets = range(batch, batch + size)
    return Payload(
        dispatcher,
        batch,
        lsn,
        watermark,
        expected,
        *strings_to_column(f"o{i}" for i in offsets),
        np.array(offsets, np.int64) * 10,
        np.array(offsets, np.float64) / 8,
        np.array(offsets, np.float64) / 16,
        *strings_to_column(f"{text}{i}" for i in offsets),
    )


def matches(
    batch: int, pairs: Sequence[tuple[int, int, int]], worker: int = 0, dispatcher: int = 0
) -> MatchBatch:
    row, handle, session = np.array(pairs, np.int64).reshape(-1, 3).T
    return MatchBatch(worker, dispatcher, batch, row.astype(np.uint32), handle, session)


def attach(
    session: int, epoch: int = 1, fields: int = 0, batches: int = 1000, size: int = MANY
) -> Attach:
    return Attach(session, epoch, 0, fields, batches, size)


@dataclasses.dataclass
class Client:
    """What a subscriber makes of its stream."""

    names: dict[int, str] = dataclasses.field(default_factory=dict)
    pairs: dict[int, tuple[str, str, int, int]] = dataclasses.field(default_factory=dict)
    batches: list[delivery_pb2.DeliverBatch] = dataclasses.field(default_factory=list)
    gaps: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    size: int = 0
    repeats: int = 0
    epoch: int = 0
    closed: list[int] = dataclasses.field(default_factory=list)

    def take(self, delivery: Delivery) -> None:
        if delivery.closed:
            self.closed.append(delivery.epoch)
            return
        if delivery.epoch != self.epoch:  # a stream of its own names
            self.names, self.epoch = {}, delivery.epoch
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
            self.pairs[seq] = pair

    def gapless(self) -> bool:
        """Every number is a pair or lies in a gap."""
        lost = {seq for a, b, _ in self.gaps for seq in range(a, b + 1)}
        assert not lost & self.pairs.keys()
        assert sum(count for *_, count in self.gaps) == len(lost)
        seen = lost | self.pairs.keys()
        return seen == set(range(1, len(seen) + 1))


class Rig:
    """A merger with the clients of its sessions."""

    def __init__(self, machine: MergerMachine) -> None:
        self.machine = machine
        self.clients: dict[int, Client] = {}
        self.done: list[tuple[int, int]] = []

    def send(self, *frames: Frame) -> list[Send]:
        out = self.machine.on_many(frames)
        for to, frame in out:
            if isinstance(frame, Delivery):
                self.clients.setdefault(frame.session, Client()).take(frame)
            elif isinstance(frame, Completed):
                self.done += [(to.index, b) for b in frame.batch.tolist()]
        return out


def rig(**options: int) -> Rig:
    values = {"index": 0, "dispatchers": 1, "workers": 1, "mergers": 1} | options
    return Rig(MergerMachine(**values))


def one_batch(
    batch: int, pairs: Sequence[tuple[int, int, int]], lsn: int, size: int = 4
) -> list[Frame]:
    return [payload(batch, size, lsn), matches(batch, pairs)]


# --- the machine -------------------------------------------------------------------


def test_a_batch_waits_for_payload_answers_and_names() -> None:
    r = rig(workers=2)
    r.send(attach(5, fields=7))
    assert r.send(matches(0, [(0, 2, 5), (2, 1, 5)], worker=1)) == []
    assert r.send(payload(0, 3, lsn=2, expected=2)) == []
    assert r.send(matches(0, [(0, 1, 5)])) == []
    assert r.machine.pending == 1
    out = r.send(inserts(1, [5, 5]))
    assert [s.to for s in out] == [Address("dispatcher", 0)] * 2
    assert r.done == [(0, 0)]
    [batch] = r.clients[5].batches
    assert batch.session_seq == 1
    assert dict(zip(batch.new_handles, batch.new_query_ids, strict=True)) == {1: "q1", 2: "q2"}
    assert list(batch.pair_handles) == [1, 2, 1]
    assert list(batch.pair_objects) == [0, 0, 1]
    assert list(batch.object_ids) == ["o0", "o2"]
    assert list(batch.object_offsets) == [0, 2]
    assert list(batch.text) == ["té0", "té2"]
    assert list(batch.time_ms) == [0, 20]
    assert list(batch.lon) == [0, 0.25]
    assert list(batch.lat) == [0, 0.125]
    assert r.machine.pending == 0


@pytest.mark.parametrize("fields", range(8))
def test_columns_come_as_asked_for(fields: int) -> None:
    r = rig()
    r.send(inserts(1, [3]), attach(3, fields=fields), *one_batch(0, [(1, 1, 3)], 1))
    [batch] = r.clients[3].batches
    assert len(batch.text) == bool(fields & fanout.FIELD_TEXT)
    assert len(batch.lon) == len(batch.lat) == bool(fields & fanout.FIELD_POSITION)
    assert len(batch.time_ms) == bool(fields & fanout.FIELD_TIME)


def test_a_batch_that_goes_to_no_worker_is_complete_at_once() -> None:
    r = rig(dispatchers=2)
    r.send(payload(0, 3, 0, expected=0, dispatcher=1))
    assert r.done == [(1, 0)]


def test_several_batches_complete_in_one_message() -> None:
    r = rig()
    r.send(*(f for b in (0, 4, 8) for f in one_batch(b, [], 1)))
    out = r.send(inserts(1, [1]))
    [send] = out
    assert isinstance(send.frame, Completed)
    assert send.frame.batch.tolist() == [0, 4, 8]


def test_a_name_is_sent_once_a_stream() -> None:
    r = rig()
    r.send(inserts(1, [1, 1]), attach(1))
    r.send(*one_batch(0, [(0, 1, 1)], 2), *one_batch(4, [(0, 1, 1), (0, 2, 1)], 2))
    assert [list(b.new_handles) for b in r.clients[1].batches] == [[1], [2]]
    r.send(Credit(1, 1, 0, 0, 3), attach(1, epoch=2), *one_batch(8, [(0, 2, 1)], 2))
    assert list(r.clients[1].batches[-1].new_handles) == [2]
    assert r.clients[1].closed == [1]
    assert r.clients[1].repeats == 0


def test_credits_in_batches_and_bytes() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1, batches=2))
    for b in range(0, 20, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    client = r.clients[1]
    assert sorted(client.pairs) == [1, 2]
    r.send(Credit(1, 1, 1, 0, 0))
    assert sorted(client.pairs) == [1, 2, 3]
    r.send(Credit(1, 9, 5, 5, 0))  # of another stream
    assert sorted(client.pairs) == [1, 2, 3]
    r.send(attach(1, epoch=2, batches=100, size=1))  # one batch may overdraw
    assert client.batches[-1].session_seq == 1
    r.send(Credit(1, 2, 0, 1, 1))
    assert client.batches[-1].session_seq == 1
    r.send(Credit(1, 2, 0, MANY, 1))
    assert sorted(client.pairs) == [1, 2, 3, 4, 5]
    assert client.gapless()
    assert not client.gaps


def test_what_was_not_acknowledged_comes_again_with_its_numbers() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    for b in range(0, 20, 4):
        r.send(*one_batch(b, [(0, 1, 1), (1, 1, 1)], 1))
    client = r.clients[1]
    r.send(Credit(1, 1, 1, 1, 4), Detach(1, 1), *one_batch(20, [(3, 1, 1)], 1))
    assert len(client.pairs) == 10
    r.send(attach(1, epoch=2))
    assert client.repeats == 6
    assert len(client.pairs) == 11
    assert client.gapless()
    r.send(Credit(1, 2, 9, 9, 11))
    assert r.machine.held_bytes == 0


def test_a_stale_attach_is_closed_and_a_detach_may_overtake() -> None:
    r = rig()
    r.send(attach(1, epoch=5))
    r.send(attach(1, epoch=4))
    assert r.clients[1].closed == [4]
    assert r.send(attach(1, epoch=5)) == []
    r.send(Detach(1, 4), inserts(1, [1]), *one_batch(0, [(0, 1, 1)], 1))
    assert len(r.clients[1].pairs) == 1
    r.send(Detach(1, 7), attach(1, epoch=7), *one_batch(4, [(0, 1, 1)], 1))
    assert r.clients[1].closed == [4, 7]
    assert len(r.clients[1].pairs) == 1


def test_a_backlog_beyond_the_quota_ends_in_a_gap() -> None:
    r = rig(session_quota_bytes=20_000)
    r.send(inserts(1, [1, 2]))
    for b in range(0, 200, 4):
        r.send(*one_batch(b, [(0, 1, 1), (1, 1, 1), (2, 2, 2)][: 3 if b < 8 else 2], 2))
    assert r.machine.held_bytes <= 40_000
    r.send(attach(1), attach(2))
    slow, other = r.clients[1], r.clients[2]
    [(first, last, count)] = slow.gaps
    assert (first, count) == (1, last)
    assert slow.batches[0].HasField("gap")
    assert max(slow.pairs) == 100
    assert slow.gapless()
    assert len(slow.pairs) > 4
    assert other.gapless()
    assert not other.gaps
    assert len(other.pairs) == 2


def test_an_entry_larger_than_the_quota_is_announced_too() -> None:
    r = rig(session_quota_bytes=1_000)
    r.send(inserts(1, [1]), *one_batch(0, [(0, 1, 1)], 1), attach(1))
    assert r.clients[1].gaps == [(1, 1, 1)]
    r.send(*one_batch(4, [(0, 1, 1)], 1))
    assert r.clients[1].gapless()
    assert sorted(r.clients[1].pairs) == [2]


def test_sent_but_no_longer_held_is_a_gap_only_after_a_reconnect() -> None:
    r = rig(session_quota_bytes=20_000)
    r.send(inserts(1, [1]), attach(1))
    for b in range(0, 200, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    client = r.clients[1]
    assert len(client.pairs) == 50
    assert not client.gaps
    assert r.machine.held_bytes <= 20_000
    r.send(Credit(1, 1, 0, 0, 10), Detach(1, 1))
    before = len(client.batches)
    r.send(attach(1, epoch=2))
    [(first, last, count)] = client.gaps
    assert (first, count) == (11, last - 10)
    again = {b.session_seq for b in client.batches[before + 1 :]}
    assert again == set(range(last + 1, 51))


def test_the_total_is_bounded_and_the_largest_pay() -> None:
    r = rig(total_bytes=200_000)
    r.send(inserts(1, list(range(1, 11))))
    r.send(*one_batch(0, [(0, h, h) for h in range(1, 11)], 10))
    for b in range(4, 800, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 10))
        assert r.machine.held_bytes <= 200_000
    r.send(*(attach(s) for s in range(1, 11)))
    assert all(r.clients[s].gapless() for s in range(1, 11))
    assert [s for s in range(1, 11) if r.clients[s].gaps] == [1]
    assert max(r.clients[1].pairs) == 200


def test_a_large_delivery_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "MAX_BYTES", 2_000)
    r = rig()
    r.send(inserts(1, [1] * 3), attach(1, fields=7))
    pairs = [(row, h, 1) for row in range(30) for h in (1, 2, 3)]
    r.send(payload(0, 30, 3, text="x" * 500), matches(0, pairs))
    client = r.clients[1]
    assert len(client.batches) > 5
    assert client.gapless()
    assert len(set(client.pairs.values())) == 90
    assert client.size / len(client.batches) < 4_000


def test_names_are_kept_until_every_watermark_has_passed() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1, 1, 1]))
    r.send(named(4, [(Kind.DELETE, 2, 1, "q2"), (Kind.DELETE, 1, 1, "q1")], watermark=5))
    assert r.machine.names == 3
    # An object from before the deletes, by the dispatcher that lags behind.
    r.send(payload(0, 4, 3, dispatcher=1, watermark=3))
    r.send(matches(0, [(0, 1, 1), (1, 2, 1)], dispatcher=1))
    r.send(Watermark(1, 4))
    assert r.machine.names == 2
    r.send(Watermark(1, 9))
    assert r.machine.names == 1
    # The backlog has names of its own.
    r.send(attach(1))
    assert [p[0] for p in r.clients[1].pairs.values()] == ["q1", "q2"]


def test_a_merger_keeps_only_its_own_sessions() -> None:
    r = rig(index=1, mergers=3)
    r.send(inserts(1, [1, 2, 3, 4, 5]))
    assert r.machine.names == 2
    r.send(attach(4), *one_batch(0, [(0, 4, 4)], 5))
    assert r.clients[4].pairs == {1: ("q4", "o0", 0, 0)}


def test_done_batches_are_forgotten_yet_refused() -> None:
    r = rig(window=8)
    r.send(inserts(1, [1]), attach(1))
    for b in range(0, 400, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    assert r.machine._windows[0].remembered() == 8
    r.send(Watermark(0, 2))
    assert r.machine._windows[0].remembered() == 0
    for b in range(0, 400, 4):
        assert r.send(*one_batch(b, [(0, 1, 1)], 1)) == []
    assert len(r.clients[1].pairs) == 100
    assert r.machine.pending == 0


def test_wrong_messages_are_refused() -> None:
    r = rig()
    with pytest.raises(TypeError, match="Completed"):
        r.send(Completed(0, np.zeros(1, np.int64)))
    with pytest.raises(ValueError, match="row 9 of a batch of 4"):
        r.send(*one_batch(0, [(9, 1, 1)], 0))


# --- any order ------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_each_pair_once_under_any_order(data: st.DataObject) -> None:
    """Messages delayed, reordered and repeated: the merged set is what the workers said."""
    draw = data.draw
    workers, dispatchers, sessions = 3, 2, 4
    owner = draw(st.lists(st.integers(0, sessions - 1), min_size=1, max_size=8))
    frames: list[Frame] = []
    lsn = 1
    while lsn <= len(owner):
        step = draw(st.integers(1, 3))
        frames.append(inserts(lsn, owner[lsn - 1 : lsn - 1 + step]))
        lsn += step
    want: set[tuple[str, str, int, int]] = set()
    batches: set[tuple[int, int]] = set()
    for dispatcher in range(dispatchers):
        batch = stamp = 0
        for _ in range(draw(st.integers(0, 3))):
            size = draw(st.integers(1, 4))
            stamp = draw(st.integers(stamp, len(owner)))
            expected = draw(st.integers(0, workers))
            frames.append(payload(batch, size, stamp, expected, dispatcher))
            batches.add((dispatcher, batch))
            for worker in draw(st.permutations(range(workers)))[:expected]:
                pair = st.tuples(st.integers(0, size - 1), st.integers(1, max(stamp, 1)))
                some = draw(st.lists(pair, max_size=8)) if stamp else []
                told = [(row, h, owner[h - 1]) for row, h in some]
                frames.append(matches(batch, told, worker, dispatcher))
                want |= {(f"q{h}", f"o{batch + r}", dispatcher, batch + r) for r, h, _ in told}
            batch += size
    frames += [
        attach(s, epoch, batches=draw(st.sampled_from([0, 1, 1000])))
        for s in range(sessions)
        for epoch in draw(st.lists(st.integers(1, 4), max_size=3))
    ]
    frames += [Detach(s, draw(st.integers(1, 4))) for s in range(sessions) if draw(st.booleans())]
    repeated = draw(st.lists(st.sampled_from(frames), max_size=10))
    order = draw(st.permutations(frames + repeated))
    r = rig(workers=workers, dispatchers=dispatchers)
    while order:
        cut = draw(st.integers(1, 4))
        r.send(*order[:cut])
        order = order[cut:]
    r.send(*(attach(s, epoch=9) for s in range(sessions)))
    got = [pair for client in r.clients.values() for pair in client.pairs.values()]
    assert len(got) == len(set(got))
    assert set(got) == want
    assert all(c.gapless() and not c.gaps for c in r.clients.values())
    for session, client in r.clients.items():
        assert {owner[int(q[1:]) - 1] for q, *_ in client.pairs.values()} <= {session}
    assert len(r.done) == len(batches)
    assert set(r.done) == batches
    assert r.machine.pending == 0


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_slow_clients_miss_nothing_silently(data: st.DataObject) -> None:
    """Reconnects, small credits, small quotas: every number is a pair or in a gap."""
    r = rig(session_quota_bytes=data.draw(st.sampled_from([1, 5_000, 9_000, MANY])))
    r.send(inserts(1, [1, 1]))
    client = r.clients.setdefault(1, Client())
    epoch = total = acked = 0
    for b in range(0, 4 * data.draw(st.integers(1, 25)), 4):
        match data.draw(st.sampled_from(["attach", "detach", "credit", "ack", "match", "match"])):
            case "attach":
                epoch += 1
                r.send(attach(1, epoch, batches=data.draw(st.integers(0, 3))))
            case "detach":
                r.send(Detach(1, epoch))
            case "credit":
                r.send(Credit(1, epoch, 1, 0, 0))
            case "ack":
                acked = max(acked, data.draw(st.integers(0, max(client.pairs, default=0))))
                r.send(Credit(1, epoch, 0, 0, acked))
            case "match":
                pairs = [(i % 4, 1 + i % 2, 1) for i in range(data.draw(st.integers(1, 4)))]
                total += len(pairs)
                r.send(*one_batch(b, pairs, 2))
    r.send(attach(1, epoch=epoch + 1))
    lost = {seq for a, z, _ in client.gaps for seq in range(a, z + 1)}
    assert lost | client.pairs.keys() >= set(range(1, total + 1))
    assert max(client.pairs, default=0) <= total
    if not lost:
        assert len(set(client.pairs.values())) == total


# --- parts and kernels against their twins ------------------------------------------------


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 60)), max_size=150)


@settings(deadline=None)
@given(PAIRS)
def test_distinct_pairs(pairs: list[tuple[int, int]]) -> None:
    row, handle = np.array(pairs, np.int64).reshape(-1, 2).T
    out = kernels.distinct_pairs(row.astype(np.uint32), handle, handle * 7, 7)
    want = sorted(set(pairs))
    assert list(zip(*(c.tolist() for c in out), strict=True)) == [(r, h, 7 * h) for r, h in want]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9)))
def test_runs(values: list[int]) -> None:
    column = np.array(sorted(values), np.uint32)
    value, index = kernels.runs(column)
    assert value.tolist() == sorted(set(values))
    assert value[index].tolist() == column.tolist()


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1), st.data())
def test_take(values: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(values) - 1)))
    out = fanout.take(strings_to_column(values), np.array(rows, np.int64))
    assert column_to_strings(*out) == [values[i] for i in rows]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 300) | st.integers(2**62, 2**62 + 300), max_size=300)))
def test_known(calls: list[list[int]]) -> None:
    known, twin = Known(), set[int]()
    for handles in calls:
        new = known.learn(np.array(handles, np.int64)).tolist()
        assert new == [h for h in dict.fromkeys(handles) if h not in twin]
        twin |= set(handles)


def test_a_stream_that_knows_too_much_is_told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.sessions.MAX_KNOWN", 100)
    known = Known()
    assert len(known.learn(np.arange(1, 151))) == 150
    assert len(known.learn(np.arange(1, 151))) == 150
    assert len(known._table) <= 1_024


def test_names_survive_forgetting_and_growth() -> None:
    names = Names()
    early = None
    for start in range(1, 10_001, 500):
        handles = np.arange(start, start + 500)
        names.add(handles, *strings_to_column(f"n{h}é" for h in handles.tolist()))
        early = early or names.snapshot()
    for start in range(1, 8_001, 100):
        names.forget(np.arange(start, start + 100))
    assert len(names) == 2_000
    some = np.array([10_000, 8_001, 9_999])
    assert column_to_strings(*names.snapshot().of(some)) == ["n10000é", "n8001é", "n9999é"]
    assert early is not None
    assert column_to_strings(*early.of(np.array([7]))) == ["n7é"]
    for unknown in (7, 10_001):
        with pytest.raises(KeyError, match=f"query {unknown}"):
            names.snapshot().of(np.array([8_001, unknown]))


def test_a_window_refuses_what_it_has_forgotten() -> None:
    window = Window()
    window.payload(payload(0, 1, 5, expected=0))
    window.payload(payload(1, 1, 6, expected=0))
    assert len(window.ready(9)) == 2
    assert window.advance(6)
    assert not window.advance(6)
    assert window.remembered() == 1
    window.answer(matches(0, []))
    window.answer(matches(1, []))
    assert len(window) == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 3) | st.integers(70_000, 70_002), max_size=60))
def test_by_session(sessions: list[int]) -> None:
    n = len(sessions)
    found = fanout.by_session(np.arange(n, dtype=np.uint32), np.arange(n), np.array(sessions, int))
    got = {s: (row.tolist(), handle.tolist()) for s, row, handle in found}
    want: dict[int, list[int]] = {}
    for i, s in enumerate(sessions):
        want.setdefault(s, []).append(i)
    assert got == {s: (rows, rows) for s, rows in want.items()}
